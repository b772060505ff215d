"""A linear-quadratic problem that is solved several times: at other ridge strengths, from other starts.

A fit solves its problem once. The experiments on weight decay and on data that arrive in steps ask how many passes a
solve takes from where another one ended, so features, point, curvature and fast passes are made once and kept.
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
from lqf.fit import Fit
from lqf.iterate import Iterate
from lqf.loo import average_views
from lqf.objective import Problem, Ridge
from lqf.progress import SILENT, Progress
from lqf.settings import Settings
from lqf.solution import Solution
from lqf.solvers import PCG
from lqf.stages import Prepared
from lqf.targets import error_rate

LQF: Mapping[str, Any] = {"solver": "pcg", "views": "none", "loo": "none"}
"""What every solve here is told, beside a fit's defaults."""


@dataclass(eq=False)
class Posed:
    """A problem with ridge strengths, ready to be solved.

    Attributes:
        fit: its stages.
        ready: features, point, ridge strengths.
    """

    fit: Fit
    ready: Prepared

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
        return cls(fit, fit.prepare(fit.outline(fit.pool()), ridge))

    @property
    def problem(self) -> Problem:
        """With its ridge strengths."""
        return self.ready.problem

    @property
    def ridge(self) -> Ridge:
        """Ridge strengths of head and body."""
        return self.ready.problem.ridge

    def scaled(self, scale: float) -> Posed:
        """The same problem with both ridge strengths times ``scale``; what was made is kept."""
        ridge = Ridge(scale * self.ridge.head, scale * self.ridge.body)
        other = Posed(self.fit, replace(self.ready, problem=self.problem.with_ridge(ridge)))
        other.__dict__["curvature"] = self.curvature  # it holds for every ridge strength
        return other

    @cached_property
    def curvature(self) -> KFAC | None:
        """K-FAC of the body."""
        return Iterate(self.fit.settings, None, self.fit.world, self.fit.progress).curvature(self.problem)

    def solve(self, start: Tensor | None = None, *, tol: float | None = None) -> Solution:
        """The optimum, from the body's weights ``start`` (default: zero)."""
        s, engine = self.fit.settings, self.fit.engine
        return PCG(tol=s.tol if tol is None else tol, max_passes=s.max_passes).solve(
            engine.measured(self.problem),
            self.ready.pooled.features,
            self.ready.pooled.head.ridge,
            self.curvature,
            start,
            fast=engine.fast(self.problem),
            tf32=s.precision != "float32",
            progress=self.fit.progress,
        )

    def body(self, solution: Solution) -> Tensor:
        """The body's part of a solution, for the next ``start``."""
        return self.problem.model.split(solution.delta)[1]

    def outputs(self, images: Images, solution: Solution) -> Tensor:
        """(N, C) of other images, on the CPU."""
        rows = self.fit.outputs(images, self.problem.model, solution.delta)
        return average_views(rows, images.n_views).double().cpu()

    def error(self, images: Images, solution: Solution) -> float:
        """Share of wrong predictions on other images."""
        return error_rate(self.outputs(images, solution), torch.tensor(images.samples.labels))
