"""Linear methods by mini-batches: a linearised network (or its last layer alone) under either loss.

    min_δ (1/N) Σ s_i ℓ(f(x_i), y_i) + (λ/2) ‖δ‖²,        f(x) = W̃ z̃(x) + J(x) δ,

with ℓ the cross entropy, or ½‖f − α·onehot(y)‖², and W̃ the head at the linearisation point. GaF is the cross entropy by
SGD, FC the same over the last layer, LQF the squared error by SGD on the K-FAC preconditioned gradient. The gradient of
a batch B is −(1/|B|) Σ s_i J_iᵀu_i + λδ with u_i = −∂ℓ/∂f, from one fused product. The penalty is part of it and passes
through the preconditioner. Batch normalisation keeps its running statistics: J is taken of the network in eval mode.

K-FAC approximates A = Σ s JᵀJ, the curvature of the squared error. That of the cross entropy at w0, where all classes
are about equally likely, is A/C up to the direction that moves all outputs alike, and A/C is what stands in for it.
A mini-batch of b samples enters with weight N/b, and a sample's gradient has parts that A, made of a few hundred
central views, does not know: there P would be the penalty alone, and a step by its inverse diverges. P is therefore
damped, for the head and for the body,

    P = κA + (Nλ + κρ·tr A/(bC)) I,        δ ← δ − η·(momentum of N·P⁻¹ times the gradient),

κ = 1 or 1/C. tr A/(NC) is the mean square length of a sample's gradient, so that one sample of a batch moves its own
output by no more than η/((1−m)ρ) of its residual, at that length: not beyond its target at η = 0.1 and ρ = 1, the
paper's rate and ours.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lqf.backbones import Backbone
from lqf.data import Images, Preprocess
from lqf.errors import LQFError
from lqf.linear import sweep
from lqf.linear.batch import CPU_ROWS, in_fitting_batches
from lqf.linear.inputs import Inputs
from lqf.linear.linearize import Linearization
from lqf.linear.model import LinearModel
from lqf.training.finetune import Loss, Schedule, check_choices
from lqf.training.random_views import RandomViews
from lqf.training.stream import per_epoch
from lqf.utils.progress import SILENT, Progress
from lqf_paper.methods.heads import HeadKind, make_head
from lqf_paper.methods.linear_training import Training
from lqf_paper.methods.models import Trained
from lqf_paper.runner.group_cache import GroupCache

Optimiser = Literal["sgd", "adam"]
Scope = Literal["all", "fc"]


@dataclass(frozen=True)
class Linear:
    """How to train a linear model.

    Attributes:
        loss: "mse" or "cross_entropy".
        optimiser: "sgd" with ``momentum``, or "adam" with β = (``beta1``, 0.999).
        kfac: precondition the gradient by K-FAC, computed once.
        damping: ρ of the preconditioner.
        scope: "all" linearises the whole network, "fc" trains its last layer on frozen features.
        head: at the linearisation point: "random", "probe" (`lqf_paper.methods.heads`), or "zero", for "fc" alone:
            under a zero head the body's Jacobian is zero.
        learning_rate: η at the beginning; it follows ``schedule`` as in `NLFT`.
        weight_decay: λ.
        epochs, batch_size, alpha, augment, seed: as in `NLFT`.
        precision: of the products on a GPU: "bf16" or "float32"; on a CPU they are in ``dtype``. What is reported is
            measured in ``dtype``.
        dtype: "float32", or "float64" for tests.
    """

    loss: Loss = "mse"
    optimiser: Optimiser = "sgd"
    kfac: bool = False
    damping: float = 1.0
    scope: Scope = "all"
    head: HeadKind = "random"
    learning_rate: float = 0.01
    weight_decay: float = 1e-4
    epochs: int = 30
    batch_size: int = 28
    alpha: float = 15.0
    momentum: float = 0.9
    beta1: float = 0.9
    schedule: Schedule = "cosine"
    augment: Literal["crop", "resized", "none"] = "crop"
    precision: Literal["bf16", "float32"] = "bf16"
    dtype: Literal["float32", "float64"] = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        choices = {"loss": Loss, "optimiser": Optimiser, "scope": Scope, "head": HeadKind, "schedule": Schedule}
        check_choices(self, choices)
        if self.head == "zero" and self.scope == "all":
            raise LQFError("under a zero head the body's Jacobian is zero and only the head would learn; use `random`")

    def fit(
        self,
        backbone: Backbone,
        images: Images,
        preprocess: Preprocess,
        *,
        device: torch.device,
        cache: GroupCache | None = None,
        progress: Progress = SILENT,
    ) -> Trained:
        """Train on a backbone (load it with ``leaky=True`` for LQF), which stays as it is.

        ``cache`` has what earlier runs on the same images and backbone left: inputs, features, K-FAC.
        """
        began, cache = time.perf_counter(), GroupCache() if cache is None else cache
        dtype = torch.float64 if self.dtype == "float64" else torch.float32
        body = Linearization(backbone.body.to(device=device, dtype=dtype))
        inputs = cache.get(("inputs", self.dtype), lambda: _inputs(body, images, preprocess, device, dtype))
        needed = self.scope == "fc" or self.kfac or self.head == "probe"
        features = (
            cache.get(("features", self.dtype), lambda: sweep.features(body, inputs, progress=progress))
            if needed
            else None
        )
        heads = make_head(self.head, features, images, backbone.features, self.alpha, self.seed).to(device, dtype)
        model = LinearModel(body if self.scope == "all" else NOTHING, heads[None], True, 0.0)
        training = Training(self, model, body, inputs, features, cache)
        delta, losses = training.run(RandomViews(images, preprocess, self.augment, device), progress)
        means = per_epoch(losses, len(images), training.batch)
        encode = None if self.scope == "all" else body
        return Trained(model, delta, encode, preprocess, means, time.perf_counter() - began)

    def cotangent(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """ℓ (B,) and −∂ℓ/∂f (B, C)."""
        if self.loss == "cross_entropy":
            u = F.one_hot(labels, outputs.shape[1]) - outputs.softmax(1)
            return F.cross_entropy(outputs, labels, reduction="none"), u
        u = self.alpha * F.one_hot(labels, outputs.shape[1]) - outputs
        return 0.5 * u.square().sum(1), u


def _inputs(
    body: Linearization, images: Images, preprocess: Preprocess, device: torch.device, dtype: torch.dtype
) -> Inputs:
    """The central views, in batches that fit."""
    inputs = Inputs(images, preprocess, device=device, dtype=dtype, batch_size=CPU_ROWS)
    inputs = in_fitting_batches(inputs, body)
    inputs.keep_on_device()
    return inputs


NOTHING = Linearization(nn.Identity().eval())
"""A body without weights: its features are what it is given."""
