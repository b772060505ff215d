"""The committed cells are those that today's code asks for: a key that changes would have them computed again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lqf.data import Preprocess, load_samples, open_images
from lqf.utils.progress import SILENT
from lqf_paper.experiments import EXPERIMENTS
from lqf_paper.runner.cells import Store, key
from lqf_paper.runner.registry import WORKS
from lqf_paper.runner.run import Run
from lqf_paper.runner.scale import SHORT
from lqf_paper.runner.workspace import Task

SAME = (
    "nlft",
    "nlft-mse",
    "b-nlft",
    "lqf-ours",
    "lqf-ours-avg",
    "lqf-ours-crops",
    "lqf-solved",
    "b-lqf-ours",
    "lqf-fc",
)
RESULTS = Path(__file__).resolve().parents[2] / "results"
CELLS = sorted((RESULTS / "cells").glob("*.json"))
pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="needs the committed results")


@dataclass
class StandIn(Task):
    """A data set with the name, the classes and the fingerprint of one that is not here, and other images."""

    fingerprint: str = ""


def stand_in(recorded: dict[str, Any], workspace: Any) -> StandIn:
    """All data sets of the committed results have equally many training images of every class."""
    labels = np.arange(recorded["train"]) % recorded["classes"]
    images = open_images(load_samples(np.zeros((recorded["train"], 2)), labels, tensors="normalized"), Preprocess())
    return StandIn(recorded["name"], workspace, images, images, recorded["fingerprint"])


def test_all_that_the_short_grid_asks_for_is_committed() -> None:
    recorded = json.loads((RESULTS / "table1.json").read_text(encoding="utf-8"))
    workspace = SimpleNamespace(describe=lambda: recorded["network"])
    run = Run(EXPERIMENTS, [stand_in(d, workspace) for d in recorded["data"]], SHORT, Store(RESULTS / "cells"), SILENT)
    there = {path.stem for path in CELLS}
    missing = {k: c for k, c in run.every().items() if k not in there}
    before = {k: run.earlier(c) for k, c in missing.items()}
    lost = [c for k, c in missing.items() if before[k] is None and c.params.get("method") in SAME]
    assert {c.params["settings"].get("batch_size") for c in lost} <= {16, 64}  # no default has changed for the others
    kept = [b for b in before.values() if b is not None and run.store.get(b) is not None]
    assert len(kept) >= 60  # linear methods by mini-batches, as they were


def test_committed_cells_are_complete_and_lie_under_their_own_keys() -> None:
    for path in CELLS:
        identity = json.loads(path.read_text(encoding="utf-8"))["identity"]
        assert key(identity) == path.stem
        whole = WORKS[identity["work"]].complete(identity["params"])
        if "damping" in (identity["params"]["settings"] or {}):
            later = set(whole["params"]["settings"]) - set(identity["params"]["settings"])
            assert later <= {"damping_kind"}
            whole["params"]["settings"] = {k: v for k, v in whole["params"]["settings"].items() if k not in later}
        assert identity == {**identity, **whole}
