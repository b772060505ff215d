"""Mini-batch solvers: momentum SGD preconditioned by K-FAC (the paper's), and Adam.

Both see the sum-form gradient scaled up from a mini-batch B of n rows,

    g = −(n/|B|) Σ_{i∈B} s_i J_iᵀ(r_i − J_i δ) + Mδ,

so that its expectation is Hδ − b and the penalty passes through the preconditioner. With P ≈ H the step is v ← m·v +
P⁻¹g, δ ← δ − η·v. If P were exact, η(1−m)⁻¹ = 1 would be Newton's step; the paper's conservative rule is η = 0.1
without momentum in the count, on P⁻¹H with eigenvalues near 1. The rate decays to zero along a cosine, which makes
the iterates converge in spite of the mini-batch noise. Random augmentation draws fresh inputs for every batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lqf.curvature import Preconditioner
from lqf.errors import LQFError
from lqf.linear.problem import QuadraticProblem
from lqf.runtime.precision import matmul_precision
from lqf.solvers.solution import Certificate, Solution, Step, certify
from lqf.utils.progress import SILENT, Progress


class StateCheckpoint(Protocol):
    """Called with the solver's vectors after every epoch; ``last`` when the solve is being interrupted."""

    def __call__(self, vectors: dict[str, Tensor], at: int, last: bool = False) -> None:
        """Keep them."""
        ...


@dataclass(frozen=True)
class Stochastic:
    """What SGD and Adam share.

    Attributes:
        learning_rate: η at the start; it decays to zero along a cosine.
        epochs: passes over the data.
        batch_size: rows per step.
        augment: "none", "crop" (random crop and flip) or "resized" (random resized crop and flip).
        seed: of the order and the augmentation; epoch k always sees the same draws, so that a resumed run continues
            exactly.
        tol: relative residual that counts as converged in the certificate.
    """

    learning_rate: float = 0.1
    epochs: int = 30
    batch_size: int = 28
    augment: str = "none"
    seed: int = 0
    tol: float = 5e-2

    name = "sgd"

    def solve(
        self,
        problem: QuadraticProblem,
        preconditioner: Preconditioner | None = None,
        state: dict[str, Tensor] | None = None,
        *,
        epoch: int = 0,
        checkpoint: StateCheckpoint | None = None,
        progress: Progress = SILENT,
    ) -> Solution:
        """Run from ``state`` (default: δ = 0) at ``epoch``; ``checkpoint`` is called after every epoch."""
        began = time.perf_counter()
        state = self.start(problem) if state is None else state
        history: list[Step] = []
        kept: tuple[dict[str, Tensor], int] | None = None
        try:
            with progress.stage(f"solving ({self.name})", total=self.epochs, unit="epochs") as stage:
                stage.advance(epoch)
                for k in range(epoch, self.epochs):
                    with matmul_precision(fast=True):
                        self._epoch(problem, preconditioner, state, k)
                    history.append(Step(k + 1, time.perf_counter() - began, None))
                    stage.advance(1)
                    if checkpoint:
                        kept = {n: t.clone() for n, t in state.items()}, k + 1
                        checkpoint(*kept)
        except KeyboardInterrupt:
            if checkpoint and kept:
                checkpoint(*kept, last=True)
            raise
        proof: Certificate = certify(problem, state["delta"], tol=self.tol, passes=self.epochs)
        if not math.isfinite(proof.relative_residual):
            raise LQFError(
                f"{self.name} diverged with learning rate {self.learning_rate:g}; give a smaller one, or use `pcg`"
            )
        return Solution(state["delta"], problem.ridge, self.name, "solved", proof, tuple(history))

    def start(self, problem: QuadraticProblem) -> dict[str, Tensor]:
        """The solver's vectors at the beginning."""
        return {"delta": problem.zero(), "velocity": problem.zero()}

    def update(self, state: dict[str, Tensor], g: Tensor, rate: float, step: int) -> None:
        """One step of momentum 0.9 on the preconditioned gradient."""
        state["velocity"].mul_(0.9).add_(g)
        state["delta"].sub_(state["velocity"], alpha=rate)

    def _epoch(
        self, problem: QuadraticProblem, preconditioner: Preconditioner | None, state: dict[str, Tensor], k: int
    ) -> None:
        n, device = len(problem.targets), problem.targets.device
        steps = math.ceil(n / self.batch_size)
        for j, (rows, x) in enumerate(self._batches(problem, k)):
            rate = self.learning_rate * 0.5 * (1 + math.cos(math.pi * (k * steps + j) / (self.epochs * steps)))
            g = problem.penalty_gradient(state["delta"])
            g -= n / len(rows) * problem.batch_negative_gradient(rows.to(device), x, state["delta"])
            if preconditioner is not None:
                g = preconditioner.solve(g, problem)
            self.update(state, g, rate, k * steps + j + 1)

    def _batches(self, problem: QuadraticProblem, k: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(self.seed * 100003 + k)
        for rows in torch.randperm(len(problem.targets), generator=generator).split(self.batch_size):
            if self.augment == "none":
                yield rows, problem.inputs.fetch(rows)
            else:
                yield rows, problem.inputs.augmented(rows, self.augment, generator)


class SGD(Stochastic):
    """The paper's solver: SGD, momentum 0.9, η = 0.1 on the K-FAC preconditioned gradient."""


@dataclass(frozen=True)
class Adam(Stochastic):
    """Adam with β = (beta1, 0.999); it brings its own diagonal scaling, so a preconditioner is not needed."""

    learning_rate: float = 1e-3
    beta1: float = 0.9
    name = "adam"

    def start(self, problem: QuadraticProblem) -> dict[str, Tensor]:
        """δ and both moments."""
        return {"delta": problem.zero(), "first": problem.zero(), "second": problem.zero()}

    def update(self, state: dict[str, Tensor], g: Tensor, rate: float, step: int) -> None:
        """Bias-corrected step; the gradient's scale cancels."""
        state["first"].lerp_(g, 1 - self.beta1)
        state["second"].lerp_(g.square(), 1e-3)
        first = state["first"] / (1 - self.beta1**step)
        second = state["second"] / (1 - 0.999**step)
        state["delta"].addcdiv_(first, second.sqrt() + 1e-8 * second.amax().sqrt(), value=-rate)
