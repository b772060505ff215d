"""Effects on one sum of outputs of every image are sums of the effects on the outputs, by fewer passes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fits import FIXED, classifier, convnet, data, pictures
from lqf.analysis import Analysis, by_kernel
from lqf.kernels import cross
from passes import closely

X, Y = data(18)
NEW = data(4, seed=5)[0]
WEIGHTS = torch.tensor([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0], [0.3, 0.3, 0.4], [-1.0, 0.0, 1.0]], dtype=torch.float64)
FITS: dict[str, dict[str, Any]] = {
    "head": {"solver": "head"},
    "dense": {"solver": "dense", **FIXED},
    "dense, w0": {"solver": "dense", "form": "w0", "head": "random", "weight_decay": 0.1},
    "dense, random point": {"solver": "dense", "head": "random", **FIXED},
    "pcg": {"solver": "pcg", "loo": "none", "preconditioner": "none", "tol": 1e-9, "max_passes": 400, **FIXED},
}


def both(analysis: Analysis, new: Any, weights: Tensor, **of: Any) -> tuple[Tensor, Tensor]:
    queries = analysis.queries(new)
    by_sums = analysis.method.effects_on_sums(queries, weights, analysis.units)
    by_output = analysis.method.effects(queries, analysis.units, None)
    assert (by_sums.level, len(by_sums.value)) == (by_output.level, len(by_output.value))
    return by_sums.value, (by_output.value * weights).sum(2)


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("groups", [False, True], ids=["samples", "groups"])
def test_they_are_sums_of_the_effects_on_outputs(name: str, groups: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    closely(monkeypatch, 1e-9)
    of = [f"g{i // 2}" for i in range(18)] if groups else None
    model = classifier(**FITS[name]).fit(X, Y, groups=of)
    sums, expected = both(model.analyse(X), NEW, WEIGHTS)
    assert torch.allclose(sums, expected, rtol=1e-6, atol=1e-7 * float(expected.abs().max()))
    assert float(expected.abs().max()) > 0


@pytest.mark.parametrize("method", ["auto", "kfac"])
def test_of_pictures_in_several_views(method: str) -> None:
    x, y = pictures(12)
    model = classifier(backbone=convnet(), views="flip", size=8, pooling="avg", **FIXED).fit(x, y)
    sums, expected = both(model.analyse(x, method=method), pictures(4, seed=3)[0], WEIGHTS)
    assert torch.allclose(sums, expected, rtol=1e-8, atol=1e-9 * float(expected.abs().max()))


def test_of_two_classes() -> None:
    x, y = data(12, 2)
    model = classifier(**FIXED).fit(x, y)
    sums, expected = both(model.analyse(x), data(3, 2, seed=4)[0], torch.tensor([[1.0], [-1.0], [2.0]]).double())
    assert torch.allclose(sums, expected, rtol=1e-8, atol=1e-12)


def test_the_kernel_by_products_is_that_by_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    model = classifier(**FIXED).fit(X, Y)
    found = []
    for few in (0, 4):
        monkeypatch.setattr(by_kernel, "FEW", few)
        found.append(model.analyse(X).influence(NEW).effects)
    assert torch.allclose(*found, rtol=1e-9, atol=1e-12)


def test_a_sum_takes_one_pass_for_every_image(monkeypatch: pytest.MonkeyPatch) -> None:
    analysis = classifier(**FIXED).fit(X, Y).analyse(X)
    seen: list[int] = []
    known = cross.QuadraticProblem.body_jvp
    monkeypatch.setattr(cross.QuadraticProblem, "body_jvp", lambda p, v: (seen.append(len(v)), known(p, v))[1])
    analysis.method.effects_on_sums(analysis.queries(NEW), WEIGHTS, analysis.units)
    assert sum(seen) == len(NEW)
