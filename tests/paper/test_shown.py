"""What the experiments compute apart from their cells: intervals, held-out images, ends of a ranking, costs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, hessian

from lqf.fitting.point import BLIND
from lqf.training.network import Network
from lqf_paper.experiments import influence, lowshot, nlft_mse, robustness, summarization, table1
from lqf_paper.experiments.online import cost
from lqf_paper.report.interval import interval
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Done, Results
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task
from lqf_paper.studies.curvatures import cross_entropy_curvature
from lqf_paper.studies.informativeness import held_out


def test_an_interval_is_students() -> None:
    of = interval([0.1, 0.2, 0.4, 0.3])
    assert of.mean == pytest.approx(0.25)
    assert of.half == pytest.approx(3.182 * np.std([0.1, 0.2, 0.4, 0.3], ddof=1) / 2)
    assert of.percent() == "+25 ± 21"
    assert interval([0.1]).percent() == "+10"
    two = interval([0.1, -0.3])
    assert two.percent() == "-10 (-30, +10)"  # two draws are shown themselves
    assert (two.half, two.shown) == (pytest.approx(12.706 * 0.2), pytest.approx(0.2))
    assert of.shown == of.half
    assert interval([]).percent() == "–"


def test_held_out_images_are_a_share_of_every_class_and_leave_two() -> None:
    labels = np.repeat([0, 1, 2, 3], [20, 8, 2, 1])
    apart = held_out(labels, 0.25, 0)
    assert np.bincount(labels[apart], minlength=4).tolist() == [5, 2, 0, 0]
    assert not np.array_equal(apart, held_out(labels, 0.25, 1))


def test_costs_are_counted_by_the_images_seen() -> None:
    assert cost([{"passes": 4, "n": 10}, {"passes": 6, "n": 20}]) == 8.0


def test_the_ends_of_a_ranking(task: Task) -> None:
    ids = list(task.train.samples.ids)[1:]  # one image was held out
    result = {"ids": ids, "information": [float(i) for i in range(len(ids))]}
    most, least = influence.ends(task, result)["all classes"]
    assert most[0] == (len(ids), len(ids) - 1.0)
    assert least[0] == (1, 0.0)
    assert not {i for i, _ in most} & {i for i, _ in least}
    for name, both in influence.ends(task, result).items():
        if name in task.classes:
            own = {task.train.samples.labels[i] for end in both for i, _ in end}
            assert own == {task.classes.index(name)}


def test_the_curvature_of_fine_tuning_is_that_of_the_network(task: Task) -> None:
    workspace = task.workspace
    network = Network(workspace.network(leaky=False), workspace.preprocess, 3).eval()
    network.head.weight.data.mul_(30)
    images = task.some(range(6)).train
    x = (images.batch(torch.arange(6)).float() / 255 - network.mean) / network.std
    y, weights = torch.tensor(images.samples.labels), dict(network.named_parameters())
    exact = copy.deepcopy(network.body).double()

    def loss(flat: torch.Tensor) -> torch.Tensor:
        parts = flat.split([w.numel() for w in weights.values()])
        own = {n: p.view_as(w) for (n, w), p in zip(weights.items(), parts, strict=True)}
        z = functional_call(exact, {n[5:]: w for n, w in own.items() if n.startswith("body.")}, (x.double(),))
        return F.cross_entropy(z @ own["head.weight"].T + own["head.bias"], y)

    at = torch.cat([w.detach().double().reshape(-1) for w in weights.values()])
    product, like = cross_entropy_curvature(network, images)
    v = torch.randn(len(like), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(product(v).double(), hessian(loss)(at) @ v.double(), rtol=1e-3, atol=1e-5)


def test_lowshot_takes_the_best_of_every_draw_and_compares_draw_by_draw(task: Task, tiny: Scale) -> None:
    scale = replace(tiny, draws=2)
    done = []
    for cell in lowshot.cells([task], scale):
        p = cell.params
        rate = p["settings"].get("learning_rate", 0.0)
        nlft = 0.2 + 10 * rate  # 0.001 is better
        errors = {"nlft": nlft, "nlft-mse": 0.4, "lqf": 0.5, "lqf-ours": 0.1, "lqf-ours-avg": 0.15, "lqf-fc": 0.3}
        done.append(Done(cell, {"test_error": errors[p["method"]] + 0.1 * p["seed"]}, 1.0))
    summary = lowshot.summarise(Results([task], scale, done))
    few = summary.values["one"]["2"]
    assert few["errors"]["nlft"] == pytest.approx([0.21, 0.31])
    expected = interval([0.1 / 0.21 - 1, 0.2 / 0.31 - 1])
    assert few["relative"]["lqf-ours"] == pytest.approx(expected.to_dict())
    assert summary.values["one"]["all"]["errors"]["lqf-fc"] == [0.3]
    assert summary.table.rows[0][:7] == ("one", "2", "26.0", "45.0", "55.0", "15.0", "20.0")
    gap = few["minus_nlft"]["lqf-ours-avg"]
    assert gap["value"] == pytest.approx(0.2 - 0.26)
    assert not gap["paired"]  # no predictions were kept
    assert gap["low"] < 0 < gap["high"]
    assert "LQF (ours, average pooling): confirmed in 0, contradicted in 0, not confirmed in 1 of 1" in " ".join(
        summary.notes
    )


SHOTS = Scale("short", shots=(1, 2, None), draws=2)


def settings_of(cells: Sequence[Cell], method: str, shots: int | None) -> list[dict[str, Any]]:
    return [c.params["settings"] for c in cells if c.params["method"] == method and c.params.get("shots") == shots]


def test_with_few_images_batch_normalisation_is_tried_in_both_modes(task: Task) -> None:
    cells = lowshot.cells([task], SHOTS)
    assert {s.get("bn", "train") for s in settings_of(cells, "nlft", 1)} == {"train", "eval"}
    assert {s.get("bn", "train") for s in settings_of(cells, "nlft", None)} == {"train"}
    many = nlft_mse.searched_settings("nlft", nlft_mse.FEW + 1, SHOTS)
    assert {s.get("bn", "train") for s in many} == {"train"}


def test_few_shots_share_their_cells(task: Task) -> None:
    few, mse, main = (e.cells([task], SHOTS) for e in (lowshot, nlft_mse, table1))
    for method, rates in {"nlft": [0.001, 0.005], "nlft-mse": [3e-4]}.items():
        first = [c for c in few if c.params["method"] == method and c.params["seed"] == 0]
        strongest = [c for c in first if c.params["settings"]["augment"] == "resized"]
        assert [c.params["settings"]["learning_rate"] for c in strongest] == rates
        assert [c for c in first if c not in strongest] == [c for c in mse if c.params["method"] == method]
        assert [c for c in main if c.params["method"] == method] == [c for c in first if c.params.get("shots") is None]
    assert all(c in main for c in few if c.params.get("shots") is None and c.params["method"] != "lqf-fc")


def test_lqf_on_few_images_is_told_its_solver(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings_of(lowshot.cells([task], SHOTS), "lqf-ours", 2) == [{"solver": "dense"}] * 2
    assert settings_of(lowshot.cells([task], SHOTS), "lqf-ours", None) == [{}]
    monkeypatch.setattr(lowshot, "DENSE_ROWS", 17)  # 3 classes of 2 images make 18 rows
    assert settings_of(lowshot.cells([task], SHOTS), "lqf-ours-avg", 2) == [{"solver": "pcg"}] * 2
    assert [s["solver"] for s in settings_of(lowshot.cells([task], SHOTS), "lqf-ours-avg", 1)] == ["dense"] * 2


def test_with_one_image_per_class_nothing_is_left_to_leave_one_out(task: Task) -> None:
    chosen = {"weight_decay", "body_weight_decay", "head", "pooling", "views"}
    for s in settings_of(lowshot.cells([task], SHOTS), "lqf-ours", 1):
        assert chosen <= set(s)
        assert s["head"] in BLIND
        assert "auto" not in s.values()
    for s in settings_of(lowshot.cells([task], SHOTS), "lqf-fc", 1):
        assert s["weight_decay"] != "auto"


def test_robustness_takes_cells_of_table1(task: Task) -> None:
    main, own = table1.cells([task], SHOTS), robustness.cells([task], SHOTS)
    assert sum(c in main for c in own) == 5  # NLFT at four of five rates, LQF at one, whose ρ is 1 there, too


def test_influence_shows_the_rankings_of_summarization(task: Task, tiny: Scale) -> None:
    assert influence.cells([task], tiny) == summarization.cells([task], tiny)  # exact: one cell for both
