"""Commands to be killed, starved and watched: one row each."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from forked import QUICK
from lqf import LQFClassifier, storage
from lqf.cli.app import COMMANDS

FIT = [*QUICK, "--body-weight-decay", "20"]


def copied() -> None:
    LQFClassifier.load("run", verbose=0).save("copy", overwrite=True)


@dataclass(frozen=True)
class Act:
    """A command that is killed.

    Attributes:
        words: of the command line ({world}: the folder with the data), or a function.
        result: what it writes, relative to its folder.
        state: says what is there, once it is complete, and raises where it is not.
    """

    words: list[str] | Callable[[], object]
    result: str
    state: Callable[[Path], str]


def model(path: Path) -> str:
    fitted = storage.load(path)
    return f"decay {fitted.settings.body_weight_decay}, {len(fitted.train.ids)} images"


def folder(path: Path) -> str:
    assert {p.name for p in path.iterdir()} > {"audit.json", "labels.csv"} or not path.exists(), list(path.iterdir())
    json.loads((path / "audit.json").read_text())
    return "complete"


def page(path: Path) -> str:
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    return "complete"


def table(path: Path) -> str:
    assert path.read_text(encoding="utf-8").count("\n") == 7
    return "complete"


ACTS = {
    "fit": Act(["fit", "{world}/train", "-o", "run", *FIT, "--overwrite"], "run", model),
    "save": Act(copied, "copy", model),
    "audit": Act(["audit", "run", "-o", "seen", "--overwrite"], "seen", folder),
    "report": Act(["report", "run", "-o", "page.html", "--overwrite"], "page.html", page),
    "predict": Act(["predict", "run", "{world}/test", "-o", "rows.csv", "--overwrite"], "rows.csv", table),
    "add": Act(["add", "run", "{world}/more", "-o", "run", "--overwrite"], "run", model),
    "forget": Act(["forget", "run", "--ids", "red/0.png", "-o", "run", "--overwrite"], "run", model),
}
ACTS = {name: act for name, act in ACTS.items() if name in (*COMMANDS, "save")}
