"""Ctrl-C, SIGTERM and kill -9 during a solve: what was checkpointed is kept, and --resume reaches the same optimum."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from cli.conftest import SOLVE
from faults import ctrl_c, interrupt
from forked import forked
from lqf.cli import main
from lqf.fitting.checkpoint import Checkpoint
from lqf.solvers.schur import SchurComplement


def _scores(lqf, photos) -> list[float]:
    entries = lqf("predict", "run", photos / "test", "--json").json["predictions"]
    return [score for e in entries for score in e["scores"].values()]


@pytest.mark.parametrize("preconditioner", ["kfac", "none"])
def test_resumed_equals_uninterrupted(lqf, photos, monkeypatch, preconditioner):
    command = ["fit", photos / "train", "-o", "run", *SOLVE, "--preconditioner", preconditioner]
    assert lqf(*command).code == 0
    expected = _scores(lqf, photos)
    with monkeypatch.context() as patch:
        interrupt(patch, SchurComplement, "product", at=4)
        called = lqf(*command, "--overwrite")
    assert called.code == 130
    assert called.out == ""
    assert "kept in `run.checkpoint`" in called.err
    assert called.err.rstrip().endswith("--overwrite --resume")  # the command to type
    assert _scores(lqf, photos) == expected  # the old model is still there
    called = lqf(*command, "--overwrite", "--resume", "--json")
    assert called.code == 0, called.err
    assert "resuming" in called.err
    assert called.json["converged"]
    assert _scores(lqf, photos) == pytest.approx(expected, abs=15 * 1e-4)
    assert not Path("run.checkpoint").exists()


def test_a_checkpoint_of_another_problem_is_refused_and_without_resume_replaced(lqf, photos, monkeypatch):
    command = ["fit", photos / "train", "-o", "run", *SOLVE, "--preconditioner", "none"]
    with monkeypatch.context() as patch:
        interrupt(patch, SchurComplement, "product", at=3)
        assert lqf(*command, "--json").json["error"].startswith("interrupted; what was solved so far is kept")
    called = lqf(*command, "--resume", "--seed", 7)
    assert called.code == 2
    assert "other data or settings" in called.err
    assert Path("run.checkpoint").exists()
    called = lqf(*command)
    assert called.code == 0
    assert "`run.checkpoint` of an interrupted fit is being replaced" in called.err
    assert not Path("run.checkpoint").exists()


def test_interrupted_before_the_first_checkpoint(lqf, photos, monkeypatch):
    monkeypatch.setattr("lqf.fitting.encoder.Encoder.features", ctrl_c)
    called = lqf("fit", photos / "train", "-o", "run", *SOLVE, "--resume")
    assert called.code == 130
    assert "no checkpoint `run.checkpoint`" in called.err
    assert "interrupted before the first checkpoint" in called.err
    assert not any(Path().iterdir())


def dying(number: int, words: list[str]) -> int:
    """`lqf` in a process that gets a signal after its third checkpoint."""
    save, saves = Checkpoint.save, []

    def save_and_die(self, vectors, state, force=False):
        save(self, vectors, state, force=True)
        saves.append(1)
        if len(saves) == 3:
            os.kill(os.getpid(), number)

    Checkpoint.save = save_and_die
    return main(words)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_continues(lqf, photos, number):
    fit = ["fit", str(photos / "train"), "-o", "run", *SOLVE, "--json"]
    killed = forked(partial(dying, number, fit), Path())
    assert killed.code == (-9 if number == signal.SIGKILL else 143), killed.text
    assert {path.name for path in Path().iterdir()} == {"run.checkpoint"}
    called = lqf(*fit, "--resume")
    assert called.code == 0, called.err
    assert "resuming" in called.err
    assert called.json["converged"]
    assert {path.name for path in Path().iterdir()} == {"run"}
