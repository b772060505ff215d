"""The noise is calibrated as the theorem says, no neighbour moves the optimum further than its bound, and a released
model holds nothing of its training images.
"""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from dense import rows
from fits import classifier, data, network, reopened
from lqf import LQFClassifier
from lqf.changes.privacy.bounded import Bounded
from lqf.changes.privacy.gaussian import loss_of_privacy, noise_multiplier, normal
from lqf.changes.privacy.release import Budget
from lqf.changes.privacy.sensitivity import RESIDUAL, sensitivity
from lqf.errors import LQFError
from lqf.linear.model import with_one

pytestmark = pytest.mark.usefixtures("one_thread")
X, Y = data(18)
NEW, _ = data(9, seed=5)
BUDGETS = [(0.1, 1e-6), (0.5, 1e-5), (1.0, 1e-5), (4.0, 1e-3), (32.0, 1e-7), (60.0, 1e-5)]


def fitted(n_classes: int = 3, **more: Any) -> LQFClassifier:
    x, y = data(18, n_classes)
    return classifier(**{"solver": "head", "weight_decay": 0.1, **more}).fit(x, y)


def linear(**more: Any) -> LQFClassifier:
    decay = {"weight_decay": 0.1, "body_weight_decay": 0.2, "form": "centred", "linearize": "all"}
    return classifier(**{"solver": "dense", **decay, **more}).fit(X, Y)


# --- the mechanism ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_the_multiplier_is_that_of_dp_accounting(epsilon: float, delta: float) -> None:
    accounting = pytest.importorskip("dp_accounting")
    expected = accounting.get_sigma_gaussian(epsilon, delta)
    assert noise_multiplier(epsilon, delta) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_the_multiplier_spends_the_whole_budget_by_the_formula(epsilon: float, delta: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    sigma = noise_multiplier(epsilon, delta)
    a, b = 0.5 / sigma - epsilon * sigma, -0.5 / sigma - epsilon * sigma
    assert stats.norm.cdf(a) - math.exp(epsilon + stats.norm.logcdf(b)) == pytest.approx(delta, rel=1e-6)
    assert loss_of_privacy(epsilon, sigma) <= delta * (1 + 1e-9)


def test_secure_noise_is_normal_and_never_the_same() -> None:
    one, two = normal(20000), normal(20000)
    assert one.isfinite().all()
    assert not torch.equal(one, two)
    assert abs(float(one.mean())) < 0.04
    assert float(one.std()) == pytest.approx(1, abs=0.03)
    assert torch.equal(normal(5, seed=1), normal(5, seed=1))


# --- the sensitivity --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.05, 0.5, 3.0, 40.0])
@pytest.mark.parametrize("views", [1, 2])
def test_no_replaced_image_moves_the_optimum_further_than_the_bound(mu: float, views: int) -> None:
    n, p, c, target = 7, 4, 3, 2.0
    generator = torch.Generator().manual_seed(3)

    def sample() -> tuple[Tensor, Tensor]:
        z = torch.randn(views, p, dtype=torch.float64, generator=generator)
        r = torch.randn(1, c, dtype=torch.float64, generator=generator)
        return z / z.norm(dim=1, keepdim=True) / views**0.5, (target * r / r.norm()).expand(views, c) / views**0.5

    def optimum(samples: list[tuple[Tensor, Tensor]]) -> Tensor:
        z, r = (torch.cat(parts) for parts in zip(*samples, strict=True))
        return torch.linalg.solve(z.T @ z + mu * torch.eye(p, dtype=z.dtype), z.T @ r)

    others = [sample() for _ in range(12)]
    straight = torch.eye(p, dtype=torch.float64)[:1].expand(views, p) / views**0.5
    up = torch.tensor([[target, 0.0, 0.0]], dtype=torch.float64).expand(views, c) / views**0.5
    others += [(straight, up), (-straight, up), (straight, -up)]
    bound = sensitivity(n, mu, target=target)
    worst = 0.0
    for given in ([sample() for _ in range(n)], [(straight * min(1, mu / n) ** 0.5, up)] * n, [(straight, up)] * n):
        here = optimum(given)
        worst = max(
            worst, *(float((here - optimum([*given[:i], o, *given[i + 1 :]])).norm()) for i in range(n) for o in others)
        )
    assert worst <= bound
    assert worst > bound / 8  # and the bound is no empty one


def test_the_bound_falls_with_strength_and_images() -> None:
    assert sensitivity(100, 10.0, target=1.0) > sensitivity(100, 20.0, target=1.0)
    assert sensitivity(100, 10.0, target=1.0) > sensitivity(1000, 100.0, target=1.0)
    huge = sensitivity(100, 1e9, target=1.0)  # far from the optimum of anything: 2 R T / μ
    assert huge == pytest.approx(2e-9, rel=1e-3)


@pytest.mark.parametrize("shape", [(6, 9), (9, 4)])
def test_bounded_problems_are_solved_exactly_and_bad_solutions_refused(shape: tuple[int, int]) -> None:
    z = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    r = torch.randn(shape[0], 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = torch.linalg.solve(z.T @ z + 0.3 * torch.eye(shape[1], dtype=z.dtype), z.T @ r)
    for bounded in (Bounded(None, z, r, 6, 1.0, 1.0), Bounded(z @ z.T, None, r, 6, 1.0, 1.0)):
        a = bounded.solve(0.3)
        torch.testing.assert_close(z.T @ a, expected, rtol=0, atol=1e-12)
        bounded.check(a, 0.3, 1e-9)
        with pytest.raises(LQFError, match="nothing was released"):
            bounded.check(1.01 * a, 0.3, 1e-9)


# --- the model --------------------------------------------------------------------------------------------------------


def noiseless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lqf.changes.privacy.release.normal", lambda size, seed: torch.zeros(size, dtype=torch.float64))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("clip", [None, 1.5])
def test_a_head_without_its_noise_is_the_ridge_regression_on_bounded_rows(
    monkeypatch: pytest.MonkeyPatch, n_classes: int, clip: float | None
) -> None:
    noiseless(monkeypatch)
    x, y = data(18, n_classes)
    model = fitted(n_classes)
    problem = reopened(model, x, y)
    z, t = with_one(problem.features.double()), (problem.data.targets - problem.data.constant).double()
    long = z.norm(dim=1, keepdim=True)
    z = z / long if clip is None else z * (clip / long).clamp_max(1)
    length = clip or 1.0
    v = torch.linalg.solve(z.T @ z + 0.3 * 18 * length**2 * torch.eye(6, dtype=z.dtype), z.T @ t).T
    model.privatise(epsilon=1, delta=1e-3, clip=clip, weight_decay=0.3, train=x, y=y)
    torch.testing.assert_close(model.fitted_.head, v / (1 if clip else math.sqrt(6)), rtol=0, atol=1e-10)
    privacy = model.report_["privacy"]
    bound = 15 / 2 if n_classes == 2 else 15 * math.sqrt(2 / 3)
    delta = sensitivity(18, privacy["strong_convexity"], row=length, target=bound)
    assert privacy["noise"] == pytest.approx(noise_multiplier(1, 1e-3) * delta * (1 + 2 * RESIDUAL), rel=1e-6)


def test_a_linearised_network_without_its_noise_is_the_regression_on_bounded_jacobians(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noiseless(monkeypatch)
    model = linear()
    problem = reopened(model, X, Y).quadratic
    j, r, _ = rows(problem)  # (n, C, size)
    h = problem.model.head_size
    stretch = torch.ones(j.shape[2], dtype=torch.float64)
    stretch[h:] = (problem.ridge.head / problem.ridge.body) ** 0.5
    phi = j * stretch
    phi = phi / torch.linalg.matrix_norm(phi, ord=2)[:, None, None]
    flat = phi.flatten(0, 1)
    w = torch.linalg.solve(flat.T @ flat + 0.3 * 18 * torch.eye(flat.shape[1], dtype=flat.dtype), flat.T @ r.flatten())
    model.privatise(epsilon=1, delta=1e-3, part="all", weight_decay=0.3, train=X, y=Y)
    found = torch.cat([model.fitted_.head.flatten(), model.fitted_.delta])
    torch.testing.assert_close(found, stretch * w / math.sqrt(6), rtol=0, atol=1e-9)
    assert (
        "the linearisation point (crossfit), a head that was fitted to the labels"
        in model.report_["privacy"]["not_private"]
    )


def test_the_noise_of_body_and_head_has_the_stated_size() -> None:
    one, two = (linear().privatise(epsilon=8, delta=1e-2, part="all", seed=k, train=X, y=Y) for k in (1, 2))
    noise = one.report_["privacy"]["noise"] / math.sqrt(6)
    head = (one.fitted_.head - two.fitted_.head) / noise / math.sqrt(2)
    body = (one.fitted_.delta - two.fitted_.delta) / noise / math.sqrt(2) * math.sqrt(2.0)  # μ_body = 2 μ_head
    assert float(head.std()) == pytest.approx(1, abs=0.5)
    assert float(body.std()) == pytest.approx(1, abs=0.2)


def test_the_strength_depends_on_budget_and_number_alone() -> None:
    strict, loose = (Budget(e, 1e-5).strength(1000, 7.5) for e in (0.5, 8.0))
    assert strict > loose
    assert Budget(0.5, 1e-5).strength(100000, 7.5) < strict
    assert Budget(1, 1e-5, weight_decay=0.7).strength(10, 1.0) == 0.7


def test_a_released_folder_holds_nothing_of_the_training_images(tmp_path: Path) -> None:
    model = fitted()
    model.save(tmp_path / "before")
    held = load_file(tmp_path / "before" / "weights.safetensors")
    model.privatise(epsilon=4, delta=1e-3, train=X, y=Y)
    model.save(tmp_path / "run")
    found = sorted(p.name for p in (tmp_path / "run").iterdir())
    assert found == ["README.md", "model.json", "samples.csv", "weights.safetensors"]
    assert "18 images of 3 classes. The model is (4, 0.001)-diff" in (tmp_path / "run" / "README.md").read_text()
    assert len(list(csv.reader((tmp_path / "run" / "samples.csv").open()))) == 1
    tensors = load_file(tmp_path / "run" / "weights.safetensors")
    assert sorted(tensors) == ["delta", "head", "point"]
    assert "loo" in held
    assert not torch.equal(tensors["head"], held["head"])
    assert not tensors["point"].any()
    meta = json.loads((tmp_path / "run" / "model.json").read_text())
    report = meta["report"]
    assert meta["loo"] is None
    assert meta["train"] is None
    assert meta["tried"] == report["choices"] == report["rungs"] == report["history"] == report["skipped"] == []
    unknown = ("loo_error", "error", "head_loo_error", "relative_residual", "balanced_error", "loo_note")
    assert all(report[name] is None for name in unknown)
    loaded = LQFClassifier.load(tmp_path / "run", backbone=network())
    np.testing.assert_array_equal(loaded.decision_function(NEW), model.decision_function(NEW))
    assert loaded.report_["privacy"]["epsilon"] == 4
    assert loaded.report_["privacy"]["not_private"] == []
    for ask in (loaded.leave_one_out, lambda: loaded.influence(NEW), lambda: loaded.audit(X)):
        with pytest.raises(LQFError, match="released with noise for privacy"):
            ask()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"epsilon": 0}, "epsilon is 0; give a number above 0"),
        ({"delta": 0.0}, "delta is 0.0; give a number above 0"),
        ({"delta": 0.06}, "delta is 0.06, and with 18 images publishing one of them would satisfy it"),
        ({"clip": -1.0}, "clip is -1.0; give a positive number"),
        ({"weight_decay": 0.0}, "weight_decay is 0.0; give a positive number"),
        ({"part": "body"}, "part is 'body'; choose head or all"),
        ({"part": "all"}, "change of the network is bounded by the dense"),
    ],
)
def test_what_is_no_release_is_refused(given: dict[str, Any], sentence: str) -> None:
    model = fitted()
    before = model.fitted_
    with pytest.raises(LQFError, match=sentence):
        model.privatise(**{"epsilon": 1.0, "delta": 1e-5, "train": X, "y": Y, **given})
    assert model.fitted_ is before


def test_what_the_proof_does_not_cover_is_refused() -> None:
    weighted = classifier(solver="head").fit(X, Y, np.arange(18) + 1.0)
    with pytest.raises(LQFError, match="images that all have weight 1"):
        weighted.privatise(epsilon=1, delta=1e-5, train=X, y=Y)
    with pytest.raises(LQFError, match="form centred and dtype float64"):
        linear(form="w0").privatise(epsilon=1, delta=1e-5, part="all", train=X, y=Y)
    twice = fitted().privatise(epsilon=1, delta=1e-5, train=X, y=Y)
    with pytest.raises(LQFError, match="released with noise"):
        twice.privatise(epsilon=1, delta=1e-5, train=X, y=Y)


def test_a_sum_with_a_private_model_claims_no_privacy() -> None:
    private, plain = fitted(), fitted()
    private.privatise(epsilon=4, delta=1e-3, train=X, y=Y)
    assert "privacy" not in (0.5 * private + plain).report_
