"""Conjugate gradients after a change: what they say of where they ended is what is there, whatever they made use of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fits import classifier, data
from lqf import LQFClassifier
from lqf.changes.samples.followed import Followed
from lqf.fitting import Context, TrainingProblem
from lqf.fitting.knowledge import Knowledge
from lqf.fitting.reopen import reopen

N = 40
X, Y = data(N + 6, 3)


@pytest.fixture(scope="module")
def fitted() -> LQFClassifier:
    return classifier(solver="pcg", loo="none", tol=0.05, max_passes=100).fit(X[:N], Y[:N])


def changed(fitted: LQFClassifier, what: str, **known: Any) -> tuple[LQFClassifier, Any]:
    """A copy of the model after a change, and what that says."""
    model = LQFClassifier(**fitted.get_params())
    kept = fitted.fitted_.known.tensors
    tensors = {name: t for name, t in kept.items() if name not in known.get("without", ())}
    model._adopt(replace(fitted.fitted_, known=Knowledge(tensors)))
    if what == "add":
        return model, model.add(X[N:], Y[N:], train=X[:N])
    return model, model.forget(["3"] if what == "forget one" else list(map(str, range(0, 30, 3))), train=X[:N])


@pytest.mark.parametrize("without", [(), ("gap",), ("residuals",), ("ratio", "gap", "residuals")])
@pytest.mark.parametrize("what", ["forget one", "forget ten", "add"])
def test_the_residual_that_is_certified_is_the_one_that_is_there(
    what: str, without: tuple[str, ...], fitted: LQFClassifier
) -> None:
    model, said = changed(fitted, what, without=without)
    outcome, now = said.members[0], model.fitted_
    problem = _reopened(model)
    delta = torch.cat([now.head.reshape(-1), now.delta])
    gradient, residuals = problem.quadratic.measure(delta)
    assert outcome.residual == pytest.approx(float(gradient.norm()), rel=1e-5)
    torch.testing.assert_close(now.known.tensors["residuals"], residuals, rtol=1e-7, atol=1e-9)
    assert outcome.converged


def _reopened(model: LQFClassifier) -> TrainingProblem:
    fitted = replace(model.fitted_, known=None)
    return reopen(fitted, model._kept_images, Context(fitted.settings, torch.device("cpu")))


def test_one_product_is_enough_for_a_sample_that_counted_for_little() -> None:
    weights = np.ones(N)
    weights[3] = 1e-2
    model = classifier(solver="pcg", loo="none", tol=0.05, max_passes=100).fit(X[:N], Y[:N], sample_weight=weights)
    before, passes = model.fitted_.delta, model.report_["passes"]
    outcome = model.forget(["3"], train=X[:N]).members[0]
    assert (outcome.passes, outcome.passes_of_fit) == (1, passes)
    assert passes > 6
    assert not torch.equal(model.fitted_.delta, before)


def test_a_step_is_the_best_along_its_direction(fitted: LQFClassifier) -> None:
    model, _ = changed(fitted, "forget one")
    schur = _reopened(model).schur()
    x = model.fitted_.delta
    p = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(0))
    there, left = schur.best_step(x, schur.left(x), p)
    torch.testing.assert_close(left, schur.left(there), rtol=1e-8, atol=1e-8)
    assert float(schur.residual(there) @ p) == pytest.approx(0, abs=1e-7 * float(p.norm() * schur.residual(x).norm()))
    r = schur.residual_of(there, left)
    torch.testing.assert_close(r, schur.residual(there), rtol=1e-6, atol=1e-7)


def test_what_is_left_is_followed_through_steps_and_measurements(fitted: LQFClassifier) -> None:
    model, _ = changed(fitted, "forget one")
    schur = _reopened(model).schur()
    x = model.fitted_.delta
    followed, draw = Followed(schur, x), torch.Generator().manual_seed(0)
    for length in (0.3, -2.0):
        p = torch.randn(x.shape, dtype=x.dtype, generator=draw)
        torch.testing.assert_close(followed.product(p[None])[0], schur.exact_product(p[None])[0])
        x = x + length * p
        followed.keep(x[None], 1)
        torch.testing.assert_close(followed.left, schur.left(x), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(followed.residual(x[None], torch.tensor([0]))[0], schur.residual(x))
    followed.keep(x[None], 2)
    torch.testing.assert_close(followed.left, schur.left(x), rtol=1e-8, atol=1e-8)


def test_what_a_fit_left_is_kept_in_its_folder(fitted: LQFClassifier, tmp_path: Any) -> None:
    fitted.save(tmp_path / "run")
    known = LQFClassifier.load(tmp_path / "run", backbone=fitted.backbone).fitted_.known.read(print)
    for name in ("ratio", "gap", "residuals"):
        assert torch.equal(known[name], fitted.fitted_.known.tensors[name])
    assert np.isfinite(float(known["ratio"]))
