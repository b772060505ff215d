"""Data in steps: who is there when, LQF's last step against one fit of all data, and NLFT that goes on."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from fits import CPU, SMALL, convnet, network, opened, pictures
from fits import data as vectors
from lqf.backbones import load_backbone
from lqf.fitting import Context
from lqf.fitting import fit as fit_lqf
from lqf.settings import Settings
from lqf.training.finetune import FineTuning
from lqf_paper.experiments import online
from lqf_paper.methods.catalogue import fit
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Done, Results
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task
from lqf_paper.studies.online import arrivals, online_lqf, online_lqf_by_steps, online_nlft
from lqf_paper.studies.problem import LQF
from paper.conftest import EXACT, small_task

SOLVED = {**EXACT, "tol": 1e-11, "weight_decay": 1.0, "body_weight_decay": 800.0}


def test_every_step_holds_the_last_one_and_its_share_of_every_class() -> None:
    labels = np.repeat([0, 1, 2], [20, 10, 40])
    steps = arrivals(labels, 5, seed=3)
    assert [len(s) for s in steps] == [14, 28, 42, 56, 70]
    for before, after in itertools.pairwise(steps):
        assert set(before) < set(after)
    for k, rows in enumerate(steps, 1):
        share = np.bincount(labels[rows], minlength=3) / [20, 10, 40]
        assert np.abs(share - k / 5).max() <= 0.1
        assert (np.diff(rows) > 0).all()
    assert not np.array_equal(steps[0], arrivals(labels, 5, seed=4)[0])


@pytest.mark.parametrize("head", ["crossfit", "random"])
def test_lqf_after_the_last_step_is_the_fit_of_all_data(head: str) -> None:
    task = small_task(vectors(24, signal=0.7), vectors(30, signal=0.7, seed=1), network())
    found = online_lqf(task, steps=3, settings={**SOLVED, "head": head})
    assert [s["n"] for s in found["steps"]] == [8, 16, 24]
    assert all(s["difference"] < 1e-8 for s in found["steps"])
    assert all(0 < s["residual"] <= SOLVED["tol"] for s in found["steps"])
    settings = Settings(**{**LQF, **SOLVED, "head": head})
    fitted = fit_lqf(task.train, load_backbone(network()), task.workspace.preprocess, Context(settings, CPU))
    wrong = fitted.outputs(task.test, device=CPU, batch_size=8).argmax(1) != torch.tensor(task.test.samples.labels)
    assert found["test_error"] == float(wrong.double().mean())
    assert 0 < found["test_error"] < 0.67


def test_the_first_step_has_nothing_to_start_from() -> None:
    task = small_task(vectors(12, signal=0.7), vectors(12, seed=1), network())
    found = online_lqf(task, steps=1, settings=SOLVED)["steps"]
    assert found[0]["passes"] == found[0]["passes_cold"] > 3
    assert found[0]["difference"] == 0


def test_nlft_goes_on_or_starts_again() -> None:
    task = small_task(pictures(18), pictures(9, seed=1), convnet().float())
    how = {"epochs": 3, "batch_size": 6, "learning_rate": 0.05}
    on, anew = (online_nlft(task, steps=2, settings=how, go_on=b)["steps"] for b in (True, False))
    assert on[0] == anew[0]
    assert [s["n"] for s in on] == [9, 18]
    assert all(s["passes"] == 3 for s in on)


def test_from_scratch_the_last_step_is_the_fit_of_all_images() -> None:
    task = small_task(pictures(18), pictures(9, seed=1), convnet().float())
    how = {"epochs": 3, "batch_size": 6, "learning_rate": 0.05}
    common = {"steps": 2, "settings": how, "go_on": False}
    whole, part = online_nlft(task, **common)["steps"], online_nlft(task, **common, first=1)["steps"]
    assert part == whole[:1]
    assert whole[1]["test_error"] == fit(task, method="nlft", settings=how)["test_error"]


def test_the_way_from_scratch_is_put_together_from_both_cells(task: Task, tiny: Scale) -> None:
    done = []
    for cell in online.cells([task], tiny):
        steps = [{"n": n, "test_error": 0.3, "passes": 2, "passes_cold": 4} for n in (7, 15)]
        if cell.work == "online lqf":
            steps = [{**s, "residual": 0.008, "difference": 0.02} for s in steps]
        result = {"test_error": 0.1} if cell.work == "fit" else {"test_error": 0.3, "steps": steps[: _first(cell)]}
        done.append(Done(cell, result, 1.0))
    summary = online.summarise(Results([task], tiny, done))
    assert [s["test_error"] for s in summary.values["one"]["scratch"]["steps"]] == [0.3, 0.1]
    assert summary.table.rows[-1] == ("one", "NLFT from scratch", "30.0", "10.0", "3")
    assert "worst residual 8.0e-03; test outputs differ by 0.02 of their norm" in summary.notes[-1]
    worse, near = summary.values["statements"]
    assert (worse["data"]["one"]["value"], near["data"]["one"]["value"]) == (pytest.approx(0.2), pytest.approx(0.2))
    assert {of["data"]["one"]["verdict"] for of in (worse, near)} == {"not confirmed"}  # of nine images


def _first(cell: Cell) -> int | None:
    return cell.params.get("first")


def test_nlft_starts_from_a_network() -> None:
    images, backbone = opened(*pictures(12), SMALL), load_backbone(convnet(), leaky=False)
    how = FineTuning(epochs=3, batch_size=6, precision="float32", learning_rate=0.05)
    first = how.fit(backbone, images, SMALL, device=CPU)
    kept = {n: w.clone() for n, w in first.network.state_dict().items()}
    second = how.fit(backbone, images, SMALL, device=CPU, start=first.network)
    assert second.losses[0] < first.losses[0]
    assert all(torch.equal(w, kept[n]) for n, w in first.network.state_dict().items())
    still = replace(how, learning_rate=1e-30, weight_decay=0.0, bn="eval").fit(
        backbone, images, SMALL, device=CPU, start=first.network
    )
    torch.testing.assert_close(still.outputs(images), first.outputs(images))


def test_nlft_stops_when_it_has_learnt_its_images() -> None:
    images, backbone = opened(*pictures(12), SMALL), load_backbone(convnet(), leaky=False)
    how = FineTuning(epochs=60, batch_size=6, precision="float32", learning_rate=0.05, augment="none")
    assert len(how.fit(backbone, images, SMALL, device=CPU).losses) == 60
    stopped = replace(how, stop_below=0.0).fit(backbone, images, SMALL, device=CPU)
    assert 5 <= len(stopped.losses) < 60
    assert stopped.error(images) < 0.2
    never = replace(how, epochs=6, learning_rate=1e-6, stop_below=0.0).fit(backbone, images, SMALL, device=CPU)
    assert len(never.losses) == 6


def test_lqf_by_steps_goes_on_from_its_last_weights(task: Task) -> None:
    how = {"epochs": 60, "batch_size": 5, "learning_rate": 0.1, "schedule": "constant", "stop_below": 0.005}
    on, anew = (online_lqf_by_steps(task, steps=2, settings=how, go_on=b)["steps"] for b in (True, False))
    assert [s["n"] for s in on] == [s["n"] for s in anew]
    assert on[0] == anew[0]
    assert on[1]["passes"] <= anew[1]["passes"] < 60  # it is learned before
