"""Beyond a search: winners with other seeds, settings chosen by validation, runs that diverged silently."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lqf_paper.experiments import adam
from lqf_paper.methods import validation
from lqf_paper.methods.catalogue import METHODS, fit
from lqf_paper.report import results as pages
from lqf_paper.report.winners import further_cells, winners
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.divergence import astray, judged, zero_loss
from lqf_paper.runner.experiment import Done, Results
from lqf_paper.runner.predictions import unpacked
from lqf_paper.runner.registry import defaults_of
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

SCALE = Scale("short", seeds=3)


def searched(task: Task, errors: dict[float, float | None], method: str = "nlft", **more: Any) -> list[Done]:
    """A search over rates."""
    return [of(task, method, rate, error, **more) for rate, error in errors.items()]


def of(task: Task, method: str, rate: float, error: float | None, seed: int = 0) -> Done:
    params = {"method": method, "settings": {"learning_rate": rate}, "seed": seed}
    return Done(Cell("fit", task.name, params), {"test_error": error, "chosen": {}, "fit_seconds": 1.0}, 1.0)


def validated(task: Task, rate: float, error: float | None) -> Done:
    cell = Cell("validation", task.name, {"method": "nlft", "settings": {"learning_rate": rate}, "seed": 0})
    return Done(cell, {"validation_error": error}, 1.0)


def results(task: Task, done: list[Done], scale: Scale = SCALE, further: tuple[Done, ...] = ()) -> Results:
    return Results([task], scale, done, [d.cell for d in done], {}, further)


def test_the_winner_is_repeated_and_its_error_is_the_mean(task: Task) -> None:
    done = searched(task, {0.1: 0.3, 0.01: 0.1})
    more = further_cells(results(task, done), ["nlft"])
    assert [(c.params["settings"]["learning_rate"], c.params["seed"]) for c in more] == [(0.01, 1), (0.01, 2)]
    again = (of(task, "nlft", 0.01, 0.2, seed=1), of(task, "nlft", 0.01, None, seed=2))
    winner = winners(results(task, done, further=again), ["nlft"])[task.name]["nlft"]
    assert winner is not None
    assert (winner.error, winner.lost, len(winner.runs)) == (pytest.approx(0.15), 1, 2)
    assert winner.deviation == pytest.approx(np.std([0.1, 0.2], ddof=1))


def test_what_has_nothing_random_is_not_repeated(task: Task) -> None:
    assert further_cells(results(task, searched(task, {0.1: 0.3}, "lqf-fc")), ["lqf-fc"]) == []


def test_settings_are_chosen_by_validation_and_both_winners_repeated(task: Task) -> None:
    done, scale = searched(task, {0.1: 0.3, 0.01: 0.1, 1.0: None}), replace(SCALE, select="validation", seeds=2)
    cells = further_cells(results(task, done, scale), ["nlft"])
    assert [c.work for c in cells] == ["validation"] * 3 + ["fit"]  # who wins by validation is not known yet
    judged_by = tuple(validated(task, rate, e) for rate, e in {0.1: 0.2, 0.01: 0.25, 1.0: 0.0}.items())
    whole = results(task, done, scale, judged_by)
    chosen = winners(whole, ["nlft"], "validation")[task.name]["nlft"]
    assert chosen is not None
    assert chosen.chosen.params["settings"]["learning_rate"] == 0.1  # the other of the two diverged on all images
    again = [c.params["settings"]["learning_rate"] for c in further_cells(whole, ["nlft"]) if c.work == "fit"]
    assert sorted(again) == [0.01, 0.1]
    partly = winners(replace(whole, further=judged_by[:1]), ["nlft"], "validation")
    assert partly[task.name]["nlft"] is None


def test_a_method_without_a_choice_is_not_validated(task: Task) -> None:
    scale = replace(SCALE, select="validation", seeds=1)
    done = searched(task, {0.1: 0.3}, "lqf-ours")
    assert further_cells(results(task, done, scale), ["lqf-ours"]) == []
    assert winners(results(task, done, scale), ["lqf-ours"], "validation")[task.name]["lqf-ours"] is not None


def test_validation_sees_no_test_image_and_most_of_every_class(task: Task) -> None:
    settings = {"epochs": 2, "batch_size": 5, "learning_rate": 0.01}
    result = validation.validation(task, method="nlft", settings=settings)
    assert (result["n"], result["validation"]) == (12, 3)
    blind = replace(task, test=None)  # type: ignore[arg-type]
    again = validation.validation(blind, method="nlft", settings=settings)
    assert again["validation_error"] == result["validation_error"]


def test_a_fit_keeps_its_predictions(task: Task) -> None:
    result = fit(task, method="fc", settings={"epochs": 2, "batch_size": 5, "learning_rate": 0.01})
    wrong = unpacked(result["predictions"]) != task.test.samples.labels
    assert float(wrong.mean()) == result["test_error"]
    assert "predictions_mirrored" in result


def test_the_loss_of_zero_output() -> None:
    assert zero_loss({"loss": "cross_entropy"}, 7) == math.log(7)
    assert zero_loss({"loss": "mse", "alpha": 15.0}, 7) == 112.5
    assert zero_loss({"weight_decay": "auto"}, 7) is None
    assert all(zero_loss(defaults_of(METHODS[m].fit).complete({}), 2) for m in ("nlft", "nlft-mse", "lqf", "gaf", "fc"))


def test_a_run_that_ends_above_zero_output_has_diverged() -> None:
    settings = {"loss": "mse", "alpha": 15.0}
    lost = {"test_error": 0.4, "test_error_mirrored": 0.3, "diverged": False, "losses": [120.0, 113.0]}
    found = judged(lost, settings, 2)
    assert (found["test_error"], found["test_error_mirrored"], found["diverged"]) == (None, None, True)
    assert found["lost"] == {"test_error": 0.4, "test_error_mirrored": 0.3}
    assert judged(found, settings, 2)["lost"] == found["lost"]
    fine = {**lost, "losses": [900.0, 112.0]}
    assert judged(fine, settings, 2) is fine
    assert astray([1.0, None], settings, 2)
    assert not astray([], settings, 2)


def test_a_command_repeats_winners_and_goes_on_from_there(
    carried_out: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Search, validation, both winners with another seed; then the same from the finished cells."""
    monkeypatch.setattr(adam, "METHOD_NAMES", ("lqf-fc-adam", "lqf-fc"))
    monkeypatch.setattr(pages, "picture", lambda summary: None)  # drawn in other tests
    first = carried_out("adam", seeds=2, select="validation")
    text, page = (tmp_path / "adam.json").read_text(), (tmp_path / "README.md").read_text()
    values = json.loads(text)["summary"]
    assert len(values["errors"]["one"]["lqf-fc-adam"]["runs"]) == 2
    assert values["statements"][1]["data"]["one"]["runs"] == [2, 1]
    assert "Settings chosen on a validation part" in page
    assert "within 3 points" in page
    assert not any("predictions" in c["result"] for c in json.loads(text)["cells"])
    again = carried_out("adam", seeds=2, select="validation", finished=True)
    assert (again["cells"], again["of"]) == (first["cells"], first["of"])
    assert (tmp_path / "adam.json").read_text() == text
