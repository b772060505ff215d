"""`lqf add` and `lqf forget`: in place or elsewhere, whole or not at all."""

import hashlib
import json
import os
import random
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from cli.conftest import HEAD, paint, tree
from lqf import LQFClassifier
from lqf.cli import main
from lqf.utils.text import percent


@pytest.fixture
def own(lqf, photos):
    """A folder of one's own, with a model `run` of `train`."""
    shutil.copytree(photos / "train", "train")
    assert lqf("fit", "train", "-o", "run", *HEAD, "-q").code == 0
    return lqf


def scores(run: str, images: Path) -> np.ndarray:
    return LQFClassifier.load(run, device="cpu", verbose=0).decision_function(images)


def test_forget_in_place_with_a_certificate(own, photos):
    Path("run.checkpoint").write_text("hashes")
    Path(".run.old.abcdefgh").mkdir()
    called = own("forget", "run", "--ids", "red/0.png", "blue/3.png", "--verify", "--certificate", "c.json", "--json")
    assert called.code == 0, called.err
    result = called.json
    assert (result["forgotten"], result["remaining"], result["strict"]) == (2, 16, False)
    assert result["largest_difference_to_refit"] <= 1e-5 * result["largest_output_of_refit"]
    assert hashlib.sha256(b"red/0.png").hexdigest() in result["ids_sha256"]
    assert "not yet a deletion" in result["statement"]
    assert result["erased"] == ["run.checkpoint"]  # what an earlier command left hidden goes when a command begins
    assert json.loads(Path("c.json").read_text())["bound"] == result["bound"]
    assert {p.name for p in Path().iterdir()} == {"train", "run", "c.json"}
    assert "red/0.png" not in Path("run/samples.csv").read_text()


def test_forget_elsewhere_says_who_still_knows_them(own, photos):
    before = tree(Path("run"))
    called = own("forget", "run", "--where", "label=red", "-o", "new")
    assert called.code == 2  # all of a class
    called = own("forget", "run", "--ids", "red/0.png", "-o", "new")
    assert called.code == 0, called.err
    assert "`run` is as it was and knows them." in called.out
    assert "Still depends on them:\n  ridge strengths" in called.out
    report = LQFClassifier.load("new", device="cpu", verbose=0).report_
    assert f"  expected error on new images  {percent(report['loo_error'])} ± " in called.out
    assert tree(Path("run")) == before
    assert own("forget", "run", "--ids", "red/1.png", "-o", "new").code == 2  # it is there
    assert max(map(len, called.out.splitlines())) <= 80


def test_add_and_a_new_class(own, photos):
    paint(Path("more"), 2, seed=5, classes=("blue", "mauve"))
    (Path("more") / "blue").rename(Path("more") / "again")
    called = own("add", "run", "more", "--json")
    assert called.code == 0, called.err
    assert called.json["new_classes"] == ["again", "mauve"]
    assert called.json["n"] == 22
    model = LQFClassifier.load("run", device="cpu", verbose=0)
    assert list(model.classes_) == ["again", "blue", "green", "mauve", "red"]
    assert own("audit", "run", "--json").json["n"] == 22
    assert own("report", "run", "-o", "report.html").code == 0
    called = own("forget", "run", "--ids", "more/0.png")
    assert "is not the id of a training sample" in called.err
    called = own("add", "run", "more")
    assert called.code == 2
    assert "already in the training set" in called.err
    before = tree(Path("run"))
    shutil.copytree(
        "train", "again", copy_function=lambda a, b: shutil.copy(a, Path(b).with_stem(f"new{Path(b).stem}"))
    )
    called = own("add", "run", "again")
    assert called.code == 2
    assert "already in the training set under another name (" in called.err
    assert "`blue/new0.png` is `blue/0.png`" in called.err
    assert tree(Path("run")) == before


BAD = {
    "unknown id": (["--ids", "nobody.png"], "`nobody.png` is not the id of a training sample"),
    "a whole class": (["--where", "label=red"], "these are all samples of `red`"),
    "two ways": (["--ids", "red/0.png", "--group", "a"], "--ids and --group were given"),
    "no way": ([], "nothing was said"),
    "no value": (["--where", "red"], "`red` is not COLUMN=VALUE"),
    "strict and verify": (["--ids", "red/0.png", "--strict", "--verify"], "--strict fits everything again"),
    "retrain": (["--ids", "red/0.png", "--retrain"], "this model has none"),
    "certificate": (["--ids", "red/0.png", "--certificate", "run/c.json"], "would lie in the model's folder"),
}


def test_bad_input_is_a_sentence_and_nothing_is_written(own):
    before = {p: p.stat().st_mtime_ns for p in Path().rglob("*") if p.is_file()}
    for words, sentence in BAD.values():
        called = own("forget", "run", *words)
        assert called.code == 2
        assert sentence in called.err
    assert own("add", "run", "train").code == 2
    assert {p: p.stat().st_mtime_ns for p in Path().rglob("*") if p.is_file()} == before


def killed(words: list[str], at: int) -> int:
    """A process of its own that is killed at its call number ``at`` of a function of lqf; how many it made."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        calls, null = 0, os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)

        def count(frame, event, _):
            nonlocal calls
            if event == "call" and "/lqf/" in frame.f_code.co_filename:
                calls += 1
                if calls == at:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(count)
        main(words)
        sys.setprofile(None)
        os.write(writer, str(calls).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        return int(pipe.read() or 0)


@pytest.mark.parametrize("command", ["forget", "add"])
def test_a_kill_leaves_the_old_or_the_new_model(own, photos, command):
    paint(Path("more"), 1, seed=5)
    for image in Path("more").glob("*/*"):
        image.rename(image.with_stem("other"))
    words = [command, "run", *(["--ids", "red/0.png"] if command == "forget" else ["more"]), "-q"]
    shutil.copytree("run", "kept")
    old = scores("run", photos / "test")
    total = killed(words, -1)
    new = scores("run", photos / "test")
    assert total > 100
    assert not np.array_equal(old, new)
    rng = random.Random(0)
    for at in [*(rng.randrange(1, total) for _ in range(2)), *(total - rng.randrange(1, 60) for _ in range(4))]:
        shutil.rmtree("run")
        shutil.copytree("kept", "run")
        assert killed(words, at) == 0
        found = scores("run", photos / "test")
        assert np.array_equal(found, old) or np.array_equal(found, new)
