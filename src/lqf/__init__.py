"""Linear Quadratic Fine-Tuning: fine-tune a pretrained network by solving one convex quadratic problem exactly.

Example:
    >>> model = lqf.LQFClassifier().fit("photos/train")  # doctest: +SKIP
    >>> model.save("run")  # doctest: +SKIP
    >>> lqf.load("run").predict("new.jpg")  # doctest: +SKIP
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from lqf.errors import LQFError, NotFitted

if TYPE_CHECKING:
    from lqf.changes.constraints.conditions import Agree, Bound, EqualMeans, KeepRight
    from lqf.estimator import LQFClassifier, load
    from lqf.reports.comparison import compare
    from lqf.reports.explanations import Explanations
    from lqf.selection import select

__version__ = "0.1.0"

_LATER = {
    **dict.fromkeys(("Agree", "Bound", "EqualMeans", "KeepRight"), "lqf.changes.constraints.conditions"),
    "LQFClassifier": "lqf.estimator",
    "compare": "lqf.reports.comparison",
    "load": "lqf.estimator",
    "Explanations": "lqf.reports.explanations",
    "select": "lqf.selection",
}
"""Public names whose modules import torch, for which `lqf --help` need not wait."""

__all__ = [
    "Agree",
    "Bound",
    "EqualMeans",
    "Explanations",
    "KeepRight",
    "LQFClassifier",
    "LQFError",
    "NotFitted",
    "__version__",
    "compare",
    "load",
    "select",
]


def __getattr__(name: str) -> Any:
    """The public names and the submodules, when first asked for."""
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    if not name.startswith("_") and find_spec(f"lqf.{name}"):
        return import_module(f"lqf.{name}")
    raise AttributeError(f"module `lqf` has no attribute `{name}`")


def __dir__() -> list[str]:
    return __all__
