"""P ≈ H over head and body together: the head's exact block, K-FAC for the body."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.curvature.blocks import Gram, Kronecker
from lqf.curvature.kfac import KFAC, Piece, kfac
from lqf.curvature.moments import with_moments
from lqf.layers import Tape
from lqf.model import with_one
from lqf.objective import Problem
from lqf.progress import SILENT, Progress


@dataclass(frozen=True)
class Preconditioner:
    """Block-diagonal approximation of Σ s JᵀJ; `solve` adds the ridge and inverts.

    The head's block (Σ s z̃z̃ᵀ) ⊗ I_C is exact; it stays thin when there are fewer rows than features.
    """

    head: Kronecker
    body: KFAC

    def solve(self, v: Tensor, problem: Problem) -> Tensor:
        """P⁻¹ v with the ridge strengths of ``problem``."""
        head, body = problem.model.split(v)
        solved = self.head.solve(head[None], problem.ridge.head)[0]
        return torch.cat([solved.reshape(-1), self.body.solve(body, problem.ridge.body)])


def precondition(
    problem: Problem,
    features: Tensor,
    *,
    draws: int | None = 4,
    most_samples: int = 2048,
    moment_samples: int = 256,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Preconditioner:
    """Build the preconditioner in one pass over (some of) the data and one over a part of it.

    Args:
        problem: the data and model.
        features: (n, p) features of all rows.
        draws: random ±1 combinations of the outputs per sample; None takes every output exactly.
        most_samples: about so many samples stand for all of them.
        moment_samples: samples on which the eigenvalues are corrected; 0: plain K-FAC.
        seed: of the draws.
        progress: where to report.
    """
    tape = Tape(problem.model.body, problem.inputs.example())
    exact = draws is None or draws >= problem.model.n_outputs
    generator = torch.Generator().manual_seed(seed)
    n, total = len(problem.inputs.samples), float(problem.weights.sum())
    pieces = _pieces(problem, None if exact else draws, generator, progress, min(1.0, most_samples / n))
    body = kfac(tape, pieces, all_weight=total)
    if moment_samples:
        share = min(1.0, moment_samples / n)
        pieces = _pieces(problem, min(2, problem.model.n_outputs), generator, progress, share, "eigenvalues")
        body = with_moments(body, tape, pieces, total)
    return Preconditioner(head_block(problem, features), body)


def head_block(problem: Problem, features: Tensor) -> Kronecker:
    """(Σ s z̃z̃ᵀ) ⊗ I_C."""
    gram = Gram()
    rows = with_one(features) * problem.weights.sqrt()[:, None].to(features)
    for part in rows.split(4096):
        gram.add(part.T[None])
    lam, u = gram.eigenpairs()
    return Kronecker(u, None, lam[:, None].expand(-1, problem.model.n_outputs, -1))


def _pieces(
    problem: Problem,
    draws: int | None,
    generator: torch.Generator,
    progress: Progress,
    share: float,
    what: str = "K-FAC",
) -> Iterator[Piece]:
    """Batches with their draws; with ``share`` below 1 only about that part of the batches, evenly spread."""
    c, due = problem.model.n_outputs, 0.0
    with progress.stage(f"curvature ({what})", total=int(share * len(problem.targets)), unit="rows") as stage:
        for rows, x in problem.inputs.batches():
            due += share
            if due < 1 - 1e-9:
                continue
            due -= 1
            fold = problem.fold[rows]
            if draws is None:
                us = torch.eye(c).to(problem.targets)[:, None].expand(c, len(x), c)
            else:
                signs = torch.randint(0, 2, (draws, len(x), c), generator=generator)
                us = (2 * signs - 1).to(problem.targets) / draws**0.5
            cotangents = torch.stack([problem.model.to_features(u, fold) for u in us])
            yield Piece(x, problem.weights[rows], cotangents)
            stage.advance(len(x))
