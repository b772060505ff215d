"""Moving the linearisation point: the network is stepped to w0 + δ, or fine-tuned, and linearised there.

    solve -> w0 ← w0 + η δ_body -> features, closed-form head, point -> solve again (`relinearize` times).

η = 1, halved as long as the network's features do not follow the linear model (`follows`): where it has no validity,
its solution is no direction to go. Every step is a quadratic problem with the same solvers, penalised around its own
point. A moved network has seen the labels: leave-one-out around it is too low, whatever hides a row's label from its
own head. Therefore

- pooling, views and ridge strengths are chosen at the pretrained weights, and the strengths keep their size relative to
  the kernels (`Strengths`);
- the error on unseen data comes from refits without each fold that begin at the pretrained weights
  (`lqf.fitting.relinearize`).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.backbones import Backbone
from lqf.backbones.state import moved
from lqf.data import Images, Preprocess, has_pixels
from lqf.errors import LQFError
from lqf.kernels.ridge import KernelRidge
from lqf.kernels.tangent import Kernels
from lqf.linear.linearize import linearized_body
from lqf.linear.problem import Ridge
from lqf.settings import Settings
from lqf.training.finetune import NLFT
from lqf.utils.progress import SILENT, Progress


@dataclass(frozen=True)
class Used:
    """Ridge strengths of one solve.

    Attributes:
        point: μ of the head(s) at the linearisation point.
        head, body: of the problem.
    """

    point: float
    head: float
    body: float

    @property
    def ridge(self) -> Ridge:
        """Of the problem."""
        return Ridge(self.head, self.body)


@dataclass(frozen=True)
class Strengths:
    """Ridge strengths in the kernels' own units, so that they mean the same around another point.

    Attributes:
        point, head: μ over the mean eigenvalue of the head's kernel.
        ratio: μ_body/μ_head over tr K_body / tr K_head.
    """

    point: float
    head: float
    ratio: float

    @classmethod
    def of(cls, used: Used, head: KernelRidge, kernels: Kernels) -> Strengths:
        """From what was used beside these kernels."""
        return cls(used.point / head.scale, used.head / head.scale, used.body / used.head / kernels.unit)

    def at(self, head: KernelRidge, kernels: Kernels, settings: Settings, total: float) -> Used:
        """Beside other kernels; a weight decay that the user gave stays as it is. ``total`` is Σs."""
        mu = self.head * head.scale if settings.weight_decay == "auto" else float(settings.weight_decay) * total
        body = self.ratio * kernels.unit * mu
        if settings.form == "w0":
            body = mu
        elif settings.body_weight_decay != "auto":
            body = float(settings.body_weight_decay) * total
        if not body > 0:
            raise LQFError(
                "after the network was moved no weight of its body acts on the outputs any more; "
                "give a larger body_weight_decay, or a smaller learning_rate to the fine-tuning"
            )
        return Used(self.point_at(head, settings, total), mu, body)

    def point_at(self, head: KernelRidge, settings: Settings, total: float) -> float:
        """μ of the head(s) at another point."""
        if settings.weight_decay != "auto":
            return float(settings.weight_decay) * total
        return self.point * head.scale


def follows(before: Tensor, linear: Tensor, after: Tensor) -> Tensor:
    """‖z − z0 − Jδ‖² and ‖Jδ‖², to be added up over rows; a network follows where the first is at most the second.

    Args:
        before: (B, p) features z0.
        linear: (B, p) their change Jδ in the linear model.
        after: (B, p) features z of the moved network.
    """
    gap = (after - before - linear).double().square().sum()
    return torch.stack([gap, linear.double().square().sum()])


def stepped(backbone: Backbone, stage: str, delta: Tensor, length: float = 1.0) -> Backbone:
    """The network at w0 + ηδ, for the change ``delta`` (D,) of the weights linearised from ``stage`` on."""
    body = copy.deepcopy(backbone.body)
    rest = linearized_body(body, stage)[1]
    own = dict(rest.module.named_parameters())
    with torch.no_grad():
        for name, change in rest.layout.views(delta).items():
            own[name].add_(change.to(own[name]), alpha=length)
    return moved(backbone, body, {"steps": [*backbone.spec.get("moved", {}).get("steps", []), length]})


def fine_tuned(
    backbone: Backbone,
    images: Images,
    preprocess: Preprocess,
    settings: Settings,
    device: torch.device,
    progress: Progress = SILENT,
) -> Backbone:
    """The network after a few epochs of ordinary fine-tuning under a new head, through the pooling it has.

    Pictures are cropped and mirrored at random. The root inside bilinear pooling needs float32.
    """
    narrow = device.type == "cuda" and "pooling" not in backbone.spec
    how = NLFT(
        learning_rate=settings.learning_rate or NLFT.learning_rate,
        epochs=settings.finetune_first,
        batch_size=settings.minibatch,
        augment="crop" if has_pixels(images) else "none",
        precision="bf16" if narrow else "float32",
        seed=settings.seed,
    )
    tuned = how.fit(backbone, images, preprocess, device=device, progress=progress)
    if not all(loss == loss and loss < float("inf") for loss in tuned.losses):
        raise LQFError("the fine-tuning before the solve diverged; give a smaller --learning-rate, or fewer epochs")
    dtype = next(backbone.body.parameters()).dtype
    return moved(backbone, tuned.network.body.to(dtype), {"epochs": settings.finetune_first})
