"""The methods without mini-batches: the closed-form head, and LQF as this library fits it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lqf.backbones import Backbone
from lqf.data import Images, Preprocess, with_views
from lqf.fitting import Context, FittedModel, fit
from lqf.linear import head_products, sweep
from lqf.linear.batch import usual_rows
from lqf.linear.inputs import Inputs
from lqf.linear.linearize import Linearization
from lqf.linear.targets import class_scores
from lqf.settings import Settings
from lqf.utils.progress import SILENT, Progress
from lqf_paper.methods.heads import ridge_head


@dataclass(frozen=True)
class RidgeHead:
    """LQF-FC: f(x) = V z̃(x) with V the exact minimiser of ½ Σ s‖α·onehot(y) − V z̃‖² + (Nλ/2)‖V‖².

    Attributes:
        v: (C, p+1), float64.
        body: gives the features.
        preprocess: pixels to inputs.
        weight_decay: λ.
        loo_error: exact leave-one-out error.
        seconds: of the fit.
    """

    v: Tensor
    body: Linearization
    preprocess: Preprocess
    weight_decay: float
    loo_error: float
    seconds: float
    losses: tuple[float, ...] = ()

    @classmethod
    def fit(
        cls,
        backbone: Backbone,
        images: Images,
        preprocess: Preprocess,
        *,
        device: torch.device,
        weight_decay: float | None = None,
        alpha: float = 15.0,
        progress: Progress = SILENT,
    ) -> RidgeHead:
        """Solve; without a weight decay, leave-one-out chooses it."""
        began = time.perf_counter()
        body = Linearization(backbone.body.to(device))
        z = sweep.features(body, _inputs(images, preprocess, device, body), progress=progress)
        head, choice = ridge_head(z, images, alpha, weight_decay)
        total = float(head.weights.sum())
        took = time.perf_counter() - began
        return cls(head.solve(choice.mu), body, preprocess, choice.mu / total, choice.best.error, took)

    def outputs(self, images: Images) -> Tensor:
        """Class scores (N, C), on the CPU."""
        inputs = _inputs(images, self.preprocess, self.v.device, self.body)
        return head_products.jvp(sweep.features(self.body, inputs), self.v).cpu()


def _inputs(images: Images, preprocess: Preprocess, device: torch.device, body: Linearization) -> Inputs:
    dtype = next(body.module.parameters()).dtype
    return Inputs(images, preprocess, device=device, dtype=dtype, batch_size=usual_rows(device))


@dataclass(frozen=True)
class Ours:
    """LQF as `lqf fit` does it: the exact solver, every choice by leave-one-out."""

    fitted: FittedModel
    device: torch.device
    seconds: float
    losses: tuple[float, ...] = ()

    @classmethod
    def fit(
        cls,
        backbone: Backbone,
        images: Images,
        preprocess: Preprocess,
        *,
        device: torch.device,
        progress: Progress = SILENT,
        **settings: Any,
    ) -> Ours:
        """Solve; ``settings`` are those of `lqf.settings.Settings`, all of them with their defaults."""
        began = time.perf_counter()
        context = Context(Settings(**settings), device, progress=progress)
        fitted = fit(images, backbone, preprocess, context)
        return cls(fitted, device, time.perf_counter() - began)

    @property
    def report(self) -> dict[str, Any]:
        """What the fit did and chose."""
        return self.fitted.report.to_dict()

    def outputs(self, images: Images) -> Tensor:
        """Class scores (N, C), averaged over the views that the fit chose, on the CPU."""
        seen = with_views(images, self.fitted.preprocess)
        batch_size = usual_rows(self.device)
        return class_scores(self.fitted.outputs(seen, device=self.device, batch_size=batch_size), self.fitted.alpha)
