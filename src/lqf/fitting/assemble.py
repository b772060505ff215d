"""The end of a fit: what was computed becomes a `Fitted` and its report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lqf.backbones import Backbone
from lqf.data import Preprocess
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting.fitted_model import Fitted, TrainingTable
from lqf.fitting.training_set import Rows
from lqf.linear.model import LinearModel
from lqf.linear.problem import Ridge
from lqf.settings import Settings
from lqf.solvers import Head
from lqf.solvers.solution import Certificate, Solution


@dataclass(frozen=True)
class Assembly:
    """Puts models together.

    Attributes:
        settings: α, the stage, the floating-point type.
        backbone: the network.
        preprocess: pixels to inputs.
        rows: of the training images.
    """

    settings: Settings
    backbone: Backbone
    preprocess: Preprocess
    rows: Rows

    def of_head(self, v: Tensor, loo: LeaveOneOut | None, beta: float, told: dict[str, Any]) -> Fitted:
        """A closed-form head V (C, p+1) alone."""
        return self._fitted(v, torch.zeros_like(v[:, :-1]), v.new_zeros(0), loo, beta, told)

    def of_model(
        self, model: LinearModel, delta: Tensor, loo: LeaveOneOut | None, beta: float, told: dict[str, Any]
    ) -> Fitted:
        """A linear model at δ; predictions go through the mean of its heads."""
        v, body = model.split(delta)
        mean = model.heads.mean(0)
        return self._fitted(v + mean if model.around_w0 else v, mean[:, :-1], body, loo, beta, told)

    def _fitted(
        self, head: Tensor, point: Tensor, delta: Tensor, loo: LeaveOneOut | None, beta: float, told: dict[str, Any]
    ) -> Fitted:
        images = self.rows.images
        s = images.samples
        dtype = torch.float64 if self.settings.dtype == "float64" else torch.float32
        head, point, delta = (t.detach().to("cpu", dtype) for t in (head, point, delta))
        return Fitted(
            backbone=self.backbone,
            preprocess=self.preprocess,
            classes=s.classes,
            alpha=self.settings.alpha,
            constant=self.rows.constant,
            head=head,
            point=point,
            stage=self.settings.linearize,
            delta=delta,
            beta=beta,
            train=TrainingTable(s.ids, s.labels, s.weights, s.groups, images.hashes),
            loo=loo,
            report=told,
        )


def head_solution(head: Head, mu: float) -> Solution:
    """The closed-form head as a `Solution`."""
    v = head.solve(mu)
    relative = head.relative_residual(v, mu)
    sentence = f"closed form: relative residual {relative:.1e} after one pass over the data"
    certificate = Certificate(relative, float("nan"), 1, True, sentence)
    return Solution(v.reshape(-1), Ridge(mu, mu), "head", "exact", certificate)
