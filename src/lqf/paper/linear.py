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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lqf.backbones import Backbone
from lqf.batch import rows_that_fit
from lqf.curvature import KFAC, Preconditioner, precondition
from lqf.curvature.blocks import Kronecker
from lqf.curvature.preconditioner import head_block
from lqf.data import Images, Preprocess, normalize
from lqf.errors import LQFError
from lqf.fast.replay import Passes, Replayed
from lqf.fast.shared import SharedLinearization
from lqf.inputs import Inputs
from lqf.linearize import Linearization
from lqf.memory import available_bytes
from lqf.model import LinearModel
from lqf.objective import Problem, Ridge
from lqf.paper.encoded import encoded
from lqf.paper.heads import HeadKind, features_of, make_head
from lqf.paper.kept import Kept
from lqf.paper.nlft import Loss, Schedule, check_choices, rate
from lqf.paper.stream import drawn, per_epoch, steps, stream
from lqf.paper.trained import Trained
from lqf.paper.tuned import autocast, plain_float32
from lqf.paper.views import Views
from lqf.precision import matmul_precision
from lqf.progress import SILENT, Progress

Optimiser = Literal["sgd", "adam"]
Scope = Literal["all", "fc"]
Direction = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Linear:
    """How to train a linear model.

    Attributes:
        loss: "mse" or "cross_entropy".
        optimiser: "sgd" with ``momentum``, or "adam" with β = (``beta1``, 0.999).
        kfac: precondition the gradient by K-FAC, computed once.
        damping: ρ of the preconditioner.
        scope: "all" linearises the whole network, "fc" trains its last layer on frozen features.
        head: at the linearisation point: "random", "probe" (`lqf.paper.heads`), or "zero", for "fc" alone: under a zero
            head the body's Jacobian is zero.
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
        kept: Kept | None = None,
        progress: Progress = SILENT,
    ) -> Trained:
        """Train on a backbone (load it with ``leaky=True`` for LQF), which stays as it is.

        ``kept`` is what earlier runs on the same images and backbone left: inputs, features, K-FAC.
        """
        began, kept = time.perf_counter(), Kept() if kept is None else kept
        dtype = torch.float64 if self.dtype == "float64" else torch.float32
        body = Linearization(backbone.body.to(device=device, dtype=dtype))
        inputs = kept.get(("inputs", self.dtype), lambda: _inputs(body, images, preprocess, device, dtype))
        needed = self.scope == "fc" or self.kfac or self.head == "probe"
        features = kept.get(("features", self.dtype), lambda: features_of(body, inputs, progress)) if needed else None
        heads = make_head(self.head, features, images, backbone.features, self.alpha, self.seed).to(device, dtype)
        model = LinearModel(body if self.scope == "all" else NOTHING, heads[None], True, 0.0)
        training = _Training(self, model, body, inputs, features, kept)
        delta, losses = training.run(Views(images, preprocess, self.augment, device), progress)
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
    inputs = Inputs(images, preprocess, device=device, dtype=dtype, batch_size=16)
    if device.type == "cuda":
        inputs.batch_size = rows_that_fit(body, inputs.example(1), available_bytes(device))
    inputs.keep_on_device()
    return inputs


NOTHING = Linearization(nn.Identity().eval())
"""A body without weights: its features are what it is given."""


@dataclass
class _Training:
    """The steps of one run."""

    how: Linear
    model: LinearModel
    body: Linearization
    inputs: Inputs
    features: Tensor | None
    kept: Kept

    @property
    def batch(self) -> int:
        return min(self.how.batch_size, len(self.inputs))

    @property
    def total(self) -> int:
        return steps(len(self.inputs), self.how.epochs, self.batch)

    def run(self, views: Views, progress: Progress) -> tuple[Tensor, Tensor]:
        """δ, and the loss of every step on the CPU."""
        how, device = self.how, self.inputs.device
        samples = self.inputs.images.samples
        labels = torch.tensor(samples.labels, device=device)
        weights = torch.tensor(samples.weights, dtype=self.inputs.dtype, device=device)
        weights = weights / weights.mean()
        delta = nn.Parameter(torch.zeros(self.model.size, dtype=self.inputs.dtype, device=device))
        optimiser, direction = self._optimiser(delta), self._direction(weights, progress)
        total = self.total
        losses = torch.zeros(total, device=device, dtype=self.inputs.dtype)
        gradient = self._recorded(delta, direction, progress.say)
        with progress.stage("training", total=total * self.batch, unit="images") as stage, plain_float32():
            for k, (rows, given) in enumerate(self._batches(views)):
                optimiser.param_groups[0]["lr"] = how.learning_rate * rate(how.schedule, k / total)
                losses[k], delta.grad = gradient(given, labels[rows], weights[rows])
                optimiser.step()
                stage.advance(self.batch)
        return delta.detach(), losses.cpu()

    def _recorded(self, delta: nn.Parameter, direction: Direction, say: Callable[[str], None]) -> Passes:
        """(pixels or features, labels, sample weights) -> mean loss and direction of the step; one recording on a GPU.

        It reads δ where it lies. The update of δ, one kernel, stays outside.
        """
        model = self._quick()

        def gradient(given: Tensor, y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
            x = normalize(given, self.inputs.preprocess, self.inputs.dtype) if self.how.scope == "all" else given
            loss, g = self._gradient(model, x, y, s, delta)
            return loss, direction(g)

        return Replayed(gradient, say)

    def _gradient(self, model: LinearModel, x: Tensor, y: Tensor, s: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        """Mean loss and gradient of a batch, the penalty in the gradient."""
        kept: list[Tensor] = []

        def cotangent(z: Tensor, jd: Tensor) -> Tensor:
            losses, u = self.how.cotangent(model.base(z) + jd, y)
            kept.append((s * losses).mean())
            return s[:, None] * u

        pulled = model.fused(x, delta.detach(), cotangent)[1]
        return kept[0], self.how.weight_decay * delta.detach() - pulled / len(x)

    def _batches(self, views: Views) -> Iterable[tuple[Tensor, Tensor]]:
        """Row numbers of every step, and pixels for a linearised network or features for a head alone."""
        how, n = self.how, len(self.inputs)
        if how.scope == "all":
            return stream(views, n, how.epochs, self.batch, how.seed)
        if how.augment == "none":  # every step sees the same features
            assert self.features is not None
            z = self.features
            return (
                (rows, z[rows]) for rows in drawn(views, n, how.epochs, how.seed)[0].split(self.batch)[: self.total]
            )
        made = encoded(views, n, how.epochs, self.batch, how.seed, self._encoded)
        size = how.epochs * n * self.model.heads.shape[-1] * self.inputs.dtype.itemsize
        if size > available_bytes(self.inputs.device) // 4:
            return made
        name = ("views", how.augment, how.epochs, self.batch, how.seed, how.dtype, how.precision)
        return self.kept.get(name, lambda: list(made))

    def _encoded(self, pixels: Tensor) -> Tensor:
        """Features (B, p); on a GPU in the precision that linearised networks have there."""
        device, dtype = self.inputs.device, self.inputs.dtype
        narrow = self.how.precision if device.type == "cuda" else "float32"
        x = normalize(pixels, self.inputs.preprocess, dtype)
        with autocast(device, narrow):
            return self.body.value(x).to(dtype)

    def _optimiser(self, delta: nn.Parameter) -> torch.optim.Optimizer:
        fused = delta.device.type == "cuda"
        if self.how.optimiser == "adam":
            return torch.optim.Adam([delta], lr=self.how.learning_rate, betas=(self.how.beta1, 0.999), fused=fused)
        return torch.optim.SGD([delta], lr=self.how.learning_rate, momentum=self.how.momentum, fused=fused)

    def _direction(self, weights: Tensor, progress: Progress) -> Direction:
        """Gradient of the mean loss -> N·P⁻¹ times it; κ is the curvature of ℓ at w0."""
        if not self.how.kfac:
            return lambda g: g
        assert self.features is not None
        n, c = len(self.inputs), self.model.n_outputs
        kappa = 1.0 if self.how.loss == "mse" else 1.0 / c
        mu = self.how.weight_decay * n / kappa
        targets = torch.zeros(n, c, dtype=self.inputs.dtype, device=self.inputs.device)
        fold = torch.zeros(n, dtype=torch.long, device=self.inputs.device)
        problem = Problem(self.model, self.inputs, targets, weights, fold, Ridge(mu, mu))
        p = self._preconditioner(problem, progress)
        more = damped(problem, p, self.how.damping / (self.batch * c))

        def direction(g: Tensor) -> Tensor:
            with matmul_precision(fast=True):
                return p.solve(g, more).mul_(n / kappa)

        return direction

    def _preconditioner(self, problem: Problem, progress: Progress) -> Preconditioner:
        """A without the penalty: the ridge strengths of ``problem`` enter where it is solved with."""
        how, features = self.how, self.features
        assert features is not None

        def make() -> Preconditioner:
            with matmul_precision(fast=True):
                if how.scope == "all":
                    return precondition(problem, features, seed=how.seed, progress=progress)
                return Preconditioner(head_block(problem, features), KFAC(problem.model.body.layout, {}, {}, {}, {}))

        return self.kept.get(("kfac", how.scope, how.head, how.alpha, how.seed, how.dtype), make)

    def _quick(self) -> LinearModel:
        """The model with faster products from one pass, on a GPU."""
        if self.how.scope == "fc" or self.inputs.device.type != "cuda":
            return self.model
        dtype = torch.bfloat16 if self.how.precision == "bf16" else self.inputs.dtype
        return replace(self.model, body=SharedLinearization(self.body, dtype, self.inputs.example()))


def damped(problem: Problem, p: Preconditioner, rho: float) -> Problem:
    """The problem with ridge strengths μ + ρ·tr A, of the head's and of the body's block, for P alone."""
    ridge = problem.ridge
    return problem.with_ridge(Ridge(ridge.head + rho * _trace(p.head), ridge.body + rho * _trace(p.body)))


def _trace(block: Kronecker | KFAC) -> float:
    if isinstance(block, Kronecker):
        return float(block.d.double().sum())
    parts = [*(k.d for k in block.kronecker.values()), *(c.lam for c in block.channels.values())]
    return float(torch.stack([t.double().sum() for t in parts]).sum()) if parts else 0.0
