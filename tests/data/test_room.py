"""Decoding takes no more memory than there is room for, and only files are read."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lqf.data import Preprocess, load_samples, load_unlabelled, open_images
from lqf.data.named import name_images
from lqf.data.room import LEAST, Room
from lqf.errors import LQFError
from lqf.utils.regular import NotRegular, read_regular


def test_no_more_is_taken_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lqf.data.room.available_ram", lambda: 0)
    room, lock, taken, most = Room(), threading.Lock(), 0, 0

    def take(share: int) -> None:
        nonlocal taken, most
        with room.of(share):
            with lock:
                taken += min(share, LEAST)
                most = max(most, taken)
            with lock:
                taken -= min(share, LEAST)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(take, [LEAST // 3, 10 * LEAST, LEAST // 2, 5] * 10))
    assert most <= LEAST
    assert room._taken == 0


def test_room_is_given_back_after_an_error() -> None:
    room = Room()
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), room.of(10**15):
            1 / 0  # noqa: B018
    assert room._taken == 0


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Two good images per class, and what only looks like one."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(2):
            Image.fromarray(np.full((9, 9, 3), 40 * i, np.uint8)).save(tmp_path / name / f"{i}.png")
    os.mkfifo(tmp_path / "a" / "pipe.jpg")
    os.mkfifo(tmp_path / "hidden")
    (tmp_path / "a" / "linked.jpg").symlink_to(tmp_path / "hidden")
    (tmp_path / "a" / "zero.jpg").symlink_to("/dev/zero")
    (tmp_path / "a" / "gone.jpg").symlink_to(tmp_path / "nothing")
    (tmp_path / "a" / "circle.jpg").symlink_to(tmp_path / "a" / "circle.jpg")
    (tmp_path / "hidden").rename(tmp_path / "a" / "hidden")
    (tmp_path / "a" / "linked.jpg").unlink()
    (tmp_path / "a" / "linked.jpg").symlink_to(tmp_path / "a" / "hidden")
    return tmp_path


def test_only_files_are_read_and_the_rest_is_named(odd: Path) -> None:
    opened = open_images(load_samples(odd), Preprocess(8, 8))
    assert dict(opened.skipped) == {
        "a/circle.jpg": "cannot be opened: Too many levels of symbolic links",
        "a/gone.jpg": "cannot be opened: No such file or directory",
        "a/linked.jpg": "is a pipe, not a file",
        "a/pipe.jpg": "is a pipe, not a file",
        "a/zero.jpg": "is a device, not a file",
    }
    named, _ = name_images([odd])
    assert len(open_images(named, Preprocess(8, 8)).skipped) == 5
    with pytest.raises(LQFError, match="is a pipe, not a file"):
        load_unlabelled(str(odd / "a" / "linked.jpg"))


def test_large_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "large.jpg"
    with file.open("wb") as opened:
        opened.truncate(10**12)  # sparse
    with pytest.raises(NotRegular, match="larger than 1 kB"):
        read_regular(file, 1000)
    monkeypatch.setenv("LQF_MAX_PIXELS", "1000")
    images, _ = name_images([file, *_good(tmp_path)])
    assert open_images(images, Preprocess(8, 8)).skipped == ((str(file), "is larger than 8 kB"),)


def _good(folder: Path) -> list[Path]:
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(folder / "good.png")
    return [folder / "good.png"]
