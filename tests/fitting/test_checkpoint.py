"""A checkpoint is whole or the one before; an interrupted fit continues to the same optimum."""

import json
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

from faults import disk_full, interrupt
from fits import FIXED, classifier, data
from lqf import LQFClassifier
from lqf.errors import LQFError
from lqf.fitting import checkpoint
from lqf.fitting.checkpoint import Checkpoint
from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge
from lqf.solvers.schur import SchurComplement
from recorder import Recorder

PROBLEM = {"settings": {"seed": 0}, "labels": [0, 1]}


def kept(path: Path, **options: object) -> Checkpoint:
    return Checkpoint(path / "deep" / "fit.checkpoint", PROBLEM, **options)


# --- the file ---------------------------------------------------------------------------------------------------------


def test_vectors_and_state_come_back_as_they_were(tmp_path: Path) -> None:
    vectors = {"x": torch.randn(5, dtype=torch.float64), "t": torch.randn(2, 3).T}
    kept(tmp_path).save(vectors, {"at": 7, "ridge": {"head": 0.1, "body": 1 / 3}}, force=True)
    state = kept(tmp_path).load()
    loaded = state.vectors
    assert all(torch.equal(loaded[k], vectors[k]) and loaded[k].dtype == vectors[k].dtype for k in vectors)
    assert (state.passes, state.ridge, state.views) == (7, Ridge(0.1, 1 / 3), None)
    assert state.at == {"at": 7, "ridge": {"head": 0.1, "body": 1 / 3}}


def test_without_a_file_there_is_nothing_to_resume(tmp_path: Path) -> None:
    assert kept(tmp_path).load() is None
    assert not kept(tmp_path).path.parent.exists()  # looking for it makes nothing


def test_a_checkpoint_is_written_only_now_and_then_unless_forced(tmp_path: Path) -> None:
    slow, eager = kept(tmp_path, every=1e6), kept(tmp_path, every=0.0)
    slow.save({"x": torch.zeros(1)}, {"at": 1})
    assert not slow.path.exists()
    slow.save({"x": torch.zeros(1)}, {"at": 2}, force=True)
    assert slow.load().passes == 2
    eager.save({"x": torch.zeros(1)}, {"at": 3})
    assert eager.load().passes == 3
    eager.path.unlink()
    assert eager.load() is None


@pytest.mark.parametrize("other", [{"settings": {"seed": 1}, "labels": [0, 1]}, {"labels": [0, 1]}, {}])
def test_another_problem_is_refused(tmp_path: Path, other: dict[str, object]) -> None:
    mine = kept(tmp_path)
    mine.save({"x": torch.zeros(3)}, {"at": 1}, force=True)
    with pytest.raises(LQFError, match="other data or settings"):
        Checkpoint(mine.path, other).load()
    reordered = json.loads(json.dumps(dict(reversed(PROBLEM.items()))))
    assert Checkpoint(mine.path, reordered).load() is not None


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:7], lambda b: b"", lambda b: b"\xff" * len(b)])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    mine = kept(tmp_path)
    mine.save({"x": torch.zeros(3)}, {"at": 1}, force=True)
    mine.path.write_bytes(damage(mine.path.read_bytes()))
    with pytest.raises(LQFError, match=r"is not a readable checkpoint .* delete it"):
        mine.load()


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    mine = kept(tmp_path)
    mine.path.parent.mkdir()
    checkpoint.save_file({"x": torch.zeros(3)}, mine.path)  # safetensors, but no checkpoint
    with pytest.raises(LQFError, match="other data or settings"):
        mine.load()


def test_a_write_that_fails_leaves_the_old_checkpoint_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = kept(tmp_path)
    mine.save({"x": torch.ones(3)}, {"at": 1}, force=True)

    def half(_: object, path: Path, **__: object) -> None:
        path.write_bytes(b"half")
        disk_full()

    monkeypatch.setattr(checkpoint, "save_file", half)
    with pytest.raises(OSError, match="No space left"):
        mine.save({"x": torch.zeros(3)}, {"at": 2}, force=True)
    state = mine.load()
    assert state.vectors["x"].tolist() == [1, 1, 1]
    assert state.passes == 1
    assert list(mine.path.parent.iterdir()) == [mine.path]


# --- fits -------------------------------------------------------------------------------------------------------------

X, Y = data(24)
NEW = data(9, seed=5)[0]


def pcg(**params: object) -> LQFClassifier:
    return classifier(**{"solver": "pcg", "tol": 1e-8, "max_passes": 500, "loo": "none", **FIXED, **params})


def stochastic(solver: str) -> LQFClassifier:
    return classifier(solver=solver, epochs=6, minibatch=5, damping=1.0, **FIXED)


@pytest.mark.parametrize("params", [{}, {"preconditioner": "none"}, {"form": "w0"}, {"body_weight_decay": "auto"}])
def test_an_interrupted_solve_continues_to_the_same_optimum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, params: dict[str, object]
) -> None:
    file = tmp_path / "fit.checkpoint"
    products = interrupt(monkeypatch, SchurComplement, "product", at=0)  # never
    expected = pcg(**params).fit(X, Y)
    whole = len(products)
    assert whole > 5
    interrupt(monkeypatch, SchurComplement, "product", at=4)
    with pytest.raises(KeyboardInterrupt):
        pcg(**params).fit(X, Y, checkpoint=file)
    assert file.exists()
    after = interrupt(monkeypatch, SchurComplement, "product", at=0)
    model = pcg(**params).fit(X, Y, checkpoint=file, resume=True)
    assert model.report_["converged"]
    np.testing.assert_allclose(model.decision_function(NEW), expected.decision_function(NEW), rtol=0, atol=1e-5)
    assert model.report_["body_weight_decay"] == pytest.approx(expected.report_["body_weight_decay"], rel=1e-12)
    assert model.report_["passes"] > len(after)  # those before the interruption are counted


def test_resuming_really_starts_from_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "fit.checkpoint"
    calls = interrupt(monkeypatch, SchurComplement, "product", at=0)
    pcg().fit(X, Y)
    whole = len(calls)
    interrupt(monkeypatch, SchurComplement, "product", at=whole)  # one step before the end
    with pytest.raises(KeyboardInterrupt):
        pcg().fit(X, Y, checkpoint=file)
    calls = interrupt(monkeypatch, SchurComplement, "product", at=0)
    resumed = pcg(tol=1e-6).fit(X, Y, checkpoint=file, resume=True)  # tolerance and passes may be changed
    assert resumed.report_["converged"]
    assert len(calls) <= whole // 4


def test_the_weight_decay_of_the_checkpoint_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a solve with one weight decay is no start of another."""
    file, params = tmp_path / "fit.checkpoint", {"weight_decay": "auto", "body_weight_decay": "auto"}
    expected = pcg(**params).fit(X, Y).report_["body_weight_decay"]
    with monkeypatch.context() as patch:
        interrupt(patch, SchurComplement, "product", at=4)
        with pytest.raises(KeyboardInterrupt):
            pcg(**params).fit(X, Y, checkpoint=file)
    monkeypatch.setattr("lqf.kernels.tangent.RATIOS", (7.0,))  # would choose something else now
    assert pcg(**params).fit(X, Y).report_["body_weight_decay"] != pytest.approx(expected)
    resumed = pcg(**params).fit(X, Y, checkpoint=file, resume=True)
    assert resumed.report_["body_weight_decay"] == pytest.approx(expected)


@pytest.mark.parametrize("change", ["seed", "weight_decay", "data", "labels", "weights", "groups", "backbone"])
def test_a_fit_of_something_else_does_not_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    file = tmp_path / "fit.checkpoint"
    with monkeypatch.context() as patch:
        interrupt(patch, SchurComplement, "product", at=2)
        with pytest.raises(KeyboardInterrupt):
            pcg().fit(X, Y, checkpoint=file)
    model = pcg(**{"seed": {"seed": 1}, "weight_decay": {"weight_decay": 0.3}}.get(change, {}))
    if change == "backbone":
        model.backbone[1].weight.data += 0.1
    x = X + 0.1 if change == "data" else X
    y = (Y + 1) % 3 if change == "labels" else Y
    extra = {"weights": {"sample_weight": np.arange(24) + 1}, "groups": {"groups": np.arange(24) // 2}}.get(change, {})
    with pytest.raises(LQFError, match="other data or settings"):
        model.fit(x, y, **extra, checkpoint=file, resume=True)
    assert file.exists()


def test_without_resume_a_checkpoint_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "fit.checkpoint"
    file.write_text("nonsense")
    assert pcg().fit(X, Y, checkpoint=file).report_["converged"]
    file.write_text("nonsense")
    with pytest.raises(LQFError, match="not a readable checkpoint"):
        pcg().fit(X, Y, checkpoint=file, resume=True)


def test_resume_without_a_checkpoint_begins_at_the_beginning(tmp_path: Path) -> None:
    model = pcg().fit(X, Y, checkpoint=tmp_path / "none", resume=True)
    assert np.array_equal(model.decision_function(NEW), pcg().fit(X, Y).decision_function(NEW))


def test_an_interrupted_kernel_continues_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, dense = tmp_path / "fit.checkpoint", partial(classifier, solver="dense", loo="none")
    monkeypatch.setattr("lqf.solvers.planner.jacobian_bytes", lambda *_: 8 * 24 * 3 * 8)  # a few weights at a time
    save = Checkpoint.save
    monkeypatch.setattr(Checkpoint, "save", lambda self, vectors, state, force=False: save(self, vectors, state, True))
    calls = counted_calls(monkeypatch, "lqf.kernels.gram.add_gram", at=0)
    expected = dense().fit(X, Y)
    whole = len(calls)
    assert whole > 4
    with monkeypatch.context() as patch:
        counted_calls(patch, "lqf.kernels.gram.add_gram", at=whole - 1)
        with pytest.raises(KeyboardInterrupt):
            dense().fit(X, Y, checkpoint=file)
    with monkeypatch.context() as patch:
        other = counted_calls(patch, "lqf.kernels.gram.add_gram", at=0)
        dense().fit(X, Y, checkpoint=tmp_path / "other")
        assert len(other) == whole
    calls = counted_calls(monkeypatch, "lqf.kernels.gram.add_gram", at=0)
    said = Recorder()
    resumed = dense().fit(X, Y, checkpoint=file, resume=True, progress=said)
    assert any("of the kernel" in line for line in said.said)
    assert len(calls) == 2
    assert np.array_equal(resumed.decision_function(NEW), expected.decision_function(NEW))
    with pytest.raises(LQFError, match="other data or settings"):
        dense(seed=1).fit(X, Y, checkpoint=file, resume=True)


def counted_calls(patch: pytest.MonkeyPatch, name: str, at: int) -> list[int]:
    """Calls of a function, the ``at``-th of which is interrupted."""
    module, _, function = name.rpartition(".")
    plain, calls = getattr(import_module(module), function), []

    def counting(*words: object, **more: object) -> object:
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return plain(*words, **more)

    patch.setattr(name, counting)
    return calls


@pytest.mark.parametrize("place", [0.3, 0.6, 0.9, 0.999])
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: float) -> None:
    file = tmp_path / "fit.checkpoint"
    with monkeypatch.context() as patch:
        interrupt(patch, SchurComplement, "product", at=4)
        with pytest.raises(KeyboardInterrupt):
            pcg().fit(X, Y, checkpoint=file)
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 1
    file.write_bytes(content)
    with pytest.raises(LQFError, match=r"not a readable checkpoint|other data or settings"):
        pcg().fit(X, Y, checkpoint=file, resume=True)


@pytest.mark.parametrize("solver", ["sgd", "adam"])
def test_sgd_and_adam_resume_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, solver: str) -> None:
    file = tmp_path / "fit.checkpoint"
    expected = stochastic(solver).fit(X, Y).decision_function(NEW)
    with monkeypatch.context() as patch:
        # five batches per epoch: inside the fourth
        interrupt(patch, QuadraticProblem, "batch_negative_gradient", at=18)
        with pytest.raises(KeyboardInterrupt):
            stochastic(solver).fit(X, Y, checkpoint=file)
    calls = interrupt(monkeypatch, QuadraticProblem, "batch_negative_gradient", at=0)
    resumed = stochastic(solver).fit(X, Y, checkpoint=file, resume=True)
    assert len(calls) == 15
    assert np.array_equal(resumed.decision_function(NEW), expected)
