"""Damaged images are skipped and named; damaged model folders are refused in a sentence; nothing hangs."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from damage import images, models
from fits import classifier, data, network
from forked import forked
from lqf import LQFClassifier
from lqf.data import Preprocess, open_images
from lqf.data.decode import Unreadable, to_image
from lqf.data.named import name_images
from lqf.errors import LQFError

X, Y = data(12)
SLOW = 20
"""Seconds that no damaged file may take."""


@contextmanager
def within(seconds: int, what: str) -> Iterator[None]:
    """A block that hangs is an error."""

    def stop(*_: object) -> None:
        raise AssertionError(f"hangs: {what}")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def check_images(n: int, count: Callable[..., None]) -> None:
    for kind, content in images(n):
        try:
            with within(SLOW, kind):
                to_image(content, at_least=32)
            count(f"damaged images: {kind}", "decoded")
        except Unreadable:
            count(f"damaged images: {kind}", "skipped")


def test_some_damaged_images(count: Callable[..., None]) -> None:
    check_images(40, count)


@pytest.mark.faults
def test_300_damaged_images(tmp_path: Path, world: Path, place: Callable[[], Path], count: Callable[..., None]) -> None:
    check_images(300, count)
    for i, (_, content) in enumerate(images(300)):
        (tmp_path / f"{i:03}\x1b[31m.jpg").write_bytes(content)
    began = time.monotonic()
    opened = open_images(name_images([tmp_path])[0], Preprocess(32, 32))
    assert len(opened) + len(opened.skipped) == 300
    assert time.monotonic() - began < 100
    ended = forked(["predict", "run", str(tmp_path)], place()).check(1)
    assert "\x1b[31m" not in ended.text
    assert "could not be read" in ended.text


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "run"
    classifier(solver="dense").fit(X, Y).save(path)
    return path


def check_models(n: int, good: Path, tmp_path: Path, count: Callable[..., None]) -> None:
    for kind, folder in models(n, good, tmp_path):
        try:
            with within(SLOW, f"{kind} {folder}"):
                model = LQFClassifier.load(folder, backbone=network(), verbose=0)
                outputs = model.decision_function(X)
                model.leave_one_out()
            assert np.isfinite(outputs).all()
            count(f"damaged models: {kind}", "harmless")
        except LQFError:
            count(f"damaged models: {kind}", "refused")


def test_some_damaged_models(good: Path, tmp_path: Path, count: Callable[..., None]) -> None:
    check_models(56, good, tmp_path, count)


@pytest.mark.faults
def test_300_damaged_models(good: Path, tmp_path: Path, count: Callable[..., None]) -> None:
    check_models(300, good, tmp_path, count)
    assert torch.is_grad_enabled()
