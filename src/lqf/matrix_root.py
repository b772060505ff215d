"""The square root of symmetric positive definite matrices, with exact derivatives in both directions.

Differentiating M = R² gives the Sylvester equation R dR + dR R = dM, whose solution in the eigenbasis of M = VΛVᵀ is

    dR = V [ (Vᵀ dM V)_ij / (√λ_i + √λ_j) ] Vᵀ.

Unlike the derivatives of eigenvalues and eigenvectors it has no difference of eigenvalues in it and is as good for
repeated ones. The map dM -> dR is its own adjoint, so the backward derivative is the same formula.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def matrix_root(m: Tensor) -> Tensor:
    """R with R² = M, for M (…, n, n) symmetric positive definite."""
    return _Root.apply(m)[0]


class _Root(torch.autograd.Function):
    """Returns the root and, for the derivatives, √λ and V."""

    generate_vmap_rule = True

    @staticmethod
    def forward(m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        lam, v = torch.linalg.eigh(m)
        root = lam.clamp_min(torch.finfo(m.dtype).tiny).sqrt()
        return (v * root[..., None, :]) @ v.mT, root, v

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor, Tensor]) -> None:
        _, root, v = output
        ctx.mark_non_differentiable(root, v)
        ctx.save_for_backward(root, v)
        ctx.save_for_forward(root, v)

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Any) -> Tensor:
        root, v = ctx.saved_tensors
        return _sylvester(root, v, (g + g.mT) / 2)

    @staticmethod
    def jvp(ctx: Any, dm: Tensor) -> tuple[Tensor, None, None]:
        root, v = ctx.saved_tensors
        return _sylvester(root, v, (dm + dm.mT) / 2), None, None


def _sylvester(root: Tensor, v: Tensor, dm: Tensor) -> Tensor:
    """X with R X + X R = dM."""
    return v @ ((v.mT @ dm @ v) / (root[..., :, None] + root[..., None, :])) @ v.mT
