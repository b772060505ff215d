"""Fine-tuning from the closed-form head on: where it begins, its learning rate, and what it gives back."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, hessian

from finetuned_models import CROPPED, short, training, tuned
from fits import classifier, convnet, data, network, pictures
from lqf.backbones import load_backbone
from lqf.data import load_samples, normalize, open_images
from lqf.errors import LQFError
from lqf.fitting import finetuned as module
from lqf.fitting.finetuned import HALVINGS, NOISE, RATE, Tuned, finetuned
from lqf.runtime.distributed import World
from lqf.training.finetune import FineTuning
from lqf.training.network import FineTuned, Network
from recorder import Recorder

X, Y = pictures(24)
T = data(24)
"""Tensors, which have no crops, for the network without batch normalisation: every step sees the same batch."""
DECAY: dict[str, Any] = {"weight_decay": 0.1}


class Watched:
    """`FineTuning.fit`, with all that it is given and gives back."""

    def __init__(self, patch: pytest.MonkeyPatch, losses: list[tuple[float, ...]] | None = None):
        self.recipes: list[FineTuning] = []
        self.starts: list[Network] = []
        self.ends: list[FineTuned] = []
        plain, made_up = FineTuning.fit, iter(losses or ())

        def fit(recipe: FineTuning, *args: Any, start: Network, **options: Any) -> FineTuned:
            self.recipes.append(recipe)
            self.starts.append(copy.deepcopy(start))
            if losses is None:
                end = plain(recipe, *args, start=start, **options)
            else:
                end = FineTuned(copy.deepcopy(start), next(made_up), 0.0, "float32")
            self.ends.append(replace(end, network=copy.deepcopy(end.network)))
            return end

        patch.setattr(FineTuning, "fit", fit)

    @property
    def rates(self) -> list[float]:
        return [recipe.learning_rate for recipe in self.recipes]


def of_tensors(sample_weight: Any = None, x: np.ndarray = T[0], y: np.ndarray = T[1], **options: Any) -> Tuned:
    options, epochs = {**DECAY, **options}, options.pop("epochs", 3)
    return tuned(training(x, y, sample_weight, **options), load_backbone(network()), epochs)


# --- where it begins --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_before_the_first_step_its_outputs_are_those_of_the_closed_form_head(
    monkeypatch: pytest.MonkeyPatch, n_classes: int
) -> None:
    x, y = pictures(24, n_classes)
    seen = Watched(monkeypatch)
    tuned(training(x, y, np.linspace(0.5, 2, 24)))
    head = classifier(backbone=convnet(), solver="head", pooling="avg", views="none", size=8)
    head.fit(x, y, np.linspace(0.5, 2, 24))

    expected = head.decision_function(x).reshape(24, -1)
    assert head.fitted_.preprocess == CROPPED
    images = open_images(load_samples(x, y), CROPPED)
    with torch.no_grad():
        found = seen.starts[0].eval()(images.batch(torch.arange(24)))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    assert found.shape == (24, 1 if n_classes == 2 else 3)


def test_it_fits_the_training_samples_better_than_the_head_does() -> None:
    end = of_tensors(epochs=30)
    targets, start = end.encoder.data.targets, end.start
    begun = start.data.constant + start.features @ start.head.solve(start.choice.mu)[:, :-1].T
    begun = begun + start.head.solve(start.choice.mu)[:, -1]
    now = end.rows(end.encoder.data.images, "none")[:, 0]
    assert float((now - targets).square().sum()) < 0.9 * float((begun - targets).square().sum())


# --- the learning rate ------------------------------------------------------------------------------------------------


def largest_curvature(start: Network, x: Tensor, targets: Tensor, weights: Tensor) -> float:
    """Of ½ Σ s‖f − t‖² / Σ s over all weights, from the whole Hessian in float64."""
    net = copy.deepcopy(start).double()
    names, sizes = [n for n, _ in net.named_parameters()], [w.shape for w in net.parameters()]
    inner = nn.Sequential(net.body, net.head)  # `Network` casts to float32
    keys = [n for n, _ in inner.named_parameters()]
    assert [k.partition(".")[2] for k in keys] == [n.partition(".")[2] for n in names]

    def loss(flat: Tensor) -> Tensor:
        parts = flat.split([s.numel() for s in sizes])
        f = functional_call(inner, {k: p.view(s) for k, p, s in zip(keys, parts, sizes, strict=True)}, (x,))
        return 0.5 * (weights * (f - targets).square().sum(1)).sum() / weights.sum()

    at = torch.cat([w.detach().flatten() for w in net.parameters()])
    return float(torch.linalg.eigvalsh(hessian(loss)(at))[-1])


def test_the_rate_is_that_of_the_largest_curvature(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, w = Watched(monkeypatch), np.linspace(0.2, 2, 24)
    end = of_tensors(w)
    x = torch.tensor(T[0])
    curvature = largest_curvature(seen.starts[0], x, end.encoder.data.targets, torch.tensor(w))
    assert seen.rates == [end.rate]
    assert end.rate * curvature == pytest.approx(RATE, rel=0.1)


def test_of_several_batches_the_largest_curvature_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    found, seen = iter([2.0, 5.0, 100.0]), Watched(monkeypatch)
    monkeypatch.setattr(module, "sharpness", lambda *_: next(found))
    end = tuned(training(X, Y, minibatch=6))  # four batches
    assert seen.rates == [end.rate] == [RATE / 5]


def test_the_rate_is_halved_as_long_as_the_loss_rises(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = [(2.0, 1.0, 3.1), (1.0, float("nan")), (1.0, 3.0, 1.4)]
    seen, said = Watched(monkeypatch, losses), Recorder()
    end = tuned(training(X, Y, progress=said))
    first = seen.rates[0]
    assert seen.rates == [first, first / 2, first / 4]
    assert end.rate == first / 4
    assert end.backbone.spec["moved"]["rate"] == first / 4
    assert [line for line in said.said if "half" in line] == [
        f"the loss rises at a learning rate of {rate:.1e}; half of it is tried" for rate in seen.rates[:2]
    ]
    for start in seen.starts[1:]:  # every time from the closed-form head on
        assert all(torch.equal(a, b) for a, b in zip(start.parameters(), seen.starts[0].parameters(), strict=True))


def test_a_rate_that_is_really_too_high_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RATE", 200.0)
    monkeypatch.setattr(module, "HALVINGS", 20)
    seen = Watched(monkeypatch)
    end = of_tensors(epochs=10)
    assert 3 <= len(seen.rates) <= 10
    assert end.rate == seen.rates[0] / 2 ** (len(seen.rates) - 1)
    assert not seen.ends[-1].diverged
    assert sum(seen.ends[-1].losses[-2:]) <= NOISE * sum(seen.ends[-1].losses[:2])
    assert all(e.diverged or sum(e.losses[-2:]) > NOISE * sum(e.losses[:2]) for e in seen.ends[:-1])


def test_a_loss_that_always_rises_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Watched(monkeypatch, [(1.0, 2.0)] * 10)
    with pytest.raises(LQFError, match="its loss rises at every learning rate that was tried"):
        tuned(training(X, Y))
    assert seen.rates == [seen.rates[0] / 2**k for k in range(HALVINGS + 1)]


# --- what it gives back -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("views", ["none", "flip", "crops4"])
def test_rows_are_the_network_s_own_outputs_of_every_view(monkeypatch: pytest.MonkeyPatch, views: str) -> None:
    seen = Watched(monkeypatch)
    end, (new, labels) = tuned(training(X, Y)), pictures(5, seed=4)
    found = end.rows(open_images(load_samples(new, labels), CROPPED), views)
    preprocess = replace(CROPPED, views=views)
    images = open_images(load_samples(new, labels), preprocess)
    net = seen.ends[-1].network.double()
    with torch.no_grad():
        expected = torch.stack(
            [
                net.head(net.body(normalize(images.batch(torch.arange(5), v), preprocess, torch.float64)))
                for v in range(preprocess.n_views)
            ],
            1,
        )
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    if views != "none":
        assert float((found[:, 0] - found[:, 1]).abs().max()) > 1e-2


def test_two_classes_have_one_output() -> None:
    x, y = pictures(24, 2)
    end = tuned(training(x, y))
    assert end.head.shape == (1, 6)
    assert end.rows(end.encoder.data.images, "none").shape == (24, 1, 1)


def test_a_weight_of_two_is_a_sample_twice() -> None:
    x, y = T
    weights = np.ones(24)
    weights[:4] = 2
    index = np.concatenate([np.arange(24), np.arange(4)])
    one, two = of_tensors(weights, minibatch=64), of_tensors(x=x[index], y=y[index], minibatch=64)
    plain = of_tensors(minibatch=64)
    assert one.rate == pytest.approx(two.rate, rel=1e-4)
    torch.testing.assert_close(one.head, two.head, rtol=1e-3, atol=1e-4)
    for a, b in zip(one.backbone.body.parameters(), two.backbone.body.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    assert not torch.allclose(one.head, plain.head, atol=1e-2)


def test_the_same_seed_gives_the_same_network() -> None:
    before = torch.get_rng_state()
    one, two, other = (tuned(training(X, Y, seed=seed)) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert one.rate == two.rate
    assert torch.equal(one.head, two.head)
    assert all(
        torch.equal(a, b) for a, b in zip(one.backbone.body.parameters(), two.backbone.body.parameters(), strict=True)
    )
    assert not torch.allclose(one.head, other.head, atol=1e-6)


def test_networks_that_are_given_stay_as_they_are() -> None:
    net = convnet()
    backbone = load_backbone(net)
    own = [net, backbone.body]
    before = [{k: v.clone() for k, v in m.state_dict().items()} for m in own]
    end = tuned(training(X, Y), backbone)
    for m, kept in zip(own, before, strict=True):
        assert m.state_dict().keys() == kept.keys()
        assert all(torch.equal(v, kept[k]) for k, v in m.state_dict().items())
    assert not any(m.training for m in backbone.body.modules())
    assert not any(w.requires_grad for w in (*backbone.body.parameters(), *end.backbone.body.parameters()))
    assert "moved" not in backbone.spec
    assert end.backbone.spec["moved"] == {"epochs": 3, "rate": end.rate}
    assert any(
        not torch.equal(a, b) for a, b in zip(backbone.body.parameters(), end.backbone.body.parameters(), strict=True)
    )


def test_many_processes_are_refused() -> None:
    with short(), pytest.raises(LQFError, match="start it without torchrun"):
        finetuned(training(X, Y, world=World(0, 2)), load_backbone(convnet()))
