"""The linear methods: loss, schedule, optimum by other means, batch normalisation in eval mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from closeness import relative
from dense import jacobian, ridge_regression
from fits import CPU, SMALL, convnet, data, network, opened, pictures
from lqf.backbones import Backbone, load_backbone
from lqf.curvature.damping import Damping
from lqf.errors import LQFError
from lqf.linear.model import with_one
from lqf.solvers import SGD
from lqf.training.random_views import RandomViews
from lqf.utils.progress import SILENT
from lqf_paper.methods.linear import Linear
from lqf_paper.methods.models import Trained, error

N, C = 12, 3
WHOLE: dict[str, Any] = {"batch_size": N, "augment": "none", "dtype": "float64", "weight_decay": 0.1}
"""Every step sees all samples."""


def trained(**options: Any) -> Trained:
    return Linear(**WHOLE | options).fit(net(), opened(*data(N), SMALL), SMALL, device=CPU)


def net(leaky: bool = False) -> Backbone:
    return load_backbone(network(), leaky=leaky)


def whole(model: Trained, scope: str = "all") -> tuple[Tensor, Tensor, Tensor]:
    """Outputs at δ = 0 (N, C), the Jacobian in all unknowns (N, C, size), labels."""
    x, y = data(N)
    body = model.encode or model.model.body
    z = body.value(torch.tensor(x))
    head = torch.einsum("cd,np->ncdp", torch.eye(C, dtype=z.dtype), with_one(z)).flatten(2)
    w = model.model.heads[0]
    f0 = with_one(z) @ w.T
    if scope == "fc":
        return f0, head, torch.tensor(y)
    deep = torch.einsum("cp,npd->ncd", w[:, :-1], jacobian(body, torch.tensor(x)))
    return f0, torch.cat([head, deep], 2), torch.tensor(y)


def optimum(f0: Tensor, jac: Tensor, y: Tensor, decay: float) -> Tensor:
    """δ of the cross entropy by Newton's method on the dense problem."""
    delta = torch.zeros(jac.shape[2], dtype=jac.dtype)

    def loss(d: Tensor) -> Tensor:
        return F.cross_entropy(f0 + jac @ d, y) + decay / 2 * d.square().sum()

    for _ in range(20):
        hessian, gradient = torch.func.hessian(loss)(delta), torch.func.grad(loss)(delta)
        delta = delta - torch.linalg.solve(hessian, gradient)
    assert float(torch.func.grad(loss)(delta).norm()) < 1e-13
    return delta


def closed_form(f0: Tensor, jac: Tensor, y: Tensor) -> Tensor:
    """δ of the squared loss from the normal equations."""
    j, r = jac.flatten(0, 1), (15.0 * F.one_hot(y, C) - f0).flatten()
    return ridge_regression(j, r[:, None], torch.ones_like(r), 0.1 * N)[:, 0]


@pytest.mark.parametrize("kfac", [False, True])
def test_gaf_reaches_the_optimum_of_the_convex_problem(kfac: bool) -> None:
    model = trained(loss="cross_entropy", kfac=kfac, damping=0.1, epochs=600, learning_rate=0.1)
    expected = optimum(*whole(model), decay=0.1)
    torch.testing.assert_close(model.delta, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("kfac", "learning_rate"), [(True, 0.1), (False, 0.03)])
def test_lqf_reaches_its_closed_form(kfac: bool, learning_rate: float) -> None:
    model = trained(kfac=kfac, damping=0.1, epochs=1500, learning_rate=learning_rate)
    torch.testing.assert_close(model.delta, closed_form(*whole(model)), rtol=0, atol=1e-8)


def test_fc_is_logistic_regression() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    model = trained(loss="cross_entropy", scope="fc", head="zero", epochs=1500, learning_rate=0.5)
    assert model.encode is not None
    z = with_one(model.encode.value(torch.tensor(data(N)[0]))).numpy()
    sklearn = linear_model.LogisticRegression(C=1 / (0.1 * N), fit_intercept=False, tol=1e-12, max_iter=10000)
    sklearn.fit(z, data(N)[1])
    np.testing.assert_allclose(model.delta.view(C, -1).numpy(), sklearn.coef_, atol=1e-6)


def test_the_preconditioner_of_a_head_alone_is_its_hessian() -> None:
    """One step without momentum from zero, η = 1, is Newton's: the optimum."""
    model = trained(scope="fc", head="zero", kfac=True, momentum=0.0, damping=0.0, epochs=1, learning_rate=1.0)
    torch.testing.assert_close(model.delta, closed_form(*whole(model, "fc")), rtol=0, atol=1e-9)


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_the_steps_are_momentum_on_the_penalised_loss_under_a_cosine(loss: Any) -> None:
    model = trained(loss=loss, epochs=2, learning_rate=0.01)
    f0, jac, y = whole(model)
    delta = torch.zeros(jac.shape[2], dtype=jac.dtype)
    velocity = torch.zeros_like(delta)
    for rate in (0.01, 0.005):  # the cosine after none and after half of the run
        at = delta.clone().requires_grad_()
        f = f0 + jac @ at
        fit = F.cross_entropy(f, y) if loss == "cross_entropy" else 0.5 * (f - 15 * F.one_hot(y, C)).square().sum() / N
        (g,) = torch.autograd.grad(fit + 0.05 * at.square().sum(), at)
        velocity = 0.9 * velocity + g
        delta = delta - rate * velocity
    torch.testing.assert_close(model.delta, delta, rtol=0, atol=1e-12)


def test_adam_takes_its_first_moment_from_beta1() -> None:
    one, two = (trained(optimiser="adam", learning_rate=1e-3, epochs=2, beta1=b) for b in (0.5, 0.9))
    first = trained(optimiser="adam", learning_rate=1e-3, epochs=1)
    assert float(first.delta.abs().max()) == pytest.approx(1e-3, rel=1e-4)  # every weight moves by η at first
    assert not torch.allclose(one.delta, two.delta, atol=1e-9)


@pytest.mark.parametrize(
    "options", [{}, {"kfac": True}, {"loss": "cross_entropy"}, {"scope": "fc", "kfac": True}], ids=str
)
def test_linear_training_learns_from_random_crops(options: dict[str, Any]) -> None:
    rate = 0.1 if options.get("kfac") else 0.01
    how = Linear(**{"epochs": 20, "batch_size": 6, "learning_rate": rate, **options})
    model = how.fit(load_backbone(convnet().float()), opened(*pictures(60), SMALL), SMALL, device=CPU)
    assert len(model.losses) == 20
    assert model.losses[-1] < 0.7 * model.losses[0]
    wrong = error(model, opened(*pictures(30, seed=1), SMALL))
    assert wrong is not None
    assert wrong < 0.2  # chance: 0.67


def test_batch_normalisation_keeps_its_statistics_and_no_image_depends_on_its_batch() -> None:
    backbone = load_backbone(convnet().float())
    before = {n: t.clone() for n, t in backbone.body.state_dict().items()}
    images = opened(*pictures(12), SMALL)
    model = Linear(epochs=3, batch_size=4, learning_rate=1e-3).fit(backbone, images, SMALL, device=CPU)
    assert all(torch.equal(t, before[n]) for n, t in backbone.body.state_dict().items())
    assert not any(m.training for m in backbone.body.modules())
    torch.testing.assert_close(model.outputs(images, batch_size=12), model.outputs(images, batch_size=1))


def test_a_probe_head_is_where_the_expansion_starts() -> None:
    model = trained(head="probe", epochs=1, learning_rate=1e-12)
    assert error(model, opened(*data(N), SMALL)) == 0.0
    random = trained(head="random", epochs=1, learning_rate=1e-12)
    assert float((model.model.heads - random.model.heads).abs().max()) > 0.1


def test_a_run_that_diverges_has_no_error() -> None:
    assert error(trained(learning_rate=1e6, epochs=100), opened(*data(N), SMALL)) is None


def test_the_same_seed_gives_the_same_model() -> None:
    one, two, other = (trained(epochs=2, batch_size=5, seed=s) for s in (0, 0, 1))
    assert torch.equal(one.delta, two.delta)
    assert not torch.equal(one.delta, other.delta)


@pytest.mark.parametrize("options", [{}, {"scope": "fc", "kfac": True, "damping": 0.0}], ids=str)
def test_weight_two_counts_like_a_sample_given_twice(options: dict[str, Any]) -> None:
    x, y = data(6)
    index = np.array([0, 0, 1, 2, 3, 4, 5])
    weighted = opened(x, y, SMALL)
    object.__setattr__(weighted.samples, "weights", np.array([2.0, 1, 1, 1, 1, 1]))
    how = Linear(**WHOLE | options | {"epochs": 3})
    one = how.fit(net(), weighted, SMALL, device=CPU)
    two = replace(how, batch_size=7).fit(net(), opened(x[index], y[index], SMALL), SMALL, device=CPU)
    torch.testing.assert_close(one.delta, two.delta, rtol=1e-6, atol=1e-9)


def test_wrong_choices_are_refused() -> None:
    with pytest.raises(LQFError, match="loss is 'hinge'; choose cross_entropy, mse"):
        Linear(loss="hinge")  # type: ignore[arg-type]
    with pytest.raises(LQFError, match="damping is 'some'; give a number, or \"auto\""):
        Linear(damping="some")
    with pytest.raises(LQFError, match="learning_rate is 'fast'"):
        Linear(learning_rate="fast")
    with pytest.raises(LQFError, match="zero head"):
        Linear(head="zero")


@pytest.mark.parametrize("kind", ["factored", "trace", "none"])
def test_its_steps_are_those_of_the_librarys_solver(kind: Any) -> None:
    """Full batches: one implementation of steps and damping, δ alike."""
    how = Linear(**WHOLE | {"kfac": True, "damping": 0.5, "damping_kind": kind, "epochs": 15, "learning_rate": 0.02})
    images = opened(*data(N), SMALL)
    training = how.posed(net(), images, SMALL, device=CPU)
    damped = Damping(0.5, kind, N).of(training.curvature(SILENT), training.problem)
    solver = SGD(learning_rate=0.02, epochs=15, batch_size=N, seed=7)
    expected = solver.solve(training.problem, damped).delta
    torch.testing.assert_close(how.fit(net(), images, SMALL, device=CPU).delta, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize("options", [{}, {"scope": "fc", "head": "zero"}], ids=str)
def test_outputs_in_test_are_those_of_training(precision: Any, options: dict[str, Any]) -> None:
    """At the δ that a run ends with, the loss of one more step at rate zero is that of the outputs."""
    images = opened(*pictures(12), SMALL)
    how = Linear(epochs=3, batch_size=12, augment="none", learning_rate=1e-3, precision=precision, **options)
    backbone = load_backbone(convnet().float())
    model = how.fit(backbone, images, SMALL, device=CPU)
    training = how.posed(backbone, images, SMALL, device=CPU)
    rows, given = next(iter(training._batches(RandomViews(images, SMALL, "none", CPU))))
    labels = training.labels[rows]
    loss = training._gradient(training._quick(), training._input(given), labels, torch.ones(12), model.delta)[0]
    outputs = model.outputs(images)[rows]
    expected = 0.5 * (outputs - 15 * F.one_hot(labels, C)).square().sum(1).mean()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    if precision == "bf16":
        wide = replace(model, precision="float32").outputs(images)
        assert relative(outputs, wide[rows]) > 1e-4


def test_a_rate_or_a_damping_of_its_own_keeps_the_loss_falling() -> None:
    images, backbone = opened(*pictures(30), SMALL), load_backbone(convnet().float())
    for options in (
        {"learning_rate": "stable", "damping": 0.1},
        {"learning_rate": 0.1, "damping": "auto"},
        {"learning_rate": "stable", "kfac": False},
    ):
        how = Linear(**{"kfac": True, "epochs": 8, "batch_size": 6, "weight_decay": 1e-4, **options})
        model = how.fit(backbone, images, SMALL, device=CPU)
        assert model.losses[-1] < 0.3 * model.losses[0]
        if how.kfac:
            assert 0 < model.report["preconditioned"]["by_count"] <= 1
            assert model.report["damping"] == (
                0.1 if options["damping"] == 0.1 else pytest.approx(model.report["damping"])
            )
        assert ("learning_rate" in model.report) == (options["learning_rate"] == "stable")


def test_a_run_ends_when_its_images_are_learned() -> None:
    images, backbone = opened(*pictures(30), SMALL), load_backbone(convnet().float())
    how = Linear(
        epochs=60, batch_size=6, learning_rate=0.1, damping="auto", kfac=True, schedule="constant", stop_below=0.005
    )
    model = how.fit(backbone, images, SMALL, device=CPU)
    assert 5 <= len(model.losses) < 60


def test_the_scale_of_a_random_head() -> None:
    one = trained(epochs=1, learning_rate=1e-12).model.heads
    two = trained(epochs=1, learning_rate=1e-12, head_std=0.01).model.heads
    torch.testing.assert_close(two, one * 0.01 * (one.shape[-1] - 1) ** 0.5)


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "rounding"), [("float32", 2e-3), ("bf16", 0.02)])
@pytest.mark.parametrize("options", [{"kfac": True}, {"loss": "cross_entropy"}, {"scope": "fc", "kfac": True}], ids=str)
def test_cuda_equals_cpu(options: dict[str, Any], precision: Any, rounding: float) -> None:
    how = Linear(**{"epochs": 5, "batch_size": 6, "learning_rate": 1e-3, "precision": precision, **options})
    images = opened(*pictures(30), SMALL)
    models = [how.fit(load_backbone(convnet().float()), images, SMALL, device=torch.device(d)) for d in ("cpu", "cuda")]
    assert relative(models[1].outputs(images), models[0].outputs(images)) < rounding
