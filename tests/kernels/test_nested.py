"""Kernels without each fold: what the problem of the other folds says about a fold, by brute force."""

import torch

from lqf.kernels.nested import NestedKernels

N, C, S = 13, 3, 2


def kernels(seed: int = 0) -> tuple[NestedKernels, torch.Tensor, torch.Tensor]:
    """Of random features, other ones for every fold; with the features themselves."""
    g = torch.Generator().manual_seed(seed)
    fold = torch.arange(N) % 3
    z = torch.randn(N, 4, generator=g, dtype=torch.float64)
    j = torch.randn(3, S, N, 5, generator=g, dtype=torch.float64)
    r = torch.randn(N, C, generator=g, dtype=torch.float64)
    weights = torch.rand(N, generator=g, dtype=torch.float64) + 0.5
    made = NestedKernels(z @ z.T, j @ j.mT, r, weights, fold, torch.arange(N), (("a",), ("b",)))
    return made, z, j


def test_outputs_are_those_of_the_primal_problem_without_the_fold() -> None:
    made, z, j = kernels()
    mu = torch.tensor([0.7, 2.0, 0.3], dtype=torch.float64)
    found = made.outputs(mu.log())
    for k in range(3):
        rows = torch.cat([z, *j[k]], 1)  # (N, 4 + 5S)
        ridge = torch.cat([mu[:1].expand(4), mu[1:2].expand(5), mu[2:].expand(5)])
        keep, left = made.fold != k, made.fold == k
        a = rows[keep]
        h = a.T @ (made.weights[keep, None] * a) + torch.diag(ridge)
        delta = torch.linalg.solve(h, a.T @ (made.weights[keep, None] * made.residual[keep]))
        torch.testing.assert_close(found[left], rows[left] @ delta, rtol=1e-10, atol=1e-10)


def test_labels_of_a_fold_do_not_reach_its_outputs() -> None:
    made, _, _ = kernels()
    mu = torch.zeros(3, dtype=torch.float64)
    before = made.outputs(mu)
    made.residual[made.fold == 1] += 1.0
    after = made.outputs(mu)
    torch.testing.assert_close(after[made.fold == 1], before[made.fold == 1], rtol=0, atol=0)
    assert not torch.allclose(after[made.fold == 0], before[made.fold == 0])


def test_outputs_can_be_differentiated() -> None:
    made, _, _ = kernels()
    mu = torch.randn(3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    assert torch.autograd.gradcheck(lambda m: made.outputs(m), (mu,))


def test_units_are_mean_eigenvalues() -> None:
    made, z, j = kernels()
    units = made.mean_eigenvalues()
    expected = [z.square().sum() / N, *(j.square().sum((0, 2, 3)) / 3 / N)]
    torch.testing.assert_close(units, torch.stack([torch.as_tensor(e) for e in expected]))
