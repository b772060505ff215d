"""timm and torchvision, imported; beside a torch for which torchvision's extension was not built, too.

A wheel of torchvision is built for one build of torch. Beside another one (say, the wheel of PyPI beside the CPU build)
its extension does not load; torchvision notices and goes on without, but then describes two operators of the extension
to torch, which does not know them, and importing fails. They are declared here, by their signatures alone, when an
import has failed for want of them: networks and transforms do not use them. What does (`torchvision.ops.nms`, decoding
into tensors) goes on refusing with torchvision's own explanation.
"""

from __future__ import annotations

import re
import warnings
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from types import ModuleType

import torch

from lqf.errors import LQFError, MissingDependency

INSTALL = {"timm": "pip install timm torchvision", "torchvision": "pip install torchvision"}
WHEELS = "https://download.pytorch.org/whl"

_DECLARED = ("nms", "qnms")
_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_LIBRARIES: list[torch.library.Library] = []
"""They must outlive torchvision: with such an object its operators go."""


def import_library(name: str) -> ModuleType:
    """`timm`, `torchvision` or one of their modules; a sentence with what to type where that fails."""
    package = name.partition(".")[0]
    try:
        _import("torchvision")  # which timm needs as well
        return _import(name)
    except ModuleNotFoundError as error:
        missing = (error.name or package).partition(".")[0]
        raise MissingDependency(missing, f"`{package}:` backbones", INSTALL[package]) from error
    except Exception as error:  # whatever a package beside the wrong torch runs into
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise LQFError(
            f"{package} is installed but cannot be imported ({reason}), most likely because torchvision was built for "
            f"another torch than this one ({torch.__version__}): run `{repair()}`"
        ) from error


def missing(package: str) -> str:
    """What to do before `import_library` can succeed; empty where it does. Whatever a package prints is kept back."""
    if find_spec(package) is None:
        return INSTALL[package]
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            import_library(package)
    except LQFError as error:
        return str(error)
    return ""


def repair() -> str:
    """What installs the torchvision that was built for this torch, from where this torch came from."""
    version, _, build = torch.__version__.partition("+")
    index = f" --index-url {WHEELS}/{build}" if re.fullmatch(r"cpu|xpu|cu\d+|rocm[\d.]+", build) else ""
    return f"pip install --force-reinstall torch=={version} torchvision{index}"


def _import(name: str) -> ModuleType:
    """A module, after declaring what torchvision misses: every failure names one operator."""
    for _ in _DECLARED:
        try:
            return import_module(name)
        except RuntimeError as error:
            absent = re.search(r"operator torchvision::(\w+) does not exist", str(error))
            if absent is None or absent[1] not in _DECLARED:
                raise
            library = torch.library.Library("torchvision", "FRAGMENT")
            library.define(absent[1] + _SIGNATURE)
            _LIBRARIES.append(library)
    return import_module(name)
