"""Linear Quadratic Fine-Tuning: fine-tune a pretrained network by solving one convex quadratic problem exactly."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from lqf.errors import LQFError

if TYPE_CHECKING:
    from lqf.estimator import LQFClassifier

__version__ = "0.1.0"

__all__ = ["LQFClassifier", "LQFError", "__version__"]


def __getattr__(name: str) -> Any:
    """`LQFClassifier` and the submodules, when first asked for: `lqf --help` need not wait for torch."""
    if name == "LQFClassifier":
        return import_module("lqf.estimator").LQFClassifier
    if not name.startswith("_") and find_spec(f"lqf.{name}"):
        return import_module(f"lqf.{name}")
    raise AttributeError(f"module `lqf` has no attribute `{name}`")
