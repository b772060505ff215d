"""Mini-batch solvers: momentum SGD preconditioned by K-FAC (the paper's), and Adam.

Both see the sum-form gradient scaled up from a mini-batch B of n rows,

    g = −(n/|B|) Σ_{i∈B} s_i J_iᵀ(r_i − J_i δ) + Mδ,

so that its expectation is Hδ − b and the penalty passes through the preconditioner. With P ≈ H the step is v ← m·v +
P⁻¹g, δ ← δ − η·v. If P were exact, η(1−m)⁻¹ = 1 would be Newton's step; the paper's conservative rule is η = 0.1
without momentum in the count, on P⁻¹H with eigenvalues near 1. That counts the mean of all batches: a batch enters with
weight n/|B|, and P has to be damped for it (`lqf.curvature.damping`, `lqf.solvers.stable_damping`). The rate decays to
zero along a cosine, which makes the iterates converge in spite of the mini-batch noise. Random augmentation draws fresh
inputs for every batch.

`Stochastic.descend` is the loop of every linear model that is trained by mini-batches, under any loss.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from lqf.errors import LQFError
from lqf.linear.problem import QuadraticProblem
from lqf.runtime.precision import matmul_precision
from lqf.solvers.solution import Certificate, Solution, Step, certify
from lqf.utils.progress import SILENT, Progress
from lqf.utils.schedule import Schedule, rate

Batch = TypeVar("Batch")
State = dict[str, Tensor]


class StateCheckpoint(Protocol):
    """Called with the solver's vectors after every epoch; ``last`` when the solve is being interrupted."""

    def __call__(self, vectors: dict[str, Tensor], at: int, last: bool = False) -> None:
        """Keep them."""
        ...


class Inverse(Protocol):
    """P⁻¹, damped for mini-batches."""

    def solve(self, v: Tensor) -> Tensor:
        """P⁻¹ v."""
        ...


@dataclass(frozen=True)
class Stochastic:
    """What SGD and Adam share.

    Attributes:
        learning_rate: η at the start.
        epochs: passes over the data.
        batch_size: rows per step.
        augment: "none", "crop" (random crop and flip) or "resized" (random resized crop and flip).
        seed: of the order and the augmentation; epoch k always sees the same draws, so that a resumed run continues
            exactly.
        tol: relative residual that counts as converged in the certificate.
        schedule: of the rate: "cosine" to zero, "steps", "constant".
    """

    learning_rate: float = 0.1
    epochs: int = 30
    batch_size: int = 28
    augment: str = "none"
    seed: int = 0
    tol: float = 5e-2
    schedule: Schedule = "cosine"

    name = "sgd"

    def solve(
        self,
        problem: QuadraticProblem,
        preconditioner: Inverse | None = None,
        state: State | None = None,
        *,
        epoch: int = 0,
        checkpoint: StateCheckpoint | None = None,
        progress: Progress = SILENT,
    ) -> Solution:
        """Run from ``state`` (default: δ = 0) at ``epoch``; ``checkpoint`` is called after every epoch."""
        began = time.perf_counter()
        state = self.start(problem.zero()) if state is None else state
        history: list[Step] = []
        kept: tuple[State, int] | None = None
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
        if not math.isfinite(proof.relative_residual) or astray(problem, state["delta"]):
            raise LQFError(
                f"{self.name} diverged with learning rate {self.learning_rate:g}; give a smaller one, or use `pcg`"
            )
        return Solution(state["delta"], problem.ridge, self.name, "solved", proof, tuple(history))

    def descend(
        self, state: State, batches: Iterable[Batch], direction: Callable[[Batch], Tensor], total: int, at: int = 0
    ) -> None:
        """One step per batch, from step ``at`` of ``total``; ``state`` is changed in place."""
        for k, batch in enumerate(batches, at):
            self.update(state, direction(batch), self.learning_rate * rate(self.schedule, k / total), k + 1)

    def start(self, zero: Tensor) -> State:
        """The solver's vectors at δ = ``zero``, which becomes one of them."""
        return {"delta": zero, "velocity": torch.zeros_like(zero)}

    def update(self, state: State, g: Tensor, rate: float, step: int) -> None:
        """One step on the (preconditioned) gradient."""
        raise TypeError("choose SGD or Adam")

    def batches(self, problem: QuadraticProblem, k: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Row numbers on the device and inputs of epoch k."""
        generator, device = torch.Generator().manual_seed(self.seed * 100003 + k), problem.targets.device
        for rows in torch.randperm(len(problem.targets), generator=generator).split(self.batch_size):
            if self.augment == "none":
                yield rows.to(device), problem.inputs.fetch(rows)
            else:
                yield rows.to(device), problem.inputs.augmented(rows, self.augment, generator)

    def _epoch(self, problem: QuadraticProblem, preconditioner: Inverse | None, state: State, k: int) -> None:
        n = len(problem.targets)
        steps = math.ceil(n / self.batch_size)

        def direction(batch: tuple[Tensor, Tensor]) -> Tensor:
            rows, x = batch
            g = problem.penalty_gradient(state["delta"])
            g -= n / len(rows) * problem.batch_negative_gradient(rows, x, state["delta"])
            return g if preconditioner is None else preconditioner.solve(g)

        self.descend(state, self.batches(problem, k), direction, self.epochs * steps, k * steps)


def astray(problem: QuadraticProblem, delta: Tensor) -> bool:
    """Whether the outputs fit the targets worse than zero does, and worse than at the start."""
    s = problem.weights.double()[:, None]

    def misfit(at: Tensor) -> float:
        return float((s * problem.residuals(at).double().square()).sum())

    with matmul_precision(fast=False):
        reached = misfit(delta)
        return reached > float((s * problem.targets.double().square()).sum()) and reached > misfit(problem.zero())


@dataclass(frozen=True)
class SGD(Stochastic):
    """The paper's solver: SGD, momentum 0.9, η = 0.1 on the K-FAC preconditioned gradient."""

    momentum: float = 0.9

    def update(self, state: State, g: Tensor, rate: float, step: int) -> None:
        """One step of momentum."""
        state["velocity"].mul_(self.momentum).add_(g)
        state["delta"].sub_(state["velocity"], alpha=rate)


@dataclass(frozen=True)
class Adam(Stochastic):
    """Adam with β = (beta1, 0.999); it brings its own diagonal scaling, so a preconditioner is not needed."""

    learning_rate: float = 1e-3
    beta1: float = 0.9
    name = "adam"

    def start(self, zero: Tensor) -> State:
        """δ and both moments."""
        return {"delta": zero, "first": torch.zeros_like(zero), "second": torch.zeros_like(zero)}

    def update(self, state: State, g: Tensor, rate: float, step: int) -> None:
        """Bias-corrected step; the gradient's scale cancels."""
        state["first"].lerp_(g, 1 - self.beta1)
        state["second"].lerp_(g.square(), 1e-3)
        first = state["first"] / (1 - self.beta1**step)
        second = state["second"] / (1 - 0.999**step)
        state["delta"].addcdiv_(first, second.sqrt() + 1e-8 * second.amax().sqrt(), value=-rate)
