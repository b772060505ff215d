"""The kernels of a training problem at any strengths of head and body, without another pass over the data.

    K(ω) = K_head + K_body/ω,     ω = μ_body/μ_head,     G = K(ω) + μ_head I.

Strengths of single stages keep their ratios: they are inside K_body. One factorisation serves all strengths with the
same ω. Where a fit kept the factorised kernel, K_body is what is left of it without K_head, which the features give.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from lqf.fitting import TrainingProblem
from lqf.kernels.ridge import KernelRidge
from lqf.kernels.tangent import Kernels
from lqf.linear import head_products
from lqf.linear.ridge import Ridge
from lqf.solvers.planner import MOST_SAMPLES


@dataclass(eq=False)
class StrengthKernels:
    """Both kernels in weighted rows, and the right-hand side.

    Attributes:
        base: the strengths that the problem has, and whose stages' ratios K_body has in it.
        residual: (m, k) r: of all (row, output) pairs (nC, 1), or (n, C) where the kernel is one for all outputs.
        weights: (m,).
        groups: (m,) what leaves together.
        samples: (N,) numbers of the samples.
        exact: whether it is the problem's own kernel, and not its average over the outputs.
        head: (m, m) √s K_head √s; None for a head alone.
        body: likewise.
        alone: the factorised kernel of a head alone.
    """

    base: Ridge
    residual: Tensor
    weights: Tensor
    groups: Tensor
    samples: Tensor
    exact: bool = True
    head: Tensor | None = None
    body: Tensor | None = None
    alone: KernelRidge | None = None
    _last: tuple[float, KernelRidge] | None = field(default=None, repr=False)

    def at(self, ridge: Ridge) -> KernelRidge:
        """K(ω), factorised; the last one is kept."""
        if self.alone is not None:
            return self.alone
        omega = ridge.body / ridge.head
        if self._last is None or abs(self._last[0] / omega - 1) > 1e-12:
            assert self.head is not None
            assert self.body is not None
            self._last = None
            lam, q = torch.linalg.eigh(torch.add(self.head, self.body, alpha=1 / omega))
            self._last = omega, KernelRidge(q, lam, self.weights, self.groups)
        return self._last[1]

    def by_omega(self, ridge: Ridge) -> Tensor:
        """dK(ω)/dlog ω = −K_body/ω."""
        assert self.body is not None
        return self.body * (-ridge.head / ridge.body)

    # --- where they come from -----------------------------------------------------------------------------------------

    @classmethod
    def of_head(cls, problem: TrainingProblem) -> StrengthKernels:
        """Of a head alone: every strength from one factorisation."""
        head = problem.head
        return cls(
            problem.ridge,
            head.residual,
            head.ridge.weights,
            head.ridge.groups,
            torch.arange(len(problem.data)),
            alone=head.ridge,
        )

    @classmethod
    def of_pairs(cls, problem: TrainingProblem) -> StrengthKernels:
        """Over all (row, output) pairs: from the factorisation that the fit kept, or by passes over the data."""
        kept = problem.factorised
        if kept is None:
            return cls.of(problem.exact_kernels("tune it on a machine with more memory"), problem.ridge)
        c = problem.model.n_outputs
        root = kept.weights.sqrt()
        head = head_products.gram(problem.features).to(root)
        head = torch.kron(head, torch.eye(c).to(head)) * root[:, None] * root
        body = ((kept.q * kept.lam) @ kept.q.T - head) * (problem.ridge.body / problem.ridge.head)
        r = problem.quadratic.initial_residual(problem.features).double().to(root)
        return cls(
            problem.ridge,
            r.reshape(-1, 1),
            kept.weights,
            kept.groups,
            torch.arange(len(problem.data)),
            head=head,
            body=(body + body.T) / 2,
        )

    @classmethod
    def averaged(cls, problem: TrainingProblem) -> StrengthKernels:
        """Averaged over the outputs, of some samples where there are many; exact with one output and few samples."""
        return cls.of(problem.averaged_kernels(MOST_SAMPLES // problem.data.n_views), problem.ridge)

    @classmethod
    def of(cls, kernels: Kernels, base: Ridge) -> StrengthKernels:
        """From kernels that were made for the problem's strengths."""
        whole = kernels.exact and len(kernels.head) == kernels.residual.numel()
        c = kernels.residual.shape[1] if whole else 1
        weights = kernels.weights.double().repeat_interleave(c).to(kernels.head.device)
        groups = kernels.groups.repeat_interleave(c).to(kernels.head.device)
        root = weights.sqrt()
        head, body = (k * root[:, None] * root for k in (kernels.head, kernels.body[0]))
        r = kernels.residual.double().to(root)
        r = r.reshape(-1, 1) if whole else r
        return cls(base, r, weights, groups, kernels.samples, kernels.exact, head, body)
