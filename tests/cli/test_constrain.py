"""`lqf constrain` and `lqf privatise`: a new folder, whole, or a sentence and nothing changed."""

from __future__ import annotations

import csv
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import HEAD, Called, tree

Call = Callable[..., Called]


def manifest(photos: Path, where: Path, *, column: str = "site") -> Path:
    """`photos` as a manifest with a further column, a and b in turn."""
    path = where / f"{photos.name}.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label", column])
        for k, image in enumerate(sorted(photos.rglob("*.png"))):
            writer.writerow([image, image.parent.name, "ab"[k % 2]])
    return path


@pytest.fixture
def fitted(lqf: Call, photos: Path, tmp_path: Path) -> Path:
    """A head of a manifest with a column of sites."""
    assert lqf("fit", manifest(photos / "train", tmp_path), "-o", tmp_path / "fitted", *HEAD).code == 0
    return tmp_path / "fitted"


def test_equal_means_by_a_column_of_the_training_manifest(lqf: Call, fitted: Path, tmp_path: Path) -> None:
    done = lqf("constrain", fitted, "--equal-means", "site", "-o", tmp_path / "fair", "--json")
    assert done.code == 0, done.err
    assert done.json["holds"]
    assert done.json["violation_before"] > 1e-3
    assert done.json["rows"] == 3
    assert done.json["level"] == "exact"
    again = lqf("constrain", fitted, "--equal-means", "site", "-o", tmp_path / "other")
    assert "equal mean outputs of the groups `a`, `b`" in again.out
    assert "Written to" in again.out
    assert lqf("predict", tmp_path / "fair", tmp_path / "train.csv", "--json").code == 0


def test_what_an_older_model_gets_right_on_given_images(lqf: Call, fitted: Path, photos: Path, tmp_path: Path) -> None:
    pytest.importorskip("daqp")
    old = tmp_path / "old"
    assert lqf("fit", photos / "test", "-o", old, *HEAD).code == 0
    done = lqf("constrain", fitted, "--keep-right", old, "--on", photos / "test", "--test", photos / "test", "--json")
    assert done.code == 0, done.err
    assert done.json["compared"]["on"]["negative_flips"] == 0
    assert done.json["compared"]["test"]["n"] == 12
    shown = lqf("constrain", fitted, "--bound", "red<=9")
    assert shown.code == 2  # it was replaced in place, and is no plain fit any more
    assert "changed by constraints" in shown.err


def test_agreement_and_bounds_on_a_manifest_of_other_images(
    lqf: Call, fitted: Path, photos: Path, tmp_path: Path
) -> None:
    pytest.importorskip("daqp")
    on = manifest(photos / "test", tmp_path)
    words = ["--agree", fitted, "--tolerance", "0.5", "--bound", "mean red>=6", "--on", on, "--equal-means", "site"]
    done = lqf("constrain", fitted, *words, "-o", tmp_path / "new", "--json")
    assert done.code in (0, 2), done.err
    if done.code == 2:
        assert "contradict each other" in done.err
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "give a constraint: --equal-means COLUMN"),
        (["--equal-means", "doctor"], "has no column doctor; it has path, label, site"),
        (["--keep-right", "old"], "--keep-right needs --on DATA"),
        (["--bound", "red"], "`red` is no bound"),
        (["--bound", "pink<=3"], "the model has no class `pink`"),
        (["--bound", "mean red=3", "--bound", "mean red>=4"], "contradict each other"),
        (["--equal-means", "site", "--tolerance", "-1"], "`-1` is not a number from 0 up"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_changes(
    lqf: Call, fitted: Path, words: list[str], sentence: str
) -> None:
    before = {p: p.read_bytes() for p in fitted.rglob("*") if p.is_file()}
    done = lqf("constrain", fitted, *words)
    assert done.code == 2
    assert sentence in " ".join(done.err.split())
    assert {p: p.read_bytes() for p in fitted.rglob("*") if p.is_file()} == before


def test_a_private_model_is_written_whole_and_predicts(lqf: Call, run: Path, photos: Path, tmp_path: Path) -> None:
    words = ["--train", photos / "train", "--epsilon", "4", "--delta", "1e-3"]
    done = lqf("privatise", run, *words, "-o", tmp_path / "released", "--json")
    assert done.code == 0, done.err
    assert done.json["epsilon"] == 4
    assert done.json["secure_noise"]
    assert tree(tmp_path / "released") == {"README.md", "model.json", "samples.csv", "weights.safetensors"}
    held = b"".join((tmp_path / "released" / name).read_bytes() for name in ("README.md", "model.json", "samples.csv"))
    for image in (photos / "train").rglob("*.png"):
        assert f"{image.parent.name}/{image.name}".encode() not in held
        assert hashlib.sha256(image.read_bytes()).hexdigest().encode() not in held
    assert str(photos).encode() not in held
    evaluated = lqf("evaluate", tmp_path / "released", photos / "test")
    assert evaluated.code == 0, evaluated.err
    assert lqf("predict", tmp_path / "released", photos / "test").code == 0
    for words in (["audit"], ["report"]):
        refused = lqf(words[0], tmp_path / "released", "-o", tmp_path / "x.html", "--train", photos / "train")
        assert refused.code == 2, refused.err
        assert "released with noise" in " ".join(refused.err.split())


def test_a_budget_that_is_none_changes_nothing(lqf: Call, run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    refused = lqf("privatise", tmp_path / "run", "--epsilon", "-1", "--delta", "1e-3")
    assert refused.code == 2
    assert "epsilon is -1.0" in refused.err
    assert "questions.safetensors" in tree(tmp_path / "run")


def test_a_fit_can_be_private_from_the_start(lqf: Call, photos: Path, tmp_path: Path) -> None:
    words = ["fit", photos / "train", "-o", tmp_path / "run", "--size", "32", "--epsilon", "8", "--delta", "1e-3"]
    done = lqf(*words)
    assert done.code == 0, done.err
    said = " ".join(done.out.split())
    assert "(8, 0.001)-differentially private" in said
    assert "not private nothing that is in the folder" in said
    assert "lqf audit" not in said
    assert not (tmp_path / "run.checkpoint").exists()
    assert tree(tmp_path / "run") == {"README.md", "model.json", "samples.csv", "weights.safetensors"}
    assert lqf("evaluate", tmp_path / "run", photos / "test").code == 0
    for more, sentence in (
        (["--resume", "--overwrite"], "leave out --resume"),
        (["--overwrite", "--solver", "pcg"], "--solver"),
    ):
        refused = lqf(*words, *more)
        assert refused.code == 2
        assert sentence in refused.err
