"""The problem a model was fitted by, built again: same point, folds, ridge strengths, pooling, views and prefix."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lqf.data import Images
from lqf.errors import LQFError
from lqf.fitting.fitted_model import Fitted
from lqf.fitting.pipeline import Fit
from lqf.linear.inputs import Inputs
from lqf.linear.problem import QuadraticProblem, Ridge
from lqf.settings import Settings
from lqf.solvers import Head
from lqf.utils.progress import SILENT, Progress


@dataclass(frozen=True)
class Rebuilt:
    """What every method of solution starts from.

    Attributes:
        fitted: the model.
        fit: the stages of its fit, over the training images.
        features: (n, p) of all rows.
        head: the closed-form head problem, factorised.
        problem: the quadratic problem with its ridge strengths.
    """

    fitted: Fitted
    fit: Fit
    features: Tensor
    head: Head
    problem: QuadraticProblem

    @classmethod
    def of(
        cls, fitted: Fitted, images: Images, settings: Settings, device: torch.device, progress: Progress = SILENT
    ) -> Rebuilt:
        """By the stages of the fit itself; the point is compared with the one that was stored."""
        if settings.augment != "none":
            raise LQFError(
                f"the model was fitted on random views (augment {settings.augment!r}), which no training sample can be "
                "taken out of; fit with augment='none'"
            )
        if cls._head_alone(fitted):
            settings = replace(settings, form="centred")  # a head alone is always penalised around zero
        fit = Fit(settings, fitted.backbone, images, fitted.preprocess, device, progress=progress)
        features = fit.features()
        head, ridge = fit.closed_form_head(features), Ridge(**fitted.report["ridge"])
        problem = fit.problem(fit.point(head, fitted.report["point_ridge"])).with_ridge(ridge)
        if not cls._head_alone(fitted):
            _check_point(fitted.point, problem.model.heads.mean(0)[:, :-1])
        return cls(fitted, fit, features, head, problem)

    @staticmethod
    def _head_alone(fitted: Fitted) -> bool:
        return len(fitted.delta) == 0

    @property
    def head_alone(self) -> bool:
        """Whether only the last layer was trained."""
        return self._head_alone(self.fitted)

    def inputs(self, images: Images) -> Inputs:
        """Rows of other images, on the same way to the network."""
        own = self.fit.inputs
        return Inputs(
            images,
            self.fit.preprocess,
            device=own.device,
            dtype=own.dtype,
            batch_size=own.batch_size,
            prefix=own.prefix,
        )


def _check_point(stored: Tensor, made: Tensor, tol: float = 1e-3) -> None:
    """The head at the point depends on everything before it; if it is the same, so is the problem."""
    made = made.to(stored)
    gap = float((stored - made).norm() / stored.norm().clamp_min(1e-30))
    if gap > tol:
        raise LQFError(
            f"the linearisation point cannot be made again (it differs by {gap:.1%}): "
            "the network, the settings or lqf itself have changed since the fit; fit again"
        )
