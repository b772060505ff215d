"""What cells share: results are the same with it and without, and it goes when another group's cells begin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fits import CPU, SMALL, convnet, opened, pictures
from lqf.backbones import load_backbone
from lqf.training.random_views import RandomViews
from lqf.training.stream import stream
from lqf_paper.methods import linear_training as training
from lqf_paper.methods.catalogue import METHODS, fit_method
from lqf_paper.methods.feature_batches import feature_batches
from lqf_paper.methods.linear import Linear
from lqf_paper.runner.group_cache import GroupCache
from lqf_paper.runner.workspace import Task

SHORT: dict[str, Any] = {"epochs": 2, "batch_size": 6, "weight_decay": 1e-3}
SHARING = sorted(m for m, method in METHODS.items() if method.shares is not None and m != "b-nlft")


def delta(task: Task, method: str, rate: float, decay: float = 1e-3, seed: int = 0) -> torch.Tensor:
    settings = SHORT | {"learning_rate": rate, "weight_decay": decay, "augment": "crop"}
    return fit_method(method, task, pool_channels=3, seed=seed, **settings).delta  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", SHARING)
def test_a_run_after_others_is_the_same_as_one_alone(method: str, task: Task) -> None:
    alone = delta(task, method, 1e-3, decay=1e-4)
    task.workspace.cache.under(None)
    delta(task, method, 0.01)  # another rate, another weight decay
    assert torch.equal(delta(task, method, 1e-3, decay=1e-4), alone)


def test_methods_that_differ_in_the_loss_alone_share_but_do_not_mix(task: Task) -> None:
    alone = {m: delta(task, m, 0.01) for m in ("lqf-no-mse", "lqf", "lqf-no-leaky")}
    for method in ("lqf", "lqf-no-mse", "lqf-no-leaky", "lqf"):
        assert torch.equal(delta(task, method, 0.01), alone[method])


def test_the_curvature_is_made_once_for_all_rates(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    original = training.precondition
    monkeypatch.setattr(training, "precondition", lambda *a, **k: made.append(1) or original(*a, **k))
    for rate in (0.1, 0.01, 0.001):
        delta(task, "lqf", rate)
    assert len(made) == 1
    delta(task.some(range(9)), "lqf", 0.1)  # other images
    delta(task.some(range(9)), "lqf", 0.1, seed=1)  # another head
    assert len(made) == 3


def test_a_method_that_shares_nothing_empties_the_cache(task: Task) -> None:
    delta(task, "b-lqf", 0.01)
    assert len(task.workspace.cache) == 4  # channels, inputs, features, K-FAC
    fit_method("lqf-fc", task)
    assert len(task.workspace.cache) == 0


def test_features_of_views_are_those_of_the_stream() -> None:
    images, body = opened(*pictures(11), SMALL), load_backbone(convnet().float()).body
    views = RandomViews(images, SMALL, "crop", CPU)

    def encode(pixels: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return body(pixels.float() / 255)

    one, two = list(feature_batches(views, 11, 7, 4, 3, encode)), list(stream(views, 11, 7, 4, 3))
    assert len(one) == len(two) == 7 * 11 // 4
    for (rows, z), (expected, pixels) in zip(one, two, strict=True):
        assert torch.equal(rows, expected)
        torch.testing.assert_close(z, encode(pixels))


@pytest.mark.parametrize("room", [0, 1 << 40])
def test_a_head_is_the_same_whether_or_not_the_features_of_its_views_fit(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone, images = load_backbone(convnet()), opened(*pictures(20), SMALL)
    how, kept = Linear(**SHORT, scope="fc", head="zero", dtype="float64"), GroupCache()
    expected = how.fit(backbone, images, SMALL, device=CPU).delta
    monkeypatch.setattr(training, "available_bytes", lambda _: room)
    assert torch.equal(how.fit(backbone, images, SMALL, device=CPU, cache=kept).delta, expected)
    assert len(kept) == (2 if room else 1)  # inputs; features of all random views


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{"kfac": True}, {"scope": "fc", "head": "zero"}], ids=str)
def test_runs_on_cuda_share_without_a_difference(options: dict[str, Any]) -> None:
    backbone, images, device = load_backbone(convnet().float()), opened(*pictures(30), SMALL), torch.device("cuda")
    how, kept = Linear(**SHORT, **options, learning_rate=1e-3), GroupCache()
    alone = how.fit(backbone, images, SMALL, device=device).delta
    replace(how, learning_rate=0.01).fit(backbone, images, SMALL, device=device, cache=kept)
    torch.testing.assert_close(
        how.fit(backbone, images, SMALL, device=device, cache=kept).delta, alone, rtol=0, atol=1e-3
    )
