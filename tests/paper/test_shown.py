"""What the experiments compute beside their cells: intervals, held-out images, ends of a ranking, costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import TINY
from torch.func import functional_call, hessian

from lqf.paper.curvatures import cross_entropy_curvature
from lqf.paper.experiments import influence
from lqf.paper.experiments.online import cost
from lqf.paper.informativeness import held_out
from lqf.paper.interval import interval
from lqf.paper.lab import Task
from lqf.paper.tuned import Network


def test_an_interval_is_students() -> None:
    of = interval([0.1, 0.2, 0.4, 0.3])
    assert of.mean == pytest.approx(0.25)
    assert of.half == pytest.approx(3.182 * np.std([0.1, 0.2, 0.4, 0.3], ddof=1) / 2)
    assert of.percent() == "+25 ± 21"
    assert interval([0.1]).percent() == "+10"
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
    lab = task.lab
    network = Network(lab.network(leaky=False), lab.preprocess, 3).double().eval()
    network.head.weight.data.mul_(30)
    weights = {n: w for n, w in network.named_parameters() if n.startswith("head")}
    for name, w in network.named_parameters():
        w.requires_grad_(name in weights)
    images = task.some(range(6)).train
    x = (images.batch(torch.arange(6)).double() / 255 - network.mean) / network.std
    y = torch.tensor(images.samples.labels)
    z = network.body(x.float().double())

    def loss(flat: torch.Tensor) -> torch.Tensor:
        w, b = flat[: 3 * z.shape[1]].view(3, -1), flat[3 * z.shape[1] :]
        return F.cross_entropy(functional_call(network.head, {"weight": w, "bias": b}, (z,)), y)

    at = torch.cat([w.detach().reshape(-1) for w in weights.values()])
    network.requires_grad_(True)
    product, like = cross_entropy_curvature(network, images)
    v = torch.zeros_like(like)
    v[-len(at) :] = torch.randn(len(at), dtype=v.dtype, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(product(v)[-len(at) :], hessian(loss)(at) @ v[-len(at) :], rtol=1e-5, atol=1e-8)


def test_lowshot_compares_the_same_draws(carried_out: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    told = carried_out("lowshot", scale=replace(TINY, draws=2))
    few = told["summary"]["one"]["2"]
    assert {m: len(e) for m, e in few["errors"].items()} == {"nlft": 2, "lqf-ours": 2, "lqf-fc": 2}
    assert len(told["summary"]["one"]["all"]["errors"]["nlft"]) == 1
    gaps = [(e - r) / r for e, r in zip(few["errors"]["lqf-ours"], few["errors"]["nlft"], strict=True) if r]
    assert few["relative"]["lqf-ours"]["n"] == len(gaps)


def test_influence_and_summarization_share_their_cells(carried_out: Callable[..., dict[str, Any]]) -> None:
    carried_out("summarization")
    before = carried_out("influence")
    assert before["cells"] == 2
    assert before["seconds"] == carried_out("summarization")["seconds"]
