"""Conjugate gradients for several right-hand sides side by side: each pass over the data serves all of them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lqf.utils.progress import SILENT, Progress


def solve_many(
    product: Callable[[Tensor], Tensor],
    precondition: Callable[[Tensor], Tensor],
    b: Tensor,
    *,
    tol: float,
    max_products: int,
    refresh: int = 20,
    exact: Callable[[Tensor], Tensor] | None = None,
    size: Tensor | None = None,
    progress: Progress = SILENT,
) -> tuple[Tensor, Tensor]:
    """X with A x_j = b_j for the rows of b (k, D), and the true relative residuals ‖b_j − A x_j‖/‖b_j‖ (k,).

    ``size`` (k,) takes the place of ‖b_j‖.

    ``product`` and ``precondition`` act on the rows of a matrix. A row that has reached ``tol`` leaves the passes. True
    residuals, by ``exact`` where products are quick and slightly wrong, replace the running ones every ``refresh``
    products and at the end; inner products are in float64.
    """
    measure = exact or product
    known = torch.zeros(len(b), dtype=torch.bool, device=b.device)  # whose residual is the true one
    x, r = torch.zeros_like(b), b.clone()
    size = (_norms(b) if size is None else size).clamp_min(1e-300)
    p, r_old, rz_old = torch.zeros_like(b), torch.zeros_like(b), torch.ones_like(size)
    fresh, products = torch.ones_like(known), 0
    with progress.stage("solving", total=max_products, unit="passes") as stage:
        while products < max_products:
            on = (_norms(r) > tol * size).nonzero()[:, 0]
            if not len(on):
                break
            z = precondition(r[on])
            rz = _dots(r[on], z)
            beta = ((rz - _dots(r_old[on], z)) / rz_old[on]).clamp_min(0)
            beta = torch.where(fresh[on], torch.zeros_like(beta), beta)
            p[on] = z + beta[:, None].to(z) * p[on]
            r_old[on], rz_old[on], fresh[on] = r[on], rz, False
            ap = product(p[on])
            step = (_dots(r[on], p[on]) / _dots(p[on], ap))[:, None].to(x)
            x[on], r[on] = x[on] + step * p[on], r[on] - step * ap
            products, known[on] = products + 1, False
            if products % refresh == 0 or bool((_norms(r[on]) <= tol * size[on]).any()):
                done = on if products % refresh == 0 else on[_norms(r[on]) <= tol * size[on]]
                r[done], known[done] = b[done] - measure(x[done]), True
            stage.advance(1, residual=float((_norms(r) / size).max()))
    rest = (~known).nonzero()[:, 0]
    if len(rest):
        r[rest] = b[rest] - measure(x[rest])
    return x, _norms(r) / size


def _dots(a: Tensor, b: Tensor) -> Tensor:
    """In float64, of which two rows are held at a time."""
    return torch.stack([torch.dot(x.double(), y.double()) for x, y in zip(a, b, strict=True)])


def _norms(a: Tensor) -> Tensor:
    return torch.linalg.vector_norm(a, dim=1, dtype=torch.float64)
