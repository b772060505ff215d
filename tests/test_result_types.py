"""What a public method hands out says what it is, becomes JSON and, where it has rows, a table; the API page has it."""

from __future__ import annotations

import json
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import lqf
from fits import FIXED, classifier, data
from lqf import LQFClassifier
from lqf.analysis import Analysis
from lqf.data import Images
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.utils.frames import Tabular
from lqf.utils.json_values import json_values

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
X, Y = data(18)
NEW, NEW_Y = data(5, seed=7)


@pytest.fixture(scope="module")
def model() -> LQFClassifier:
    model = classifier(**FIXED, verbose=0).fit(X, Y)
    model.analyse(X, Y)
    return model


ASKED: dict[str, Any] = {
    "influence": lambda m: m.influence(NEW),
    "information": lambda m: m.information(NEW),
    "what_if": lambda m: m.what_if(NEW, without=[0, 1]),
    "predict_set": lambda m: m.predict_set(NEW),
    "predict_std": lambda m: m.predict_std(NEW),
    "novelty": lambda m: m.novelty(NEW),
    "suggest": lambda m: m.suggest(NEW, 2, train=X),
    "curve": lambda m: m.analysis_.curve(
        NEW, NEW_Y, least=torch.arange(18), most=torch.arange(17, -1, -1), shares=[0.5], repeats=1
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_rows_are_json_and_a_table(name: str, model: LQFClassifier) -> None:
    found = ASKED[name](model)
    assert isinstance(found, Tabular)
    rows, frame = found.rows(), found.to_frame()
    assert rows
    assert list(frame.columns) == list(rows[0])
    assert frame.to_dict("records") == pd.DataFrame(rows).to_dict("records")
    json.dumps(json_values(rows), allow_nan=False)
    json.dumps(json_values(found.to_dict()), allow_nan=False)
    assert found.to_dict()["level"] in ("exact", "estimated")


def test_rows_say_what_the_arrays_say(model: LQFClassifier) -> None:
    influence = model.influence(NEW)
    table = influence.to_frame().pivot(index="unit", columns="query", values="change")
    here = table.loc[list(influence.units.names), list(influence.query_ids)].to_numpy()
    np.testing.assert_array_equal(here, influence.of_class().numpy())
    information = model.information(NEW)
    assert [r["information"] for r in information.rows()] == sorted(information.values.tolist(), reverse=True)
    changed = model.what_if(NEW, relabel=dict.fromkeys(range(18), 0))
    assert [r["before"] != r["predicted"] for r in changed.rows()] == changed.changed.tolist()
    sets = model.predict_set(NEW)
    assert [r["size"] for r in sets.rows()] == sets.sizes.tolist()
    spread = model.predict_std(NEW)
    assert [r["std"] for r in spread.rows()] == np.asarray(spread).ravel().tolist()


def test_leave_one_out_as_json(model: LQFClassifier) -> None:
    loo = model.leave_one_out()
    said = loo.to_dict()
    assert (said["error"], said["known"], said["level"]) == (loo.error, 18, "exact")
    unknown = LeaveOneOut(loo.value * float("nan"), "estimated", labels=loo.labels, weights=loo.weights)
    assert unknown.to_dict()["error"] is None


def test_relabelling_says_what_it_did() -> None:
    model = classifier(**FIXED, verbose=0).fit(X, Y)
    done = model.relabel({"0": str((int(Y[0]) + 1) % 3), "1": str(int(Y[1]))}, train=X)
    assert repr(done) == "Relabelling(1 image of 18 relabelled)"
    assert done.to_dict()["members"][0]["fate"] == "solved again"


def results(kind: type) -> set[type]:
    """Classes of this library that public methods of a class return."""
    found: set[type] = set()
    for name in dir(kind):
        method = getattr(kind, name)
        if name.startswith("_") or not callable(method):
            continue
        hint = typing.get_type_hints(method).get("return")
        found |= {t for t in (hint, *typing.get_args(hint)) if getattr(t, "__module__", "").startswith("lqf")}
    return found - {kind}


def test_the_api_page_has_every_result() -> None:
    text = PAGE.read_text(encoding="utf-8")
    kinds = results(LQFClassifier) | results(Analysis)
    for function in (lqf.compare, lqf.select):
        kinds.add(typing.get_type_hints(function)["return"])
    kinds.discard(Images)  # opened images, which are handed back to other methods
    missing = {k.__qualname__ for k in kinds if f".{k.__qualname__}\n" not in text}
    assert len(kinds) > 15
    assert missing == set()
