"""A folder of coloured noise with one label turned and one file copied, and a model fitted on it."""

import shutil
from pathlib import Path

import pytest

from fits import convnet, photos
from lqf import LQFClassifier

TURNED, COPY = "green/turned.png", "blue/copy.png"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = photos(tmp_path_factory.mktemp("noise") / "train", 8, classes=("blue", "green"))
    shutil.move(folder / "blue" / "3.png", folder / TURNED)
    shutil.copy(folder / "blue" / "0.png", folder / COPY)
    return folder


@pytest.fixture(scope="session")
def model(folder: Path) -> LQFClassifier:
    network = convnet()
    return LQFClassifier(network, solver="head", pooling="avg", size=32, device="cpu", dtype="float64").fit(str(folder))
