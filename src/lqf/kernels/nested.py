"""Kernels by which ridge strengths are chosen out of sample, where the linearisation point has seen the labels.

Leave-one-out around a point that has seen a row's label flatters that row. So every fold k is judged by a problem of
the other folds: heads, point and kernels are made without it, and with the strengths μ of head and stages

    K_k = K_head/μ_head + Σ_s K_ks/μ_s,     f_k = K_k[k, o] (K_k[o, o] + S_o⁻¹)⁻¹ r_o       (o: all folds but k),

which is what a refit without the fold would say about it, with the body's kernel averaged over the outputs
(`lqf.kernels.tangent`). The features do not depend on the fold, so K_head is the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.linear.stages import Groups


@dataclass(frozen=True)
class NestedKernels:
    """Kernels over the rows of some samples, one set for every fold.

    Attributes:
        head: (n, n) float64.
        body: (F, S, n, n) float64, of every fold and group of stages.
        residual: (n, C) right-hand side.
        weights: (n,).
        fold: (n,) number of the fold that every row is in.
        samples: (N,) the samples whose rows these are.
        stages: names of the stages in each group.
    """

    head: Tensor
    body: Tensor
    residual: Tensor
    weights: Tensor
    fold: Tensor
    samples: Tensor
    stages: Groups

    def outputs(self, log_mu: Tensor) -> Tensor:
        """(n, C) of every row by the problem without its fold; differentiable.

        ``log_mu``: (1+S,) logarithms of the strengths of the head and of every group of stages.
        """
        found = torch.zeros_like(self.residual)
        inverse = torch.exp(-log_mu)
        for k, body in enumerate(self.body):
            inside, outside = (self.fold == k).nonzero()[:, 0], (self.fold != k).nonzero()[:, 0]
            order = torch.cat([outside, inside])
            kernel = inverse[0] * self.head + torch.einsum("s,sij->ij", inverse[1:], body)
            kernel, n = kernel[order][:, order], len(outside)
            system = kernel[:n, :n] + torch.diag(1 / self.weights[outside])
            a = torch.cholesky_solve(self.residual[outside], torch.linalg.cholesky(system))
            found = found.index_put((inside,), kernel[n:, :n] @ a)
        return found

    def mean_eigenvalues(self) -> Tensor:
        """(1+S,) trace over n of the head's kernel and of every stage's: the natural units of their strengths."""
        body = torch.einsum("fsii->s", self.body) / len(self.body)
        return torch.cat([self.head.trace()[None], body]) / len(self.head)
