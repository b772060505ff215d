"""Without the kernel: solves give the same answers as real refits, to the tolerance of the solves."""

from typing import Any

import numpy as np
import pytest
import torch

from closeness import relative
from dense import ridge_regression
from fits import FIXED, classifier, convnet, data, pictures
from lqf import LQFClassifier
from lqf.analysis.by_kernel import ByKernel
from lqf.analysis.changed_head import ChangedHead
from lqf.kernels.ridge import KernelRidge
from passes import closely
from real_refits import Refitted

TOL = 1e-3
N = 12


def fitted(n_classes: int = 3, *, groups: bool = False, **params: Any) -> tuple[LQFClassifier, np.ndarray, np.ndarray]:
    x, y = data(N, n_classes)
    s = np.random.default_rng(3).uniform(0.5, 2, N)
    g = np.arange(N) // 2 if groups else None
    params = {**FIXED, "loo": "none", "linearize": "second", "batch_size": 64, "tol": 1e-7, "max_passes": 400, **params}
    model = classifier(solver="pcg", **params)
    return model.fit(x, y, s, groups=g), x, y


def refits(n_classes: int = 3, **params: Any) -> Refitted:
    model, x, _ = fitted(n_classes, **params)
    return Refitted(model, x, torch.tensor(data(3, n_classes, seed=7)[0]))


@pytest.mark.parametrize("params", [{}, {"form": "w0", "body_weight_decay": "auto"}, {"linearize": "all"}], ids=str)
def test_every_sample_s_effect_is_that_of_a_refit_without_it(params: dict[str, Any]) -> None:
    refit = refits(**params)
    some = range(0, N, 4) if "linearize" in params else range(N)
    influence = refit.analysis.influence(refit.test.numpy(), units=some)
    assert influence.level == "solved"
    whole = refit.outputs()
    assert relative(influence.outputs, whole) < TOL
    for k, i in enumerate(some):
        assert relative(influence.effects[k], refit.without([i]) - whole) < TOL


def test_with_one_output_all_effects_come_from_one_kernel() -> None:
    refit = refits(2)
    influence = refit.analysis.influence(refit.test.numpy())
    assert influence.level == "solved"
    whole = refit.outputs()
    for i in range(N):
        assert relative(influence.effects[i], refit.without([i]) - whole) < TOL


def test_with_many_outputs_the_effects_of_all_are_estimates() -> None:
    """Better than none of the leverages, and correlated with the truth; the sum of the leverages is well known."""
    refit = refits()
    estimated = refit.analysis.influence(refit.test.numpy())
    assert estimated.level == "estimated"
    exact = ByKernel.of(refit.analysis.model, refit.analysis.problem)
    queries, units = refit.analysis.queries(refit.test.numpy()), refit.analysis.units
    truth = exact.effects(queries, units, None).value
    first_order = exact.dual.effects(exact._response(queries), exact.dual.e, units)
    assert (estimated.effects - truth).norm() < 0.9 * (first_order - truth).norm()
    assert float(torch.corrcoef(torch.stack([estimated.effects.flatten(), truth.flatten()]))[0, 1]) > 0.7
    lam = exact.dual.ridge.lam
    trace, error = refit.analysis.method._leverages.trace()  # type: ignore[attr-defined]
    assert abs(trace - float((lam / (lam + exact.dual.mu)).sum())) < 4 * error


def test_groups_and_views_leave_together() -> None:
    refit = refits(groups=True)
    influence = refit.analysis.influence(refit.test.numpy(), units=["3", 5])
    whole = refit.outputs()
    for k, u in enumerate([3, 5]):
        assert relative(influence.effects[k], refit.without([2 * u, 2 * u + 1]) - whole) < TOL
    x, y = pictures(9, side=40)
    params = {"backbone": convnet(), "size": 32, "views": "flip", "loo": "none", "linearize": "deep", **FIXED}
    test = pictures(1, side=40, seed=5)[0]
    effects = [
        classifier(solver=s, **params).fit(x, y).analyse(x).influence(test, units=[2]).effects for s in ("pcg", "dense")
    ]
    assert relative(*effects) < TOL


def test_chosen_samples_are_left_out_by_refits() -> None:
    model, x, _ = fitted()
    exact = model.analyse(x, method="dense").leave_one_out([4, 9])
    loo = model.analyse(x).leave_one_out([4, 9])
    assert (exact.level, loo.level) == ("exact", "solved")
    assert relative(loo.outputs, exact.outputs) < TOL
    model, x, _ = fitted(loo="auto")
    every = model.analyse(x).leave_one_out()
    assert every.level == "estimated"
    torch.testing.assert_close(every.outputs, model.leave_one_out().outputs.double())


def test_what_if_is_a_refit_on_changed_data(monkeypatch: pytest.MonkeyPatch) -> None:
    closely(monkeypatch, 1e-5)
    refit = refits()
    y = refit.analysis.labels
    factors = torch.ones(N, dtype=torch.float64)
    factors[[2, 5]], factors[7] = 0, 2
    labels = y.clone()
    labels[11] = (labels[11] + 1) % 3
    answer = refit.analysis.what_if(refit.test.numpy(), without=[2, 5], relabel={11: int(labels[11])}, weights={7: 2.0})
    assert answer.level == "solved"
    assert relative(answer.outputs - answer.before, refit.outputs(factors, labels) - refit.outputs()) < TOL


def test_information_is_sketched_within_a_standard_error_that_shrinks_with_the_probes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the true leave-one-out residuals in place of their estimates, only the probes err."""
    model, x, _ = fitted()
    test = data(3, seed=7)[0]
    dense = model.analyse(x, method="dense")
    exact, e_loo = dense.information(test), dense.method.dual.out_of_sample(dense.units)  # type: ignore[attr-defined]
    analysis = model.analyse(x)
    assert analysis.information(test).level == "estimated"
    monkeypatch.setattr(analysis.method, "_estimated", lambda _: e_loo)
    errors = []
    for probes in (16, 256):
        monkeypatch.setattr("lqf.analysis.leverages.PROBES", probes)
        sketched = analysis.information(test)
        assert sketched.standard_error is not None
        gap = (sketched.values - exact.values).abs() / sketched.standard_error
        assert float((gap < 3).double().mean()) > 0.9
        assert float(torch.corrcoef(torch.stack([sketched.values, exact.values]))[0, 1]) > 0.9
        errors.append(float((sketched.standard_error / exact.values).mean()))
    assert errors[1] == pytest.approx(errors[0] / 4, rel=0.2)
    assert float(sketched.values.sum()) == pytest.approx(float(exact.values.sum()), rel=0.05)


def test_information_on_the_training_samples_comes_from_the_averaged_kernel() -> None:
    """Exact with one output; else estimated, of the exact one's size and order."""
    for classes in (2, 3):
        model, x, _ = fitted(classes, groups=True, body_weight_decay=20.0)
        exact, found = (model.analyse(x, method=m).information() for m in ("dense", "auto"))
        assert (found.level, found.standard_error) == ("estimated", None)
        assert len(found.values) == N // 2
        if classes == 2:
            torch.testing.assert_close(found.values, exact.values, rtol=1e-4, atol=0)
        assert 0.5 < float(found.values.sum() / exact.values.sum()) < 2
        assert float(torch.corrcoef(torch.stack([found.values.log(), exact.values.log()]))[0, 1]) > 0.7


def test_the_head_with_changed_weights_is_the_head_factorised_again() -> None:
    generator = torch.Generator().manual_seed(0)
    for p in (4, 30):  # more rows than features, and fewer
        z = torch.randn(12, p, dtype=torch.float64, generator=generator)
        y = torch.randn(12, 2, dtype=torch.float64, generator=generator)
        s = torch.rand(12, dtype=torch.float64, generator=generator) + 0.5
        rows, rho = torch.tensor([2, 7, 8]), torch.tensor([-1.0, 1.0, -0.5], dtype=torch.float64)
        changed = ChangedHead(KernelRidge.from_features(z, s), rows, rho, 0.3)
        t = s.clone()
        t[rows] *= 1 + rho
        v = ridge_regression(z, y, t, 0.3)
        torch.testing.assert_close(changed.residual(y, 0.3), y - z @ v, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(z.T @ changed.dual(y, 0.3), v, rtol=1e-9, atol=1e-9)
