"""Kernel matrices of head and body: from them come weight decay and leave-one-out.

*Exact*: over all (row, output) pairs, the dense dual's own matrices, (nC, nC).

*Averaged over outputs*, where that is too large: with random signs u_r,

    k(x, x') = (1/C) tr J_body(x) J_body(x')ᵀ ≈ (1/RC) Σ_r ⟨J_body(x)ᵀu_r, J_body(x')ᵀu_r⟩,

so that K ≈ (z̃z̃ᵀ + Σ_s (μ_head/μ_s) k_s) ⊗ I_C is n × n whatever C is. It chooses the ridge strengths and estimates
leverages H_ii; with one output it is exact. Very large data sets are represented by some of their samples: the best μ
of the sum form does not grow with the number of samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.kernels.gram import Keeper, body_kernel, combined, every_output
from lqf.kernels.ridge import KernelRidge
from lqf.linear import head_products
from lqf.linear.problem import QuadraticProblem, rows_of, subproblem
from lqf.linear.ridge import Ridge
from lqf.linear.stages import Groups
from lqf.utils.progress import SILENT, Progress

RATIOS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Ratios of the body's ridge strength to the head's, in units of the ratio of their kernels' mean eigenvalues."""


@dataclass
class Kernels:
    """Both kernels over some rows, and their factorisations.

    Attributes:
        head: (m, m) float64.
        body: (S, m, m) float64, one for every group of stages; (1, m, m) of all weights together where there are none.
        residual: (n, C) the rows' right-hand side.
        weights: (n,).
        groups: (n,) rows that leave together.
        samples: (N,) the samples whose rows these are.
        exact: over all (row, output) pairs (m = nC), or averaged over outputs (m = n).
        signs: (R, C) u_r of the average.
        groups: names of the stages in each group.
        relative: the ridge strengths by which stages count in a body's kernel without groups.
    """

    head: Tensor
    body: Tensor
    residual: Tensor
    weights: Tensor
    groups: Tensor
    samples: Tensor
    exact: bool
    signs: Tensor | None = None
    stages: Groups = ()
    relative: Ridge | None = None

    def whole(self, ridge: Ridge) -> Tensor:
        """K_head + Σ_s (μ_head/μ_s) K_s."""
        if not self.stages:
            if not ridge.is_multiple(self.relative):
                raise ValueError("the kernel was made for other strengths of the stages")
            return torch.add(self.head, self.body[0], alpha=ridge.head / ridge.body)
        out = self.head.clone()
        for names, kernel in zip(self.stages, self.body, strict=True):
            out.add_(kernel, alpha=ridge.head / ridge.of(names[0]))
        return out

    def factorise(self, ridge: Ridge) -> KernelRidge:
        """`whole`, weighted and factorised."""
        c = self.residual.shape[1] if self.exact else 1
        weights, groups = self.weights.repeat_interleave(c), self.groups.repeat_interleave(c)
        return KernelRidge.from_kernel(self.whole(ridge), weights, groups)

    def rhs_norm(self) -> float | None:
        """‖b‖ = ‖JᵀSr‖ of the whole problem, from exact kernels: √(yᵀKy) with y = Sr; None where they have strengths
        in them.
        """
        assert self.exact
        if self.relative is not None:
            return None
        y = (self.weights.double()[:, None] * self.residual.double()).reshape(-1).to(self.head.device)
        return float((y @ (self.head @ y) + sum(y @ (k @ y) for k in self.body)).clamp_min(0).sqrt())

    def ratios(self) -> Sequence[float]:
        """Candidates for ω = μ_body/μ_head."""
        return [self.unit * x for x in RATIOS]

    @property
    def unit(self) -> float:
        """tr K_body / tr K_head, the natural unit of ω."""
        return float(sum(k.trace() for k in self.body) / self.head.trace())


def exact_kernels(
    problem: QuadraticProblem,
    features: Tensor,
    groups: Tensor,
    *,
    budget: int,
    stages: Groups = (),
    keeper: Keeper | None = None,
    progress: Progress = SILENT,
) -> Kernels:
    """The dense dual's matrices: (z̃_i·z̃_j)·[c = d] for the head, inner products of all gradients for the body.

    ``stages``: groups of them that have a matrix each. ``keeper``: of what is done of the body's.
    """
    c, head = problem.model.n_outputs, head_products.gram(features)
    head = torch.kron(head, torch.eye(c).to(head))
    body = body_kernel(
        problem, every_output(problem), c, budget=budget, groups=stages, keeper=keeper, progress=progress
    )
    samples, r = torch.arange(len(problem.inputs.images)), problem.initial_residual(features)
    return Kernels(
        head, body, r, problem.weights, groups, samples, True, stages=stages, relative=_relative(problem, stages)
    )


def averaged_kernels(
    problem: QuadraticProblem,
    features: Tensor,
    groups: Tensor,
    *,
    budget: int,
    most_samples: int,
    stages: Groups = (),
    draws: int = 2,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Kernels:
    """Kernels averaged over the outputs, over at most ``most_samples`` random samples; ``stages`` likewise."""
    generator = torch.Generator().manual_seed(seed)
    n = len(problem.inputs.images)
    samples = torch.arange(n) if n <= most_samples else torch.randperm(n, generator=generator)[:most_samples].sort()[0]
    rows, part = rows_of(problem, samples), subproblem(problem, samples)
    c = problem.model.n_outputs
    us = (2 * torch.randint(0, 2, (min(draws, c), c), generator=generator) - 1).to(problem.targets)
    cotangents = combined(part, us)
    body = body_kernel(part, cotangents, len(us), budget=budget, groups=stages, joint=False, progress=progress) / c
    z, groups = features[rows], groups[rows.cpu()]
    return Kernels(
        head_products.gram(z),
        body,
        part.initial_residual(z),
        part.weights,
        groups,
        samples,
        c == 1,
        us,
        stages,
        _relative(problem, stages),
    )


def _relative(problem: QuadraticProblem, stages: Groups) -> Ridge | None:
    """The strengths that a body's kernel has in it."""
    return problem.ridge if problem.ridge.stages and not stages else None
