"""What all tests share: skipping by marker, fixed seeds, the shared datasets."""

import gc
import os
import random
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from browser import PROGRAM
from lqf.backbones.imports import import_library

ROOT = Path(__file__).resolve().parent.parent
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # its kernels, where it is installed, then run on a CPU
os.environ.setdefault("LQF_CACHE", "off")  # no test plans by what others have timed, or leaves something in the home

gc.disable()  # until the tests begin: what is imported and collected is no garbage, and there is much of it

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


def pytest_collection_finish() -> None:
    """From now on only what tests make is searched for garbage."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests that use timm or torchvision themselves can import them where lqf can."""
    if item.get_closest_marker("timm"):
        import_library("torchvision")


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
