"""`lqf fit` as a climb: effort, time limit, a complete model after every rung, and climbing on."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path

import pytest

from cli.conftest import TINY, Called
from faults import ctrl_c
from finetuned_models import short
from forked import forked
from lqf.cli import main
from lqf.cli.fit_summary import _choices, _rungs
from lqf.fitting.rungs.linear import LinearRung
from lqf.fitting.rungs.pace import Pace
from lqf.utils.text import WIDTH
from stacks import kept_head, left_out, rung


@pytest.fixture(autouse=True, scope="module")
def _few_epochs() -> Iterator[None]:
    """A fine-tuning is a rung like any other here."""
    with short(6):
        yield


@dataclass(frozen=True)
class Standard:
    """A climb of standard effort: its folder, and what was said."""

    run: Path
    called: Called


CLIMB = [*TINY, "--linearize", "final", "--pooling", "avg"]


@pytest.fixture(scope="module")
def standard(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Standard:
    """One climb of standard effort; tests use copies."""
    folder, out, err = tmp_path_factory.mktemp("standard"), StringIO(), StringIO()
    with chdir(folder), redirect_stdout(out), redirect_stderr(err):
        code = main(["fit", str(photos / "train"), "-o", "run", *CLIMB, "--effort", "standard"])
    return Standard(folder / "run", Called(code, out.getvalue(), err.getvalue()))


def rungs(run: str = "run") -> dict[str, dict[str, object]]:
    return {r["name"]: r for r in json.loads(Path(run, "model.json").read_text())["report"]["rungs"]}


def labels(lqf, photos) -> list[str]:
    return [e["label"] for e in lqf("predict", "run", photos / "test", "--json").json["predictions"]]


def test_the_plan_comes_first_and_the_table_last(standard):
    called = standard.called
    assert called.code == 0, called.err
    plan = called.err.splitlines()
    assert plan[0] == "Plan (effort standard):"
    assert plan[1].split() == ["head", "about", "1", "s"]
    assert max(len(line) for line in called.out.splitlines() if not line.startswith("  lqf fit ")) <= 80
    table = called.out.split("tried  ")[1].split("\n\n")[0].splitlines()[1:]
    assert [line[:22].strip() for line in table] == [
        "head",
        "head, mirror images",
        "head, 8 views",
        "LQF",
        "fine-tuned",
        "stack",
    ]
    assert "expected error on new images" in called.out
    assert "--effort best --resume" in called.out.split("Further up: ")[1].split("Next:")[0]


def test_quick_is_heads_alone(lqf, photos):
    result = lqf("fit", photos / "train", "-o", "run", *CLIMB, "--effort", "quick", "--json").json
    assert {r["name"]: r["solver"] for r in result["rungs"] if r["seconds"] is not None} == {
        "head": "head",
        "head, mirror images": "head",
        "head, 8 views": "head",
    }
    assert result["next_rung"]["effort"] == "standard"


def test_interrupted_the_last_model_stands_and_resume_goes_on_from_it(lqf, photos, standard, monkeypatch):
    command = ["fit", photos / "train", "-o", "run", *CLIMB, "--effort", "standard"]
    shutil.copytree(standard.run, "run")
    expected, whole = labels(lqf, photos), rungs()
    with monkeypatch.context() as patch:
        patch.setattr(LinearRung, "attempt", ctrl_c)
        called = lqf(*command, "--overwrite")
    assert called.code == 130
    assert "`run` holds the best model so far (head" in called.err
    assert called.err.rstrip().endswith("--effort standard --resume")
    assert rungs()["LQF"]["why"] == "not yet"
    assert len(labels(lqf, photos)) == 12
    called = lqf(*command, "--resume")
    assert called.code == 0, called.err
    assert labels(lqf, photos) == expected
    same = ("error", "loss", "gain", "kept", "why")
    assert {n: [r[k] for k in same] for n, r in rungs().items()} == {
        n: [pytest.approx(r[k]) if isinstance(r[k], float) else r[k] for k in same] for n, r in whole.items()
    }


def killed(train: Path) -> None:
    """A climb in a process that is killed in its second rung."""
    LinearRung.attempt = lambda self, ground: os.kill(os.getpid(), signal.SIGKILL)
    main(["fit", str(train), "-o", "run", *CLIMB, "--effort", "standard"])


def test_killed_the_last_model_stands(lqf, photos):
    assert forked(partial(killed, photos / "train"), Path()).code == -signal.SIGKILL
    assert len(labels(lqf, photos)) == 12
    assert next(name for name, r in rungs().items() if r["kept"]) == "head"
    assert {p.name for p in Path().iterdir()} == {"run"}


def test_a_finished_model_is_climbed_on_from(lqf, photos):
    command = ["fit", photos / "train", "-o", "run", *CLIMB]
    assert lqf(*command, "--effort", "quick").code == 0
    before = rungs()
    called = lqf(*command, "--effort", "standard", "--resume")
    assert called.code == 0, called.err
    after = rungs()
    assert after["LQF"]["seconds"] is not None
    assert after["head"] == before["head"]
    called = lqf(*command, "--effort", "standard", "--resume", "--json")
    assert called.code == 0, called.err
    assert "all that effort standard has was tried" in called.err
    assert rungs() == after


def test_resuming_needs_no_option_that_the_fit_did_not_need(lqf, photos):
    """The default network and its weights: what `lqf fit` proposes for the next rung is typed as it is."""
    command = ["fit", photos / "train", "-o", "run", "--size", 32, "--effort", "quick", "--linearize", "final"]
    assert lqf(*command, "--limit-per-class", 2, "--device", "cpu").code == 0
    before = rungs()
    called = lqf(*command, "--limit-per-class", 2, "--device", "cpu", "--resume")
    assert called.code == 0, called.err
    assert rungs() == before


def test_another_problem_is_not_climbed_on(lqf, photos):
    assert lqf("fit", photos / "train", "-o", "run", *CLIMB, "--effort", "quick").code == 0
    called = lqf("fit", photos / "test", "-o", "run", *CLIMB, "--effort", "best", "--resume")
    assert called.code == 2
    assert "other images or labels" in called.err
    called = lqf("fit", photos / "train", "-o", "run", *CLIMB, "--effort", "best", "--resume", "--seed", 7)
    assert called.code == 2
    assert "other settings (seed)" in called.err


def test_a_short_time_takes_a_part_of_the_images_and_resume_begins_again(lqf, photos, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Pace, "measure", classmethod(lambda cls, *args: cls(2.0, 1e12, "cpu")))
        called = lqf("fit", photos / "train", "-o", "run", *CLIMB, "--time-limit", "40s")
    assert called.code == 0, called.err
    assert "(of 18: the time limit) of 3 classes" in called.out
    assert "a longer --time-limit uses all" in called.err
    called = lqf("fit", photos / "train", "-o", "run", *CLIMB, "--effort", "quick", "--resume", "--json")
    assert called.code == 0, called.err
    assert "beginning again" in called.err
    assert called.json["n"] == 18


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--time-limit soon", "give a time like 90, 20s, 10m or 1h30m"),
        ("--time-limit -5", "give a time like 90, 20s, 10m or 1h30m"),
        ("--effort much", "choose from 'auto', 'quick', 'standard', 'best'"),
        ("--effort best --solver head", "these settings name one model (--solver head)"),
        ("--time-limit 10m --relinearize 1", "these settings name one model (--relinearize 1)"),
        ("--views crops2", "crops8 (any number from 3 on)"),
    ],
)
def test_wrong_options_are_a_sentence(lqf, photos, options, words):
    called = lqf("fit", photos / "train", "-o", "run", *CLIMB, *options.split())
    assert called.code == 2
    assert words in called.err
    assert not Path("run").exists()


def test_a_limit_counts_from_the_call_where_the_process_is_older(lqf, photos, monkeypatch):
    monkeypatch.setattr("lqf.runtime.deadline.process_began", lambda: pytest.fail("the process is not the command's"))
    called = lqf("fit", photos / "train", "-o", "run", *CLIMB, "--effort", "quick", "--time-limit", "60s", "--json")
    assert called.code == 0, called.err
    assert called.json["images_given"] is None


def test_long_lines_of_the_summary_are_wrapped():
    tried = {n: {"loo_error": 0.333, "loss": 0.5} for n in ("head alone", "one for the body", "one per stage")}
    stages = {"what": "weight decay (stages)", "kept": "one per stage", "tried": tried}
    reason = "the network cannot be fine-tuned: its loss rises at every learning rate that was tried"
    given_up = rung("fine-tuned", None, None, kept=False, why=reason)
    shown = [*_choices([stages]), *_rungs([*kept_head(), given_up, left_out("LQF, moved", "of time " * 12)])]
    lines = "\n".join(shown).splitlines()
    assert max(map(len, lines)) <= WIDTH
    text = " ".join(" ".join(lines).split())
    for said in (reason, "one per stage 33.3%; kept one per stage", "not tried: needs about 4 min"):
        assert said in text
