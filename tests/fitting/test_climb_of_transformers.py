"""Whole climbs of networks that end in tokens, or in a map with a norm after its average."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from finetuned_models import short
from fits import classifier, pictures
from lqf import LQFClassifier
from lqf.fitting import Model, Stack, ladder, pose
from lqf.fitting.rungs.finetuned import FINETUNED, LOWER_RATE
from lqf.fitting.rungs.linear import LQF
from lqf.fitting.rungs.moved import MOVED
from lqf.fitting.rungs.stack import STACK
from token_networks import SIDE, WIDTH, transformer

X, Y = pictures(15, side=14)
NEW = pictures(5, side=14, seed=7)[0]


class ConvBlock(nn.Module):
    """As ConvNeXt has them: every channel by itself, a norm and two layers of every position, a learned scale."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        self.scale = nn.Parameter(torch.full((WIDTH,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x + (self.scale * self.mlp(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """Pictures of 12 × 12 pixels -> 2 outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 4, 4)
        self.blocks = nn.Sequential(ConvBlock(), ConvBlock())
        self.pool, self.flat, self.norm = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.flat(self.pool(self.blocks(self.stem(x))))))


def convnext() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return ConvNeXt().double()


NETWORKS: dict[str, Callable[[], nn.Module]] = {"class token": transformer, "ConvNeXt": convnext}


def climbed(net: nn.Module, kept: list[Model] | None = None, **params: Any) -> LQFClassifier:
    """At the highest effort, with fine-tunings of a few epochs."""
    params = {"size": SIDE, "pool_channels": 3, "solver": "auto", "effort": "best", **params}
    with short(12):
        return classifier(backbone=net, **params).fit(X, Y, keep=None if kept is None else kept.append)


def check_rungs(model: LQFClassifier) -> dict[str, dict[str, Any]]:
    """Every rung was tried, or says why not."""
    rungs = {r["name"]: r for r in model.report_["rungs"]}
    assert next(iter(rungs)) == "head"
    assert list(rungs)[-6:] == ["LQF", "LQF, 8 views", FINETUNED, LOWER_RATE, MOVED, STACK]
    for rung in rungs.values():
        tried = rung["seconds"] is not None and rung["error"] is not None
        assert tried != bool(rung["why"] not in ("", "gains nothing")), rung
        assert not tried or (0 <= rung["error"] <= 1 and rung["loss"] > 0)
        assert tried or not rung["kept"]
    return rungs


def check_saved(model: LQFClassifier, net: nn.Module, folder: Path) -> None:
    model.save(folder / "run")
    loaded = LQFClassifier.load(folder / "run", backbone=net, device="cpu")
    np.testing.assert_array_equal(loaded.decision_function(NEW), model.decision_function(NEW))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_climb_ends_with_a_model_that_comes_back(name: str, tmp_path: Path) -> None:
    model = climbed(NETWORKS[name]())
    rungs = check_rungs(model)
    for tried in ("head", "head, 8 views", LQF, FINETUNED):
        assert rungs[tried]["error"] is not None, rungs[tried]
    assert ladder.rung_of(model.fitted_) == [n for n, r in rungs.items() if r["kept"]][-1]
    assert model.score(X, Y) > 0.6  # chance: a third
    check_saved(model, NETWORKS[name](), tmp_path)
    outputs = model.analyse(X).influence(NEW).outputs
    np.testing.assert_allclose(outputs, model.decision_function(NEW), rtol=1e-7, atol=1e-7)


def test_all_rungs_are_finished_by_iteration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every one is kept; the last is a stack of all kinds."""
    monkeypatch.setitem(pose.DENSE_PAIRS, "cpu", 0)
    monkeypatch.setattr("lqf.evaluation.paired.LEAST_GAIN", -10.0)
    kept: list[Model] = []
    model = climbed(transformer(), kept)
    check_rungs(model)
    finished = [ladder.rung_of(m) for m in kept]
    heads = ["head", "head, mirror images", "head, 8 views"]
    assert finished == [*heads, LQF, FINETUNED, LOWER_RATE, MOVED, STACK, STACK]
    assert isinstance(model.fitted_, Stack)
    assert model.fitted_.names == ("head, 8 views", LQF, MOVED, FINETUNED, LOWER_RATE)
    for member in model.fitted_.members:
        assert model.report_["n"] == member.report.n
    check_saved(model, transformer(), tmp_path)
