"""K-FAC in place of H: the formula is right, whatever the approximation is worth."""

import numpy as np
import pytest
import torch

from dense import rows
from fits import FIXED, brute_outputs, classifier, data
from lqf import LQFError
from lqf.analysis.by_kfac import LARGEST, ByKFAC


def analysed(n_classes: int = 3) -> tuple[ByKFAC, torch.Tensor, object]:
    x, y = data(12, n_classes)
    s = np.random.default_rng(3).uniform(0.5, 2, 12)
    model = classifier(solver="pcg", loo="none", batch_size=64, draws=None, **FIXED).fit(x, y, s)
    analysis = model.analyse(x, method="kfac")
    assert isinstance(analysis.method, ByKFAC)
    return analysis.method, torch.tensor(data(3, n_classes, seed=7)[0]), analysis


@pytest.mark.parametrize("n_classes", [2, 3])
def test_effects_are_the_removal_formula_with_the_approximate_curvature(n_classes: int) -> None:
    method, test, analysis = analysed(n_classes)
    problem, c = method.problem.quadratic, method.problem.model.n_outputs
    blocks = method.responses.blocks  # type: ignore[attr-defined]
    eye = torch.eye(problem.size, dtype=torch.float64)
    inverse = torch.stack([blocks.solve(v, problem) for v in eye])
    torch.testing.assert_close(inverse, inverse.T, rtol=1e-8, atol=1e-10)
    j, _, s = rows(problem)
    base = brute_outputs(problem, problem.zero(), test)
    query = torch.stack([brute_outputs(problem, v, test) - base for v in eye], -1)  # (Q, C, size)
    e = problem.residuals(method.solution.delta)
    found = analysis.influence(test.numpy())
    assert found.level == "estimated"
    for i in range(12):
        h = s[i] * j[i] @ inverse @ j[i].T
        lam, q = torch.linalg.eigh((h + h.T) / 2)
        left = q @ ((q.T @ e[i]) / (1 - lam.clamp(0, LARGEST)))
        expected = -s[i] * (query @ inverse @ j[i].T) @ left
        torch.testing.assert_close(found.effects[i], expected, rtol=1e-7, atol=1e-9)
    assert found.effects.shape == (12, 3, c)


def test_what_kfac_cannot_answer_is_refused() -> None:
    _, test, analysis = analysed()
    with pytest.raises(LQFError, match="does not answer what-if; use method='dense' or method='pcg'"):
        analysis.what_if(test.numpy(), without=[0])
    assert analysis.leave_one_out().level == "estimated"
    assert analysis.information(test.numpy()).standard_error is not None
