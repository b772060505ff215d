"""Ground truth for the tests: Jacobians, Hessians and optima as plain dense float64 matrices."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import jacrev

from lqf.linear.linearize import Layout, Linearization
from lqf.linear.model import with_one
from lqf.linear.problem import QuadraticProblem


def jacobian(body: Linearization, x: Tensor) -> Tensor:
    """(B, O, D), by reverse mode on each output."""
    jac = jacrev(lambda w: body.call(w, x))(body.weights())
    return torch.cat([jac[n].flatten(2) for n in body.layout.names], -1)


def jacobian_by_backward(body: Linearization, x: Tensor) -> Tensor:
    """(B, O, D), one plain backward pass per sample and output: for real networks, where batching them is slow."""
    out = []
    for xi in x.split(1):
        weights = {n: w.requires_grad_() for n, w in body.weights().items()}
        z = body.call(weights, xi)[0]
        grads = [
            torch.autograd.grad(
                zo, list(weights.values()), retain_graph=True, allow_unused=True, materialize_grads=True
            )
            for zo in z
        ]
        out.append(torch.stack([body.layout.flatten(g) for g in grads]))
    return torch.stack(out)


def rows(problem: QuadraticProblem) -> tuple[Tensor, Tensor, Tensor]:
    """J (n, C, size) over head and body, r (n, C), s (n,) of a whole problem."""
    model, index = problem.model, torch.arange(len(problem.targets))
    x = problem.inputs.fetch(index)
    z = model.body.value(x)
    heads = model.heads[problem.fold][..., :-1]  # (n, C, p)
    body = heads @ jacobian(model.body, x)
    c = model.n_outputs
    head = torch.einsum("np,cd->ncdp", with_one(z), torch.eye(c, dtype=z.dtype)).flatten(2)
    return torch.cat([head, body], -1), problem.initial_residual(z), problem.weights


def ridge_matrix(problem: QuadraticProblem) -> Tensor:
    """Diagonal of M."""
    return problem.penalty_gradient(torch.ones_like(problem.zero()))


def optimum(problem: QuadraticProblem, keep: Tensor | None = None) -> Tensor:
    """δ* from the normal equations, with only the rows in ``keep``."""
    j, r, s = rows(problem)
    if keep is not None:
        j, r, s = j[keep], r[keep], s[keep]
    flat, w = j.flatten(0, 1), s.repeat_interleave(j.shape[1])
    h = flat.T @ (w[:, None] * flat) + torch.diag(ridge_matrix(problem))
    return torch.linalg.solve(h, flat.T @ (w * r.flatten()))


def offsets(layout: Layout) -> dict[str, int]:
    """First position of each weight in the flat vector."""
    ends = torch.tensor([0, *layout.sizes]).cumsum(0).tolist()
    return dict(zip(layout.names, ends, strict=False))
