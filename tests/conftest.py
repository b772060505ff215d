"""What all tests share: the torchvision stubs, skipping by marker, fixed seeds, the shared datasets."""

import os
import random
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from browser import PROGRAM

ROOT = Path(__file__).resolve().parent.parent
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # its kernels, where it is installed, then run on a CPU
os.environ.setdefault("LQF_CACHE", "off")  # no test plans by what others have timed, or leaves something in the home


def _torchvision_extension_loads() -> bool:
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return True  # no torchvision, nothing to repair
    extensions = [p for p in Path(spec.origin).parent.glob("_C.*") if p.suffix in (".so", ".pyd")]
    try:
        for extension in extensions:
            torch.ops.load_library(extension)
    except (ImportError, OSError):
        return False
    return bool(extensions)


def _define_missing_operators() -> torch.library.Library | None:
    """Declare the two operators without which torchvision cannot be imported.

    torchvision's built wheels expect the CUDA build of torch; beside the CPU build their extension does not load, and
    importing torchvision fails where it registers fake kernels for these operators. Declared, everything we use works.
    """
    if _torchvision_extension_loads():
        return None
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


# the operators disappear with the object, so it must outlive every test; and all of this before torchvision is imported
_TORCHVISION_STUBS = _define_missing_operators()

_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
_THREADS = int(os.environ.get("OMP_NUM_THREADS") or max(1, _CORES // _WORKERS))


def _find_shared_datasets() -> Path | None:
    given = os.environ.get("LQF_SHARED")
    places = [Path(given)] if given else [ROOT.parent / "shared" / "datasets", ROOT / "shared" / "datasets"]
    return next((p for p in places if p.is_dir()), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    absent = {
        "gpu": None if torch.cuda.is_available() else "needs CUDA",
        # found, not imported: an installed timm that fails to import should fail its tests, not skip them
        "timm": None if find_spec("timm") and find_spec("torchvision") else "needs timm and torchvision",
        "browser": None if PROGRAM else "needs Chromium",
        "shared_data": None if _find_shared_datasets() else "needs the shared datasets (or $LQF_SHARED)",
    }
    for item in items:
        for marker, reason in absent.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def shared_datasets() -> Path:
    """The folder that holds `oxford_flowers102`, `cub200_40cls` and `chest_xray_kermany`; skips where it is absent."""
    folder = _find_shared_datasets()
    if folder is None:
        pytest.skip("needs the shared datasets (or $LQF_SHARED)")
    return folder


@pytest.fixture(autouse=True)
def _same_start_for_every_test() -> Iterator[None]:
    """Seeds, thread count and default dtype do not depend on which tests ran before."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - for code that uses the global generator
    torch.manual_seed(0)
    torch.set_num_threads(_THREADS)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def one_thread(_same_start_for_every_test: None) -> None:
    """Few small images leave a second thread nothing to do but wait."""
    torch.set_num_threads(1)
