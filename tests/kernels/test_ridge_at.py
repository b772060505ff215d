"""A Cholesky factorisation at one strength says what the eigendecomposition says."""

import pytest
import torch

from lqf.kernels.ridge import KernelRidge
from lqf.kernels.ridge_at import RidgeAt

N, C, MU = 9, 3, 0.4


def parts() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    z = torch.randn(N, 12, generator=g, dtype=torch.float64)
    return z @ z.T, torch.rand(N, generator=g, dtype=torch.float64) + 0.5, torch.randn(N, C, generator=g).double()


def test_dual_and_residual_are_those_of_the_eigendecomposition() -> None:
    k, s, r = parts()
    one, every = RidgeAt.from_kernel(k, s, MU), KernelRidge.from_kernel(k, s)
    torch.testing.assert_close(one.dual(r, MU), every.dual(r, MU), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(one.residual(r, MU), every.residual(r, MU), rtol=1e-10, atol=1e-10)


def test_among_others_these_have_no_part_and_stay() -> None:
    k, s, r = parts()
    rows = torch.tensor([0, 2, 3, 7])
    part = k[rows][:, rows], s[rows]
    one = RidgeAt.from_kernel(*part, MU).among(rows, N)
    every = KernelRidge.from_kernel(*part).among(rows, N)
    torch.testing.assert_close(one.dual(r, MU), every.dual(r, MU), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(one.residual(r, MU), every.residual(r, MU), rtol=1e-10, atol=1e-10)
    others = torch.tensor([1, 4, 5, 6, 8])
    assert torch.equal(one.residual(r, MU)[others], r[others])


def test_another_strength_is_refused() -> None:
    k, s, r = parts()
    with pytest.raises(ValueError, match=r"factorised for a ridge strength of 0\.4"):
        RidgeAt.from_kernel(k, s, MU).dual(r, 2 * MU)
