"""Whatever is wrong: one sentence on stderr, exit code 2, nothing on stdout, nothing on the disk."""

import os
import shutil
from pathlib import Path

import pytest

from cli.conftest import HEAD, TINY, paint, tree
from faults import forbid_listing


def _empty(photos: Path) -> None:
    Path("train").mkdir()


def _one_class(photos: Path) -> None:
    shutil.copytree(photos / "train" / "red", "train/red")


def _no_readable_image(photos: Path) -> None:
    for name in ("a", "b"):
        Path("train", name).mkdir(parents=True)
        for i in range(2):
            Path("train", name, f"{i}.jpg").write_text("nothing")


def _loose(photos: Path) -> None:
    shutil.copytree(photos / "train" / "red", "train")


def _parts(photos: Path) -> None:
    shutil.copytree(photos, "train")


def _file(photos: Path) -> None:
    shutil.copy(photos / "train" / "red" / "0.png", "train")


BAD_FOLDERS = {
    "there is none": (lambda photos: None, "is not there"),
    "empty": (_empty, "it is empty"),
    "one class": (_one_class, "one class (`red`)"),
    "no image that can be read": (_no_readable_image, "4 of 4 images"),
    "images outside any class": (_loose, "outside any class folder"),
    "train and test": (_parts, "run `lqf fit train/train -o RUN` (in Python: fit), then `lqf evaluate RUN train/test`"),
    "a file": (_file, "is a file"),
}


@pytest.mark.parametrize("name", BAD_FOLDERS)
def test_bad_training_folder(lqf, photos, name):
    make, words = BAD_FOLDERS[name]
    make(photos)
    before = tree(Path())
    called = lqf("fit", "train", "-o", "run", *HEAD)
    assert called.code == 2
    assert called.out == ""
    assert words in called.err.splitlines()[-1]
    assert called.err.splitlines()[-1].startswith("lqf: ")
    assert tree(Path()) == before


def test_unreadable_folder(lqf, photos, monkeypatch):
    forbid_listing(monkeypatch, "red")
    called = lqf("fit", photos / "train", "-o", "run", *HEAD)
    assert called.code == 2
    assert "red` cannot be listed: Permission denied" in called.err
    assert not any(os.listdir())


BAD_OPTIONS = {
    "--solver magic": "invalid choice: 'magic'",
    "--backbone vgg": "there is no backbone `vgg`",
    "--weights nowhere.safetensors": "there is no weights file `nowhere.safetensors`",
    "--weight-decay much": "`much` is neither `auto` nor a number",
    "--memory much": "`much` is not a number of gigabytes",
    "--memory 4 --device cpu": "--memory limits the memory of a GPU, and this runs on a CPU; leave it out",
    "--weight-decay -1": "--weight-decay is -1.0; give `auto` or a positive number",
    "--weight-decay nan": "--weight-decay is nan; give `auto` or a positive number",
    "--size 0": "size is 0",
    "--limit-per-class 0": "--limit-per-class is 0; give a whole number of images",
    "--batch-size 0": "`0` is not a whole number from 1 up",
    "--device warp": "there is no device `warp`",
    "--augment crop --solver pcg": "needs solver `sgd` or `adam`",
    "--linearize attic --solver pcg": "attic",
    "--epochs 0": "epochs is 0",
    "--seed 99999999999999999999": "it must be a whole number from 0 to 4294967295",
    "--seed -1": "it must be a whole number from 0 to 4294967295",
    "--colour": "unrecognized arguments: --colour",
}


@pytest.mark.parametrize("words", BAD_OPTIONS)
def test_bad_option(lqf, photos, words):
    called = lqf("fit", photos / "train", "-o", "run", *TINY, *words.split())
    assert called.code == 2
    assert called.out == ""
    assert BAD_OPTIONS[words] in called.err
    assert tree(Path()) == set()


def test_the_root_is_no_output(lqf, photos):
    called = lqf("fit", photos / "train", "-o", "/", "--overwrite", *HEAD)
    assert called.code == 2
    assert "`/` cannot be replaced; give the name of an output in it" in called.err


def test_missing_weights(lqf, photos):
    called = lqf("fit", photos / "train", "-o", "run", "--backbone", "resnet50")
    assert called.code == 2
    assert "needs a weights file" in called.err
    assert tree(Path()) == set()


def test_bad_output(lqf, photos):
    Path("file").write_text("")
    for output, words in {"file/run": "`file/run` cannot be written", "file": "`file` exists"}.items():
        called = lqf("fit", photos / "train", "-o", output, *HEAD)
        assert called.code == 2
        assert words in called.err
    shutil.copytree(photos / "train", "train")
    called = lqf("fit", "train", "-o", "train/run", *HEAD)
    assert called.code == 2
    assert "inside the training folder" in called.err


def test_errors_are_json_objects_on_request(lqf, photos):
    for words in (["fit", "nowhere", "-o", "run"], ["fit"], ["frobnicate"], [], ["evaluate", "nowhere", "there"]):
        called = lqf(*words, "--json")
        assert called.code == 2
        assert set(called.json) == {"error"}
        assert f"lqf: {called.json['error']}" in called.err


def test_unknown_classes_are_left_out_or_refused(lqf, run):
    paint(Path("test"), 2, seed=2, classes=("blue", "green", "yellow"))
    called = lqf("evaluate", run, "test", "--json")
    assert called.code == 0
    assert called.json["n"] == 4
    assert "`test`: left out 2 images of classes the model does not know: `yellow` (2 images);" in called.err
    paint(Path("others"), 2, seed=2, classes=("yellow", "white"))  # none that it knows
    for test, option in (("test", ["--strict"]), ("others", [])):
        called = lqf("evaluate", run, test, *option)
        assert called.code == 2
        assert called.out == ""
        assert "`yellow` (2 images)" in called.err


def test_options_are_named_as_they_are_typed(lqf):
    paint(Path("train"), 2, seed=2)
    shutil.copy(Path("train/red/0.png"), Path("train/loose.png"))
    called = lqf("fit", "train", "-o", "run", *HEAD, "--strict")
    assert called.code == 2
    assert called.err.rstrip().endswith("move or remove them, or leave out --strict")
    called = lqf("adapt", "train", "-o", "w.safetensors", *TINY, "--epochs", 0)
    assert called.code == 2
    assert "got --epochs 0, --batch-size 64, --learning-rate 0.001" in called.err


def test_damaged_and_foreign_models_are_refused(lqf, run, photos):
    shutil.copytree(run, "damaged")
    weights = Path("damaged/weights.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    Path("foreign").mkdir()
    Path("foreign/model.json").write_text("{}")
    for folder, words in {
        "damaged": "is damaged",
        "foreign": "not written by lqf",
        "nowhere": "not a fitted model",
    }.items():
        for words_of_command in (["evaluate", folder, photos / "test"], ["predict", folder, photos / "test"]):
            called = lqf(*words_of_command)
            assert called.code == 2
            assert words in called.err


def test_a_fault_of_ours_is_one_sentence_and_a_traceback_on_request(lqf, photos, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr("lqf.estimator.LQFClassifier.fit", broken)
    called = lqf("fit", photos / "train", "-o", "run", *HEAD)
    assert called.code == 1
    assert called.err == "lqf: stopped by ZeroDivisionError: by nought; LQF_DEBUG=1 shows where\n"
    monkeypatch.setenv("LQF_DEBUG", "1")
    called = lqf("fit", photos / "train", "-o", "run", *HEAD, "--json")
    assert "Traceback" in called.err
    assert called.json == {"error": "stopped by ZeroDivisionError: by nought"}
