"""Models that have changed since their fit are asked without what the fit found by refits being made again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from fits import classifier, data
from lqf import LQFClassifier
from lqf.analysis import seconds
from lqf.analysis.known_leverages import KnownLeverages
from lqf.analysis.leverages import Leverages
from lqf.changes.samples.dependence import LEVERAGES
from lqf.changes.samples.extended import MOST_GROWTH
from lqf.fitting.knowledge import CURVATURE, STRENGTH, Knowledge
from passes import Passes

X, Y = data(34, 3)
N = 24


def fitted() -> LQFClassifier:
    return classifier(solver="pcg", tol=0.02, max_passes=100).fit(X[:N], Y[:N])


def known(model: LQFClassifier) -> dict[str, torch.Tensor]:
    assert isinstance(model.fitted_.known, Knowledge)
    return dict(model.fitted_.known.tensors)


def no_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leverages, "trace", lambda self: pytest.fail("random probes are solves"))


def test_the_strength_of_leverages_outlasts_the_refits_that_told_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted()
    no_probes(monkeypatch)
    before = known(model)
    assert {name for name in before if name.startswith(STRENGTH)} == {f"{STRENGTH}head", f"{STRENGTH}averaged"}
    certificate = model.forget([0, 7], train=X[:N])
    assert LEVERAGES in certificate.depends_on
    after = known(model)
    assert all(torch.equal(after[name], t) for name, t in before.items() if name.startswith(STRENGTH))
    audit = model.audit(X[:N], Y[:N])
    assert len(audit.suspects) == N - 2


def test_an_audit_of_a_model_with_more_samples_makes_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted()
    model.add(X[N:], Y[N:], train=X[:N])
    assert model.fitted_.loo is None
    no_probes(monkeypatch)
    assert Passes(monkeypatch, len(X)).of(lambda: model.audit(X, Y)) == 0
    assert "kernel of the head" in model.audit(X, Y).levels["information"]["note"]


def test_what_a_kernel_has_estimated_is_not_taken_for_refits() -> None:
    model = fitted()
    assert model.fitted_.loo.by_refits
    model.forget([0], train=X[:N])
    assert model.fitted_.loo is not None
    assert not model.fitted_.loo.by_refits


def test_the_strength_is_what_the_analysis_of_the_fit_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    model, found = fitted(), []
    strength = KnownLeverages._strength

    def seen(self: KnownLeverages, name: str, *rest: object) -> float | None:
        found.append((name, strength(self, name, *rest), self.problem.ridge.head))  # type: ignore[arg-type]
        return found[-1][1]

    monkeypatch.setattr(KnownLeverages, "_strength", seen)
    model.audit(X[:N], Y[:N])
    assert found
    for name, value, mu in found:
        assert value == pytest.approx(float(known(model)[f"{STRENGTH}{name}"]) * mu, rel=1e-9)


def test_k_fac_stays_while_few_samples_are_added(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = fitted()
    kept = {k: t for k, t in known(model).items() if k.startswith(CURVATURE)}
    assert kept
    few = int(N * (MOST_GROWTH - 1))
    monkeypatch.setattr("lqf.fitting.training_problem.body_curvature", lambda *_, **__: pytest.fail("made again"))
    model.add(X[N : N + few], Y[N : N + few], train=X[:N])
    after = known(model)
    assert all(torch.equal(after[name], t) for name, t in kept.items())
    assert int(after["curvature_of"]) == N
    monkeypatch.undo()
    model.add(X[N + few : N + 2 * few - 2], Y[N + few : N + 2 * few - 2])  # together more than that
    again = known(model)
    assert "curvature_of" not in again
    assert any(not torch.equal(again[name], t) for name, t in kept.items())


def test_answers_are_announced_by_the_pace_of_the_fit() -> None:
    model = fitted()
    paces = (seconds.of_product, seconds.of_forward_pass, seconds.of_curvature)
    before = [pace(model.fitted_) for pace in paces]
    assert max(before) > 0
    model.add(X[N:], Y[N:], train=X[:N])
    model.forget([0])
    assert [pace(model.fitted_) for pace in paces] == pytest.approx([one * (len(X) - 1) / N for one in before])


def test_k_fac_of_forgotten_samples_goes(tmp_path: Path) -> None:
    model = fitted()
    kept = {k: t for k, t in known(model).items() if k.startswith(CURVATURE) and k.endswith("/d")}
    model.forget([0], train=X[:N])
    assert all(not torch.equal(known(model)[name], t) for name, t in kept.items())


def test_sums_of_old_and_new_k_fac_end_at_the_same_optimum() -> None:
    tight = {"solver": "pcg", "loo": "none", "tol": 1e-6, "max_passes": 300}
    one, other = (classifier(**tight).fit(X[:N], Y[:N]) for _ in range(2))
    one.add(X[N : N + 3], Y[N : N + 3], train=X[:N])
    tensors = {k: t for k, t in known(other).items() if not re.match(CURVATURE, k)}
    object.__setattr__(other.fitted_, "known", Knowledge(tensors))
    other.add(X[N : N + 3], Y[N : N + 3], train=X[:N])
    assert "curvature_of" in known(one)
    assert "curvature_of" not in known(other)
    torch.testing.assert_close(
        one.fitted_.delta, other.fitted_.delta, rtol=0, atol=1e-4 * float(one.fitted_.delta.abs().max())
    )
