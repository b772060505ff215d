"""`lqf export RUN -o FILE`."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_a_file_is_written(lqf, run: Path, photos: Path) -> None:
    done = lqf("export", run, "-o", "model.pt2", "--check", photos / "test" / "red", "--json")
    assert done.code == 0
    assert done.json["difference"] < 1e-5
    assert done.json["images"] == 4
    assert done.json["inputs"] == {"pictures": "uint8 (batch, 3, height, width), RGB, upright, any size"}
    assert Path("model.pt2").stat().st_size == done.json["bytes"]
    again = lqf("export", run, "-o", "model.pt2")
    assert again.code == 2
    assert "model.pt2` exists" in again.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-o", "model.h5"], "does not end in .onnx or .pt2"),
        (["-o", "."], "is a folder; give the name of a file"),
        (["-o", "x.pt2", "--check", "nowhere"], "nowhere"),
    ],
)
def test_bad_input(lqf, run: Path, words: list[str], sentence: str) -> None:
    done = lqf("export", run, *words)
    assert done.code == 2
    assert sentence in done.err
    assert not [*Path().iterdir()]
