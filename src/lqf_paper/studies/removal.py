"""How much every image informs the model, and the test error without some of them: exactly, or by solves.

Where the kernel of all (image, output) pairs fits, both are exact (`lqf.analysis.by_kernel`). Elsewhere information
comes from the kernel averaged over the outputs (`lqf.analysis.leverages`), and every error is that of a real solution
without the images, with fast products over kept activations, each from where the last one ended.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from lqf.analysis import Analysis, Information, Queries
from lqf.analysis.curve import remaining
from lqf.analysis.elimination import STEPS
from lqf.analysis.leverages import AVERAGED, TRACE_PROBES, Leverages
from lqf.analysis.responses import Responses
from lqf.analysis.units import Units
from lqf.data import Images, with_views
from lqf.fitting import Context, TrainingProblem
from lqf.linear.targets import error_rate
from lqf.runtime.precision import matmul_precision
from lqf.solvers.pcg import REDUCTION
from lqf.solvers.schur import SchurComplement
from lqf.solvers.solution import Solution
from lqf_paper.methods.exact import Ours
from lqf_paper.runner.workspace import Task
from lqf_paper.studies.problem import LQF, lqf_problem

TOL = 1e-2
"""Relative residual of every solution here, measured by exact passes."""
PROBE_TOL, PROBE_PRODUCTS = 0.1, 48
"""Of the random probes that measure the sum of all leverages, and products after which each ends in any case."""

FITTED: dict[str, Any] = {**LQF, "tol": TOL, "max_passes": 100}
"""The settings of every fit here, but for its solver."""
PROBED: dict[str, Any] = {"probes": TRACE_PROBES, "probe_tol": PROBE_TOL, "probe_products": PROBE_PRODUCTS}


class Removal(Protocol):
    """A model of some training images, and what it would be without more of them."""

    @property
    def units(self) -> Units:
        """The images that may leave."""
        ...

    def information(self, validation: Images) -> Information:
        """F-SI of every image on ``validation``."""
        ...

    def leaving(self, validation: Images, *, most: bool) -> Tensor:
        """The order of leaving when information on ``validation`` is measured again as images leave."""
        ...

    def errors(self, order: Tensor, shares: Sequence[float]) -> list[float]:
        """Test error after images have left in this order, up to each of these ascending shares."""
        ...

    def solve_report(self) -> dict[str, Any]:
        """How exact the errors are: JSON values."""
        ...


def removal(task: Task, images: Images, solver: str, settings: dict[str, Any]) -> Removal:
    """Fit ``images``; errors are those on the task's test images.

    Args:
        task: the data set.
        images: those of its training images that the model is fitted on.
        solver: "dense": exact; "pcg": by solves.
        settings: of the fit.
    """
    workspace, net = task.workspace, copy.deepcopy(task.workspace.network(leaky=True))
    given = {**FITTED, "solver": solver, **settings}
    if solver == "dense":
        model = Ours.fit(
            net, images, workspace.preprocess, device=workspace.device, progress=workspace.progress, **given
        )
        context = Context(model.fitted.settings, workspace.device, progress=workspace.progress)
        analysis = Analysis.of(model.fitted, images, context)
        return ByKernels(analysis, Queries.of(with_views(task.test, model.fitted.preprocess)))
    problem = lqf_problem(net, images, workspace.preprocess, workspace.device, progress=workspace.progress, **given)
    return BySolves(problem, task.test)


@dataclass(eq=False)
class ByKernels:
    """Exact, from the kernel."""

    analysis: Analysis
    test: Queries
    _queries: WeakKeyDictionary[Images, Queries] = field(default_factory=WeakKeyDictionary)

    @property
    def units(self) -> Units:
        """The images."""
        return self.analysis.units

    def information(self, validation: Images) -> Information:
        """Exact."""
        return self.analysis.information(self._seen(validation))

    def leaving(self, validation: Images, *, most: bool) -> Tensor:
        """Exact."""
        return self.analysis.leaving(self._seen(validation), most=most)

    def errors(self, order: Tensor, shares: Sequence[float]) -> list[float]:
        """By exact refits."""
        method, units = self.analysis.method, self.units
        return [error_rate(method.refitted(self.test, remaining(units, order, s)), self.test.labels) for s in shares]

    def solve_report(self) -> dict[str, Any]:
        """Every error is exact."""
        return {"refits": "exact", "residual": None, "passes": None}

    def _seen(self, validation: Images) -> Queries:
        """The same object for the same images: their kernel is made once."""
        if validation not in self._queries:
            seen = with_views(validation, self.analysis.problem.data.preprocess)
            self._queries[validation] = Queries.of(seen)
        return self._queries[validation]


@dataclass(eq=False)
class BySolves:
    """By conjugate gradients with fast products.

    Attributes:
        problem: of all images.
        test: labelled images.
        worst: the largest relative residual of a solution so far.
        passes: over the training images, of all solutions so far.
    """

    problem: TrainingProblem
    test: Images
    worst: float = 0.0
    passes: int = 0
    _cross: WeakKeyDictionary[Images, Tensor] = field(default_factory=WeakKeyDictionary)

    @cached_property
    def units(self) -> Units:
        """The images."""
        return Units.of(self.problem.data.images.samples.ids)

    @cached_property
    def whole(self) -> Solution:
        """Of all images."""
        return self._solved(self.problem, None)

    def information(self, validation: Images) -> Information:
        """By the kernel averaged over the outputs."""
        cross = self._kernel(validation)
        values = self._leverages.information(self._e, self.units, cross)
        return Information(values, "estimated", AVERAGED, units=self.units)

    def leaving(self, validation: Images, *, most: bool) -> Tensor:
        """Estimated, by the kernel averaged over the outputs."""
        cross = self._kernel(validation)
        return self._leverages.leaving(self._e, self.units, cross, most=most, steps=STEPS)

    def errors(self, order: Tensor, shares: Sequence[float]) -> list[float]:
        """By solutions, each from where the last one ended."""
        out, start = [], self.problem.body(self.whole)
        for share in shares:
            part, solution = self.problem, self.whole
            if share > 0:
                part = self.problem.among(remaining(self.units, order, share))
                solution = self._solved(part, start)
            start = part.body(solution)
            out.append(part.error(self.test, solution))
        return out

    def solve_report(self) -> dict[str, Any]:
        """The worst residual, and all passes."""
        return {"refits": "solved", "residual": self.worst, "passes": self.passes}

    def _kernel(self, validation: Images) -> Tensor:
        """With the training rows; made once, and before activations take the memory."""
        if validation not in self._cross:
            self._cross[validation] = self.problem.averaged_cross(self.problem.encode(validation))
        return self._cross[validation]

    @cached_property
    def _e(self) -> Tensor:
        """(n, C) residuals of the whole."""
        with matmul_precision(fast=False):
            return self.problem.measured.residuals(self.whole.delta).double()

    @cached_property
    def _leverages(self) -> Leverages:
        problem, progress = self.problem, self.problem.context.progress
        curvature = problem.curvature  # before activations take the memory
        schur = SchurComplement(problem.fast, problem.features, problem.head.ridge, tf32=False)
        solves = Responses(schur, curvature, PROBE_TOL, PROBE_PRODUCTS, progress, REDUCTION)
        averaged = problem.averaged.factorise(problem.ridge)
        return Leverages(lambda: solves, problem.quadratic, averaged, problem.context.settings.seed)

    def _solved(self, problem: TrainingProblem, start: Tensor | None) -> Solution:
        solution = problem.solve(start, tol=problem.context.settings.tol)
        self.worst = max(self.worst, solution.certificate.relative_residual)
        self.passes += solution.certificate.passes
        return solution


def random_orders(n: int, draws: int, seed: int) -> list[Tensor]:
    """So many orders of n images."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randperm(n, generator=generator) for _ in range(draws)]
