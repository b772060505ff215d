"""A linear-quadratic problem that is solved several times: with other ridge strengths, starts, or fewer images.

A fit solves its problem once. The experiments on weight decay, on data that arrive in steps and on images that leave
ask for many solutions, so features, point, curvature and fast passes with their activations are made once and kept.
Nothing is planned: the solver is conjugate gradients. Kernels are made only where they have to choose a ridge strength.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lqf.backbones import Backbone
from lqf.curvature import KFAC
from lqf.data import Images, Preprocess
from lqf.fast.cache_budget import keep_activations, release_activations
from lqf.fitting.iterate import Iterate
from lqf.fitting.pipeline import Fit
from lqf.fitting.select_pooling import Pooled
from lqf.kernels.cross import averaged_cross
from lqf.kernels.tangent import Kernels, averaged_kernels
from lqf.linear.encoded import EncodedInputs
from lqf.linear.inputs import average_views
from lqf.linear.problem import QuadraticProblem, Ridge, rows_of, without_weight
from lqf.linear.targets import error_rate
from lqf.runtime.memory import available_bytes
from lqf.runtime.precision import matmul_precision
from lqf.settings import Settings
from lqf.solvers import PCG
from lqf.solvers.planner import AVERAGED_DRAWS, MOST_SAMPLES, jacobian_bytes
from lqf.solvers.solution import Solution
from lqf.utils.progress import SILENT, Progress

LQF: Mapping[str, Any] = {"solver": "pcg", "views": "none", "loo": "none"}
"""What every solve here is told, beside a fit's defaults."""


@dataclass
class Part(KFAC):
    """K-FAC of a ``share`` of the samples, from that of all: share·B."""

    share: float = 1.0

    def solve(self, v: Tensor, mu: float) -> Tensor:
        """(share·B + μI)⁻¹ v."""
        return super().solve(v, mu / self.share) / self.share


@dataclass(eq=False)
class Posed:
    """A problem with ridge strengths, ready to be solved.

    Attributes:
        fit: its stages.
        pooled: features and closed-form head.
        problem: with its ridge strengths.
        kernels: that chose them; None where they were given.
    """

    fit: Fit
    pooled: Pooled
    problem: QuadraticProblem
    kernels: Kernels | None

    @classmethod
    def of(
        cls,
        backbone: Backbone,
        images: Images,
        preprocess: Preprocess,
        device: torch.device,
        *,
        progress: Progress = SILENT,
        ridge: Ridge | None = None,
        **options: Any,
    ) -> Posed:
        """From images; the ridge strengths are a fit's own choice, or ``ridge``; options as of `Settings`."""
        settings = Settings(**{**LQF, **options})
        fit = Fit(settings, backbone, images, preprocess, device, progress=progress)
        fit.engine.compile_ahead()
        pooled = fit.pool()
        problem, kernels = fit.problem(fit.point(pooled.head, pooled.choice.mu)), None
        ridge = ridge or given(settings, float(problem.weights.sum()))
        if ridge is None:
            kernels = averaged(fit, problem, pooled.features, MOST_SAMPLES // images.n_views)
            choice = fit.choose(kernels, pooled.choice.mu, None)
            ridge = Ridge(choice.mu, choice.mu * choice.omega)
        return cls(fit, pooled, problem.with_ridge(ridge), kernels)

    @property
    def ridge(self) -> Ridge:
        """Ridge strengths of head and body."""
        return self.problem.ridge

    def scaled(self, scale: float) -> Posed:
        """The same problem with both ridge strengths times ``scale``; what was made is kept."""
        ridge = Ridge(scale * self.ridge.head, scale * self.ridge.body)
        other = Posed(self.fit, self.pooled, self.problem.with_ridge(ridge), self.kernels)
        curvature = self.curvature  # for every ridge strength; made before activations take the memory
        return other._sharing(self.fast.with_ridge(ridge), curvature)

    def among(self, samples: Tensor) -> Posed:
        """The problem of these samples alone, with the same point and ridge strengths; the others lose their weight."""
        rows, head = rows_of(self.problem, samples), self.pooled.head
        part = head.of(*(t[rows.to(t.device)] for t in (head.features, head.residual, head.weights, head.groups)))
        ridge = part.ridge.among(rows.to(part.ridge.q.device), len(head.features))
        pooled = replace(self.pooled, head=replace(head, ridge=ridge))
        other = Posed(self.fit, pooled, without_weight(self.problem, rows), None)
        share = float(other.problem.weights.sum() / self.problem.weights.sum())
        curvature = self.curvature and Part(**vars(self.curvature), share=share)
        return other._sharing(without_weight(self.fast, rows), curvature)

    def _sharing(self, fast: QuadraticProblem, curvature: KFAC | None) -> Posed:
        self.__dict__.update(fast=fast, curvature=curvature)
        return self

    @cached_property
    def curvature(self) -> KFAC | None:
        """K-FAC of the body."""
        return Iterate(self.fit.settings, None, self.fit.world, self.fit.progress).curvature(self.problem)

    @cached_property
    def measured(self) -> QuadraticProblem:
        """With the body of exact passes."""
        return self.fit.engine.measured(self.problem)

    @cached_property
    def fast(self) -> QuadraticProblem:
        """With the body of fast products; activations of as many batches as fit are kept until `release`."""
        fast = self.fit.engine.fast(self.problem)
        with matmul_precision(self.fit.settings.precision != "float32"):  # recordings keep what holds now
            keep_activations(fast, self.measured)
        return fast

    def release(self) -> None:
        """Give up the activations that were kept."""
        if "fast" in self.__dict__:
            release_activations(self.fast)

    @cached_property
    def averaged(self) -> Kernels:
        """Kernels averaged over the outputs, of all samples."""
        if self.kernels is not None and len(self.kernels.samples) == len(self.fit.images):
            return self.kernels
        return averaged(self.fit, self.problem, self.pooled.features, len(self.fit.images))

    def averaged_cross(self, images: Images) -> Tensor:
        """The averaged kernel of other images with the training rows, (images, n)."""
        kernels, side = self.averaged, self.side(images)
        assert kernels.signs is not None
        return averaged_cross(self.problem, self.pooled.features, side, kernels.signs, progress=self.fit.progress)

    def solve(self, start: Tensor | None = None, *, tol: float | None = None) -> Solution:
        """The optimum, from the body's weights ``start`` (default: zero); its residual is measured by exact passes."""
        s = self.fit.settings
        solver = PCG(tol=s.tol if tol is None else tol, max_passes=s.max_passes, measure_start=False)
        return solver.solve(
            self.measured,
            self.pooled.features,
            self.pooled.head.ridge,
            self.curvature,
            start,
            fast=self.fast,
            tf32=s.precision != "float32",
            progress=self.fit.progress,
        )

    def side(self, images: Images) -> EncodedInputs:
        """Other images with their features, as `lqf.analysis.responses` asks about them."""
        inputs = self.fit._inputs(images, self.fit.preprocess)
        inputs.batch_size = self.fit.inputs.batch_size
        inputs.keep_on_device()
        with matmul_precision(fast=False):
            return EncodedInputs(inputs, torch.cat([self.measured.model.body.value(x) for _, x in inputs.batches()]))

    def body(self, solution: Solution) -> Tensor:
        """The body's part of a solution, for the next ``start``."""
        return self.problem.model.split(solution.delta)[1]

    def outputs(self, images: Images, solution: Solution) -> Tensor:
        """(N, C) of other images, on the CPU, by exact passes."""
        with matmul_precision(fast=False):
            rows = self.fit.outputs(images, self.measured.model, solution.delta)
        return average_views(rows, images.n_views).double().cpu()

    def error(self, images: Images, solution: Solution) -> float:
        """Share of wrong predictions on other images."""
        return error_rate(self.outputs(images, solution), torch.tensor(images.samples.labels))


def given(settings: Settings, total: float) -> Ridge | None:
    """Ridge strengths that the settings fix, Σs = ``total``; None where one of them has to be chosen."""
    head, body = settings.weight_decay, settings.body_weight_decay
    if settings.form == "w0" and body == "auto":
        body = head  # one λ for all
    if head == "auto" or body == "auto":
        return None
    return Ridge(float(head) * total, float(body) * total)


def averaged(fit: Fit, problem: QuadraticProblem, features: Tensor, samples: int) -> Kernels:
    """Kernels averaged over the outputs, of at most so many samples."""
    rows = min(len(problem.targets), samples * fit.images.n_views)
    free = available_bytes(fit.device) - 6 * 8 * rows * rows
    return averaged_kernels(
        problem,
        features,
        fit.rows.groups,
        budget=jacobian_bytes(problem, rows * min(AVERAGED_DRAWS, problem.model.n_outputs), free),
        most_samples=samples,
        seed=fit.settings.seed,
        progress=fit.progress,
    )
