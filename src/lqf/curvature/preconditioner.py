"""P ≈ H over head and body together: the head's exact block, K-FAC for the body."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lqf.curvature.blocks import Gram, Kronecker
from lqf.curvature.ekfac import ekfac
from lqf.curvature.kfac import KFAC, Piece, kfac
from lqf.curvature.random_signs import random_signs
from lqf.linear.layers import Tape
from lqf.linear.model import with_one
from lqf.linear.problem import QuadraticProblem, subproblem
from lqf.utils.progress import SILENT, Progress, Stage

KFAC_SAMPLES, TRACE_SAMPLES, MOMENT_SAMPLES = 512, 128, 256
"""Rows that stand for all of them: in the factors, their traces and their measured eigenvalues. With ResNet-50 on CUB
512 samples in one view with one draw each led to the residuals of all 800 with four."""
PART = 4096
"""Rows of features that are added up at a time."""
MOMENT_DRAWS = 2


@dataclass(frozen=True)
class Preconditioner:
    """Block-diagonal approximation of Σ s JᵀJ; `solve` adds the ridge and inverts.

    The head's block (Σ s z̃z̃ᵀ) ⊗ I_C is exact; it stays thin when there are fewer rows than features.
    """

    head: Kronecker
    body: KFAC

    def solve(self, v: Tensor, problem: QuadraticProblem) -> Tensor:
        """P⁻¹ v with the ridge strengths of ``problem``."""
        head, body = problem.model.split(v)
        solved = self.head.solve(head[None], problem.ridge.head)[0]
        return torch.cat([solved.reshape(-1), self.body.solve(body, problem.ridge)])

    def inverse_root(self, v: Tensor, problem: QuadraticProblem) -> Tensor:
        """P^(−1/2) v."""
        head, body = problem.model.split(v)
        rooted = self.head.inverse_root(head[None], problem.ridge.head)[0]
        return torch.cat([rooted.reshape(-1), self.body.inverse_root(body, problem.ridge)])


def precondition(problem: QuadraticProblem, features: Tensor, **options: Any) -> Preconditioner:
    """Head and body together, from the features (n, p) of all rows; options as of `body_curvature`."""
    return Preconditioner(head_block(problem, features), body_curvature(problem, **options))


def body_curvature(
    problem: QuadraticProblem,
    *,
    draws: int | None = 4,
    most_samples: int = KFAC_SAMPLES,
    trace_samples: int = TRACE_SAMPLES,
    moment_samples: int = MOMENT_SAMPLES,
    seed: int = 0,
    progress: Progress = SILENT,
) -> KFAC:
    """The body's curvature from one pass over (some of) the data and one over a part of it.

    Args:
        problem: the data and model.
        draws: random ±1 combinations of the outputs per sample, at most: fewer where there are samples enough;
            None takes every output exactly.
        most_samples: so many rows stand for all of them, in all views of as many samples as they make.
        trace_samples: rows on which the traces of the blocks are corrected.
        moment_samples: rows on which the eigenvalues are corrected; 0: plain K-FAC.
        seed: of the draws.
        progress: where to report.
    """
    tape = Tape(problem.model.body, problem.inputs.example())
    world, n = problem.inputs.world, len(problem.inputs.samples)
    exact = draws is None or draws >= problem.model.n_outputs
    total = float(problem.weights.sum())
    views = problem.inputs.n_views
    part = subproblem(problem, spread(n, -(-most_samples // views)))
    draws = None if exact else draws_for(draws, len(part.inputs), most_samples)
    with progress.stage("curvature (K-FAC)", total=len(part.inputs.own), unit="images") as stage:
        traced = spread(len(part.inputs.samples), -(-trace_samples // views))
        pieces = _pieces(part, draws, seed, stage, traced)
        body = kfac(tape, pieces, all_weight=total, world=world)
    if moment_samples:
        part = subproblem(problem, spread(n, -(-moment_samples // views)))
        with progress.stage("curvature (eigenvalues)", total=len(part.inputs.own), unit="images") as stage:
            pieces = _pieces(part, min(MOMENT_DRAWS, problem.model.n_outputs), seed + 1, stage)
            body = ekfac(body, tape, pieces, total, world)
    return body


def draws_for(most: int | None, rows: int, gradients: int = KFAC_SAMPLES) -> int:
    """As many draws per row as make so many gradients."""
    return max(1, min(most or 1, -(-gradients // max(1, rows))))


def spread(n: int, most: int) -> Tensor:
    """At most ``most`` of n samples, evenly spread."""
    return torch.arange(min(n, most)) * n // max(1, min(n, most))


def head_block(problem: QuadraticProblem, features: Tensor) -> Kronecker:
    """(Σ s z̃z̃ᵀ) ⊗ I_C."""
    gram = Gram()
    rows = with_one(features) * problem.weights.sqrt()[:, None].to(features)
    for part in rows.split(PART):
        gram.add(part.T[None])
    lam, u = gram.eigenpairs()
    return Kronecker(u, None, lam[:, None].expand(-1, problem.model.n_outputs, -1))


def _pieces(
    problem: QuadraticProblem, draws: int | None, seed: int, stage: Stage, traced: Tensor | None = None
) -> Iterator[Piece]:
    """Batches with their draws (None: every output); the trace is to be measured on the samples ``traced``."""
    c, v = problem.model.n_outputs, problem.inputs.n_views
    for rows, x in problem.inputs.batches():
        if draws is None:
            us = torch.eye(c).to(problem.targets)[:, None].expand(c, len(x), c)
        else:
            us = random_signs(rows, draws, c, seed).to(problem.targets) / draws**0.5
        cotangents = torch.stack([problem.model.to_features(u, problem.fold[rows]) for u in us])
        mask = None if traced is None else torch.isin(rows // v, traced.to(rows.device))
        yield Piece(x, problem.weights[rows], cotangents, mask)
        stage.advance(len(x) // v)
