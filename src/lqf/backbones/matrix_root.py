"""Square roots and inverses of many small symmetric positive definite matrices, with exact derivatives both ways.

Differentiating M = R² gives the Sylvester equation R dR + dR R = dM, whose solution in the eigenbasis of M = VΛVᵀ is

    dR = V [ (Vᵀ dM V)_ij / (√λ_i + √λ_j) ] Vᵀ.

Unlike the derivatives of eigenvalues and eigenvectors it has no difference of eigenvalues in it and is as good for
repeated ones. The map dM -> dR is its own adjoint, so the backward derivative is the same formula.

A GPU takes one small eigendecomposition at a time, and waits for the host after each. There, root, Sylvester equation
and inverse are Newton's iterations instead, batched matrix products in float64 and nothing else; their fixed number
suffices down to λ_min ≈ 1e-9 ‖M‖, and the error that is left is that of float64.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ROOT_STEPS, INVERSE_STEPS = 34, 28


def matrix_root(m: Tensor, *, newton: bool | None = None) -> Tensor:
    """R with R² = M, for M (…, n, n) symmetric positive definite; ``newton``: by iteration (default: on a GPU)."""
    if m.is_cuda if newton is None else newton:
        return _NewtonRoot.apply(m)
    return _Root.apply(m)[0]


def matrix_inverse(t: Tensor, *, newton: bool | None = None) -> Tensor:
    """T⁻¹ for T (…, n, n) symmetric positive definite."""
    return _Inverse.apply(t, t.is_cuda if newton is None else newton)


class _Root(torch.autograd.Function):
    """By eigendecomposition; returns the root and, for the derivatives, √λ and V."""

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
    """X with R X + X R = dM, from the eigenbasis."""
    return v @ ((v.mT @ dm @ v) / (root[..., :, None] + root[..., None, :])) @ v.mT


class _NewtonRoot(torch.autograd.Function):
    """By the coupled Newton–Schulz iteration."""

    generate_vmap_rule = True

    @staticmethod
    def forward(m: Tensor) -> Tensor:
        return newton_root(m.double()).to(m.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (r,) = ctx.saved_tensors
        return newton_sylvester(r.double(), ((g + g.mT) / 2).double()).to(g.dtype)

    @staticmethod
    def jvp(ctx: Any, dm: Tensor) -> Tensor:
        (r,) = ctx.saved_tensors
        return newton_sylvester(r.double(), ((dm + dm.mT) / 2).double()).to(dm.dtype)


class _Inverse(torch.autograd.Function):
    """X = T⁻¹, dX = −X dT X."""

    generate_vmap_rule = True

    @staticmethod
    def forward(t: Tensor, newton: bool) -> Tensor:
        if newton:
            return newton_inverse(t.double()).to(t.dtype)
        # not torch.linalg.inv, which fails for several matrices of 200 rows where MKL has two threads (torch 2.13)
        return torch.cholesky_inverse(torch.linalg.cholesky(t))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, bool], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return -x.mT @ g @ x.mT, None

    @staticmethod
    def jvp(ctx: Any, dt: Tensor, _: Any) -> Tensor:
        (x,) = ctx.saved_tensors
        return -x @ dt @ x


def newton_root(m: Tensor) -> Tensor:
    """Y -> √A and Z -> A^{-1/2} together, A = M/‖M‖: Y ← Y T, Z ← T Z with T = (3I − Z Y)/2."""
    norm, eye = _norm(m), _eye(m)
    y, z = m / norm, eye.expand_as(m)
    for _ in range(ROOT_STEPS):
        t = 1.5 * eye - 0.5 * z @ y
        y, z = y @ t, t @ z
    return y * norm.sqrt()


def newton_sylvester(r: Tensor, d: Tensor) -> Tensor:
    """X with R X + X R = D: the sign iteration of [[A, Q], [0, −A]], A = R/‖R‖, written for its blocks."""
    norm, eye = _norm(r), _eye(r)
    a, q = r / norm, d / norm
    for _ in range(ROOT_STEPS):
        a2 = a @ a
        q = 0.5 * (q @ (3 * eye - a2) - a @ (a @ q - q @ a))
        a = 0.5 * a @ (3 * eye - a2)
    return q / 2


def newton_inverse(t: Tensor) -> Tensor:
    """X ← X(2I − T X), from I/‖T‖."""
    norm, eye = _norm(t), _eye(t)
    x = eye / norm
    for _ in range(INVERSE_STEPS):
        x = x @ (2 * eye - t @ x)
    return x


def _norm(m: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(m, keepdim=True).clamp_min(torch.finfo(m.dtype).tiny)


def _eye(m: Tensor) -> Tensor:
    return torch.eye(m.shape[-1], dtype=m.dtype, device=m.device)
