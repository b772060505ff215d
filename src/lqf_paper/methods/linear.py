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
damped (`lqf.curvature.damping`; γ = Nλ/κ + ρ·tr A/(bC) of the head's and of the body's block), by default layer
by layer,

    P_l = κ (A_l + π√γ I) ⊗ (G_l + √γ/π I),        δ ← δ − η·(momentum of N·P⁻¹ times the gradient),

κ = 1 or 1/C. tr A/(NC) is the mean square length of a sample's gradient, so that one sample of a batch moves its own
output by no more than η/((1−m)ρ) of its residual, at that length. Small ρ precondition more of the spectrum and ask for
small η. With ρ = "auto" it is the least whose steps at η do not overshoot a batch (`lqf.solvers.stable_damping`).

Steps, damping and rates are those of `lqf fit --solver sgd` (`lqf.solvers.stochastic`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lqf.backbones import Backbone
from lqf.curvature.damping import DampingKind
from lqf.data import Images, Preprocess
from lqf.errors import LQFError
from lqf.linear import sweep
from lqf.linear.batch import CPU_ROWS, in_fitting_batches
from lqf.linear.inputs import Inputs
from lqf.linear.linearize import Linearization
from lqf.linear.model import LinearModel
from lqf.training.finetune import Loss, check_choices
from lqf.training.random_views import RandomViews
from lqf.training.stream import per_epoch
from lqf.utils.progress import SILENT, Progress
from lqf.utils.schedule import Schedule
from lqf_paper.methods.heads import HeadKind, make_head
from lqf_paper.methods.linear_training import Training
from lqf_paper.methods.models import Precision, Trained
from lqf_paper.runner.group_cache import GroupCache

Optimiser = Literal["sgd", "adam"]
Scope = Literal["all", "fc"]
LATER = {"later": True}
"""Fields that came after cells were kept: they count where they are given."""


@dataclass(frozen=True)
class Linear:
    """How to train a linear model.

    Attributes:
        loss: "mse" or "cross_entropy".
        optimiser: "sgd" with ``momentum``, or "adam" with β = (``beta1``, 0.999).
        kfac: precondition the gradient by K-FAC, computed once.
        damping: ρ of the preconditioner, or "auto".
        damping_kind: "factored", "trace" or "none" (`lqf.curvature.damping`).
        scope: "all" linearises the whole network, "fc" trains its last layer on frozen features.
        head: at the linearisation point: "random", "probe" (`lqf_paper.methods.heads`), or "zero", for "fc" alone:
            under a zero head the body's Jacobian is zero.
        head_std: standard deviation of a random head's entries; None: 1/√p. Ordinary fine-tuning begins with 0.01.
        learning_rate: η at the beginning, which follows ``schedule`` as in `NLFT`; "stable": the largest whose steps do
            not overshoot the first batches.
        weight_decay: λ.
        epochs, batch_size, alpha, augment, seed: as in `NLFT`.
        precision: of the products, in training and in test alike: "float32", "tf32" (on a GPU; elsewhere the same), or
            "bf16".
        dtype: of δ and of all that is wide: "float32", or "float64" for tests.
        stop_below: end early, once the share of wrong predictions on the batches as they came has been at most this in
            five epochs in a row; None: never.
    """

    EARLIER: ClassVar[dict[str, Any]] = {"damping": 1.0, "damping_kind": None, "precision": "bf16"}
    """Defaults of cells that were kept before: P damped by the trace, bfloat16 in training and float32 in test."""

    loss: Loss = "mse"
    optimiser: Optimiser = "sgd"
    kfac: bool = False
    damping: float | str = "auto"
    damping_kind: DampingKind = "factored"
    scope: Scope = "all"
    head: HeadKind = "random"
    head_std: float | None = field(default=None, metadata=LATER)
    learning_rate: float | str = 0.01
    weight_decay: float = 1e-4
    epochs: int = 30
    batch_size: int = 28
    alpha: float = 15.0
    momentum: float = 0.9
    beta1: float = 0.9
    schedule: Schedule = "cosine"
    augment: Literal["crop", "resized", "none"] = "crop"
    precision: Precision = "tf32"
    dtype: Literal["float32", "float64"] = "float32"
    stop_below: float | None = field(default=None, metadata=LATER)
    seed: int = 0

    def __post_init__(self) -> None:
        choices = {"loss": Loss, "optimiser": Optimiser, "scope": Scope, "head": HeadKind, "schedule": Schedule}
        check_choices(self, choices | {"precision": Precision, "damping_kind": DampingKind})
        if isinstance(self.damping, str) and self.damping != "auto":
            raise LQFError(f'damping is {self.damping!r}; give a number, or "auto"')
        if isinstance(self.learning_rate, str) and (
            self.learning_rate != "stable" or (self.kfac and self.damping == "auto")
        ):
            raise LQFError(
                f'learning_rate is {self.learning_rate!r}; give a number, or "stable" with a damping of its own'
            )
        if self.head == "zero" and self.scope == "all":
            raise LQFError("under a zero head the body's Jacobian is zero and only the head would learn; use `random`")

    def fit(
        self,
        backbone: Backbone,
        images: Images,
        preprocess: Preprocess,
        *,
        device: torch.device,
        start: Tensor | None = None,
        cache: GroupCache | None = None,
        progress: Progress = SILENT,
    ) -> Trained:
        """Train on a backbone (load it with ``leaky=True`` for LQF), which stays as it is, from δ = ``start`` or zero.

        ``cache`` has what earlier runs on the same images and backbone left: inputs, features, K-FAC.
        """
        began = time.perf_counter()
        training = self.posed(backbone, images, preprocess, device=device, cache=cache, progress=progress)
        delta, losses = training.run(RandomViews(images, preprocess, self.augment, device), progress, start)
        means = per_epoch(losses, len(images), training.batch)
        encode = None if self.scope == "all" else training.body
        took, facts = time.perf_counter() - began, training.facts
        return Trained(training.model, delta, encode, preprocess, means, took, self.precision, facts)

    def posed(
        self,
        backbone: Backbone,
        images: Images,
        preprocess: Preprocess,
        *,
        device: torch.device,
        cache: GroupCache | None = None,
        progress: Progress = SILENT,
    ) -> Training:
        """The problem before its first step."""
        cache = GroupCache() if cache is None else cache
        dtype = torch.float64 if self.dtype == "float64" else torch.float32
        body = Linearization(backbone.body.to(device=device, dtype=dtype))
        inputs = cache.get(("inputs", self.dtype), lambda: _inputs(body, images, preprocess, device, dtype))
        features = None
        if self.head == "probe":
            features = cache.get(("features", self.dtype), lambda: sweep.features(body, inputs, progress=progress))
        heads = make_head(self.head, features, images, backbone.features, self.alpha, self.seed, self.head_std)
        model = LinearModel(body if self.scope == "all" else NOTHING, heads.to(device, dtype)[None], True, 0.0)
        return Training(self, model, body, inputs, cache)

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
