"""`lqf tune`."""

import shutil
from pathlib import Path

import pytest

from cli.conftest import tree
from lqf import LQFClassifier


def test_it_looks_at_other_strengths_and_changes_nothing(lqf, run, photos):
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    called = lqf("tune", run, "--validation", photos / "test", "--plot", "path.png")
    assert called.code == 0, called.err
    assert "By validation of 12 images (exact" in called.out
    assert max(map(len, called.out.splitlines())) <= 80
    assert Path("path.png").read_bytes().startswith(b"\x89PNG")
    assert before == {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    path = lqf("tune", run, "--json").json["path"]
    assert path["by"] == "leave-one-out"
    assert len(path["grid"]) == 9
    assert path["best"]["loss"] <= path["current"]["loss"]


def test_the_chosen_model_goes_to_another_folder_or_in_place(lqf, run):
    called = lqf("tune", run, "--choose", "-o", "tuned", "--json")
    assert called.code == 0, called.err
    best = called.json["path"]["best"]
    model = LQFClassifier.load("tuned", device="cpu")
    assert model.report_["weight_decay"] == pytest.approx(best["weight_decay"])
    shutil.copytree(run, "own")
    called = lqf("tune", "own", "--at", 0.5)
    assert called.code == 0, called.err
    assert "own has weight decay 0.5" in called.out
    assert LQFClassifier.load("own", device="cpu").report_["weight_decay"] == pytest.approx(0.5)
    assert tree(Path("own")) == tree(run)


def test_bad_input_is_a_sentence_and_nothing_is_written(lqf, run):
    for words, said in (
        (["--at", "-1"], "not a number above zero"),
        (["--at", "0.1", "0.2"], "one weight decay"),
        (["--at", "0.1", "0.2", "0.3"], "--at takes the weight decays of head and body"),
        (["-o", "there"], "no change; add --choose"),
        (["--choose", "-o", run], "exists"),
        (["--validation", "nowhere"], "nowhere"),
        (["--plot", "path.txt"], "does not end in"),
        (["--choose", "--at", "1"], "not allowed with"),
        (["--factors", "x"], "not a number above zero"),
    ):
        called = lqf("tune", run, *words)
        assert called.code == 2, words
        assert said in called.err, words
        assert called.out == ""
    assert not list(Path.cwd().iterdir())
