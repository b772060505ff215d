"""A saved stack: every member comes back, and damage in one of them is found."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from faults import disk_full
from fits import classifier, convnet
from lqf import LQFClassifier
from lqf.errors import LQFError
from lqf.fitting import Stack
from lqf.settings import Setup
from refitted_stacks import NEW, N, X, fitted_members, stack_of

FILES = {
    "README.md",
    "model.json",
    "weights.safetensors",
    "samples.csv",
    "rungs.safetensors",
    "member1",
    "member2",
    "member3",
}
ONE = {"model.json", "weights.safetensors", "samples.csv"}


@pytest.fixture(scope="module")
def model() -> LQFClassifier:
    """As a climb leaves it: the stack alone knows what it was set up with."""
    groups = [f"g{i // 6 * 3 + i % 3}" for i in range(N)]
    fitted = [m.fitted_ for m in fitted_members(np.linspace(0.1, 2, N), groups)]
    model = classifier(backbone=convnet(), size=8, squash=True)
    stack = stack_of([replace(m, setup=Setup()) for m in fitted])
    model._adopt(replace(stack, setup=Setup(backbone=model.backbone, size=8, squash=True, device="cpu")))
    return model


@pytest.fixture
def run(model: LQFClassifier, tmp_path: Path) -> Path:
    model.save(tmp_path / "run")
    return tmp_path / "run"


def load(run: Path) -> LQFClassifier:
    return LQFClassifier.load(run, backbone=convnet(), device="cpu")


def test_predictions_are_the_same_bit_for_bit(model: LQFClassifier, run: Path) -> None:
    loaded = load(run)
    for name in ("decision_function", "predict_proba", "predict"):
        np.testing.assert_array_equal(getattr(loaded, name)(NEW), getattr(model, name)(NEW))
    assert loaded.report_ == model.report_
    assert {p.name for p in run.iterdir()} == FILES
    assert {p.name for p in (run / "member2").iterdir()} == {*ONE, "questions.safetensors"}


def test_all_that_a_stack_is_comes_back(model: LQFClassifier, run: Path) -> None:
    before, after = model.fitted_, load(run).fitted_
    assert isinstance(before, Stack)
    assert isinstance(after, Stack)
    for name in ("weights", "names", "shares", "beta", "classes", "settings", "report"):
        assert getattr(after, name) == getattr(before, name)
    assert [m.preprocess for m in after.members] == [m.preprocess for m in before.members]
    assert (after.train.ids, after.train.groups, after.train.hashes) == (
        before.train.ids,
        before.train.groups,
        before.train.hashes,
    )
    assert np.array_equal(after.train.weights, before.train.weights)
    assert after.loo is not None
    assert before.loo is not None
    assert torch.equal(after.loo.outputs, before.loo.outputs)
    assert list(after.tried) == ["rung 0", "rung 1, é"]
    assert all(torch.equal(after.tried[name], before.tried[name]) for name in before.tried)


def test_the_setup_is_that_of_the_fit_and_not_of_a_member(run: Path) -> None:
    params = load(run).get_params()
    assert (params["size"], params["squash"]) == (8, True)


def test_a_loaded_stack_is_analysed_as_the_one_that_was_saved(model: LQFClassifier, run: Path) -> None:
    expected = model.analyse(X).influence(NEW).effects
    torch.testing.assert_close(load(run).analyse(X).influence(NEW).effects, expected, rtol=1e-9, atol=1e-12)


def test_a_stack_without_leave_one_out(model: LQFClassifier, tmp_path: Path) -> None:
    other = classifier(backbone=convnet(), size=8)
    other._adopt(replace(model.fitted_, loo=None, tried={}))
    other.save(tmp_path / "run")
    loaded = load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.decision_function(NEW), model.decision_function(NEW))
    with pytest.raises(LQFError, match="leave-one-out is not known"):
        loaded.leave_one_out()
    assert not loaded.fitted_.tried


def flip_a_byte(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 1
    path.write_bytes(raw)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a member's weights": (lambda run: flip_a_byte(run / "member2" / "weights.safetensors"), "`weights.safetensors`"),
    "a member's model.json": (lambda run: flip_a_byte(run / "member3" / "model.json"), "`member3/model.json`"),
    "a member that is gone": (lambda run: shutil.rmtree(run / "member1"), "`member1/model.json`"),
    "a member's weights that are gone": (lambda run: os.remove(run / "member1" / "weights.safetensors"), "is missing"),
    "a member's samples": (lambda run: flip_a_byte(run / "member1" / "samples.csv"), "`samples.csv`"),
    "out-of-sample outputs": (lambda run: flip_a_byte(run / "weights.safetensors"), "`weights.safetensors`"),
    "outputs of rungs": (lambda run: flip_a_byte(run / "rungs.safetensors"), "`rungs.safetensors`"),
    "another weight": (lambda run: edit(run / "model.json", '"weight": 0.45', '"weight": 0.5'), "`model.json`"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found(run: Path, name: str) -> None:
    damage, words = DAMAGE[name]
    damage(run)
    with pytest.raises(LQFError, match="damaged") as error:
        load(run)
    assert words in str(error.value)


def test_a_member_of_another_stack_is_damage(run: Path) -> None:
    """A whole model that is not the one that was saved."""
    shutil.rmtree(run / "member1")
    shutil.copytree(run / "member2", run / "member1")
    with pytest.raises(LQFError, match=r"damaged: `member1/model\.json`"):
        load(run)


@pytest.mark.parametrize("step", ["storage.write.save_file", "storage.write.dump_json"])
def test_a_write_that_fails_leaves_the_old_model(
    model: LQFClassifier, run: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before = json.loads((run / "model.json").read_text())
    with monkeypatch.context() as patch:
        patch.setattr(f"lqf.{step}", disk_full)
        with pytest.raises(OSError, match="No space left"):
            model.save(run, overwrite=True)
    assert json.loads((run / "model.json").read_text()) == before
    assert [p.name for p in run.parent.iterdir()] == ["run"]
    np.testing.assert_array_equal(load(run).predict(NEW), model.predict(NEW))
