"""Ground truth for the tests: Jacobians, Hessians and optima as plain dense float64 matrices.

Everything follows the definitions and none of it the code that is tested: of a problem only its data are read, of a
network only its outputs and its automatic derivatives.
"""

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
    heads = model.heads[problem.fold]  # (n, C, p+1)
    body = heads[..., :-1] @ jacobian(model.body, x)
    c = model.n_outputs
    head = torch.einsum("np,cd->ncdp", with_one(z), torch.eye(c, dtype=z.dtype)).flatten(2)
    at_w0 = torch.einsum("ncp,np->nc", heads, with_one(z)) if model.around_w0 else 0.0
    return torch.cat([head, body], -1), problem.targets - model.constant - at_w0, problem.weights


def ridge_matrix(problem: QuadraticProblem) -> Tensor:
    """Diagonal of M = diag(μ_head, μ_1, …, μ_S)."""
    ridge, layout = problem.ridge, problem.model.body.layout
    sizes = [(ridge.head, problem.model.head_size)]
    for name, size in zip(layout.names, layout.sizes, strict=True):
        own = [(len(stage), mu) for stage, mu in ridge.stages if f"{name}.".startswith(f"{stage}.")]
        sizes.append((max(own)[1] if own else ridge.body, size))
    return torch.cat([torch.full((size,), mu, dtype=problem.targets.dtype) for mu, size in sizes])


def normal_equations(problem: QuadraticProblem, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """H = Σ s_i J_iᵀJ_i + M and b = Σ s_i J_iᵀr_i, with other row weights (0: absent) where they are given."""
    j, r, s = rows(problem)
    flat, w = j.flatten(0, 1), (s if weights is None else weights).repeat_interleave(j.shape[1])
    return flat.T @ (w[:, None] * flat) + torch.diag(ridge_matrix(problem)), flat.T @ (w * r.flatten())


def optimum(problem: QuadraticProblem, keep: Tensor | None = None) -> Tensor:
    """δ* from the normal equations, with only the rows in ``keep``."""
    weights = problem.weights
    if keep is not None:
        weights = torch.zeros_like(weights)
        weights[keep] = problem.weights[keep]
    return torch.linalg.solve(*normal_equations(problem, weights))


def ridge_regression(z: Tensor, r: Tensor, s: Tensor, mu: float) -> Tensor:
    """(p, C) argmin ½ Σ s_i ‖r_i − Vᵀz_i‖² + ½ μ ‖V‖² from the normal equations, for z (n, p) and r (n, C)."""
    return torch.linalg.solve(z.T @ (s[:, None] * z) + mu * torch.eye(z.shape[1]).to(z), z.T @ (s[:, None] * r))


def offsets(layout: Layout) -> dict[str, int]:
    """First position of each weight in the flat vector."""
    ends = torch.tensor([0, *layout.sizes]).cumsum(0).tolist()
    return dict(zip(layout.names, ends, strict=False))
