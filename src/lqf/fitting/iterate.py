"""The iterative solves of a fit: PCG, SGD and Adam as the settings say, kept in the checkpoint and resumed from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lqf.curvature import KFAC, Preconditioner, body_curvature, precondition
from lqf.fitting.checkpoint import Checkpoint
from lqf.fitting.resuming import State, keeper
from lqf.kernels.ridge import KernelRidge
from lqf.linear.problem import QuadraticProblem
from lqf.runtime.distributed import World
from lqf.runtime.precision import matmul_precision
from lqf.settings import Settings
from lqf.solvers import PCG, SGD, Adam
from lqf.solvers.solution import Solution
from lqf.utils.progress import Progress


@dataclass(frozen=True)
class Iterate:
    """What the solves share.

    Attributes:
        settings: tolerance, epochs, precision, …
        checkpoint: where to keep what a solve has reached; None: nowhere.
        world: the processes that share the samples.
        progress: where to report.
    """

    settings: Settings
    checkpoint: Checkpoint | None
    world: World
    progress: Progress

    def curvature(self, problem: QuadraticProblem) -> KFAC | None:
        """The body's K-FAC, for PCG; None where it was not wanted."""
        if self.settings.preconditioner != "kfac":
            return None
        with matmul_precision(fast=True):
            return body_curvature(problem, **self._options())

    def preconditioner(self, problem: QuadraticProblem, features: Tensor) -> Preconditioner | None:
        """K-FAC of head and body, for SGD; Adam needs none."""
        if self.settings.solver != "sgd":
            return None
        with matmul_precision(fast=True):
            return precondition(problem, features, **self._options())

    def pcg(
        self,
        measured: QuadraticProblem,
        fast: QuadraticProblem,
        features: Tensor,
        head: KernelRidge,
        kfac: KFAC | None,
        state: State | None,
    ) -> Solution:
        """Conjugate gradients: residuals from ``measured``, products from ``fast``."""
        keep = keeper(self.checkpoint, measured.ridge, self.world)

        def keep_body(x: Tensor, passes: int, last: bool = False) -> None:
            keep({"body": x}, passes, last)

        return PCG(tol=self.settings.tol, max_passes=self.settings.max_passes).solve(
            measured,
            features,
            head,
            kfac,
            state[0]["body"].to(measured.targets) if state else None,
            fast=fast,
            tf32=self.settings.precision != "float32",
            passes=int(state[1]["at"]) if state else 0,
            keep=keep_body,
            progress=self.progress,
        )

    def stochastic(
        self, problem: QuadraticProblem, preconditioner: Preconditioner | None, state: State | None
    ) -> Solution:
        """SGD or Adam."""
        s, kind = self.settings, SGD if self.settings.solver == "sgd" else Adam
        rate: dict[str, Any] = {} if s.learning_rate is None else {"learning_rate": s.learning_rate}
        solver = kind(epochs=s.epochs, batch_size=s.minibatch, augment=s.augment, seed=s.seed, **rate)
        return solver.solve(
            problem,
            preconditioner,
            {k: v.to(problem.targets) for k, v in state[0].items()} if state else None,
            epoch=int(state[1]["at"]) if state else 0,
            checkpoint=keeper(self.checkpoint, problem.ridge, self.world),
            progress=self.progress,
        )

    def _options(self) -> dict[str, Any]:
        return {"draws": self.settings.draws, "seed": self.settings.seed, "progress": self.progress}
