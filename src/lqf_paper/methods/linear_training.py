"""The steps of a linear method by mini-batches: gradients, preconditioner, features of random views for a head alone.

`lqf_paper.methods.linear` says what is minimised and how P is damped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from lqf.curvature import KFAC, Preconditioner, precondition
from lqf.curvature.blocks import Kronecker
from lqf.curvature.preconditioner import head_block
from lqf.data import normalize
from lqf.fast.fused import FusedLinearization
from lqf.fast.replay import Passes, Replayed
from lqf.linear.inputs import Inputs
from lqf.linear.linearize import Linearization
from lqf.linear.model import LinearModel
from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge
from lqf.runtime.memory import available_bytes
from lqf.runtime.precision import matmul_precision
from lqf.training.finetune import rate
from lqf.training.network import autocast, plain_float32
from lqf.training.random_views import RandomViews
from lqf.training.stream import drawn, steps, stream
from lqf.utils.progress import Progress
from lqf_paper.methods.feature_batches import feature_batches
from lqf_paper.runner.group_cache import GroupCache

if TYPE_CHECKING:
    from lqf_paper.methods.linear import Linear

Direction = Callable[[Tensor], Tensor]
"""Gradient of the mean loss -> direction of the step."""


@dataclass
class Training:
    """The steps of one run of `lqf_paper.methods.linear.Linear`."""

    how: Linear
    model: LinearModel
    body: Linearization
    inputs: Inputs
    features: Tensor | None
    cache: GroupCache

    @property
    def batch(self) -> int:
        return min(self.how.batch_size, len(self.inputs))

    @property
    def total(self) -> int:
        return steps(len(self.inputs), self.how.epochs, self.batch)

    def run(self, views: RandomViews, progress: Progress) -> tuple[Tensor, Tensor]:
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

    def _batches(self, views: RandomViews) -> Iterable[tuple[Tensor, Tensor]]:
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
        made = feature_batches(views, n, how.epochs, self.batch, how.seed, self._encoded)
        size = how.epochs * n * self.model.heads.shape[-1] * self.inputs.dtype.itemsize
        if size > available_bytes(self.inputs.device) // 4:
            return made
        name = ("views", how.augment, how.epochs, self.batch, how.seed, how.dtype, how.precision)
        return self.cache.get(name, lambda: list(made))

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
        problem = QuadraticProblem(self.model, self.inputs, targets, weights, fold, Ridge(mu, mu))
        p = self._preconditioner(problem, progress)
        more = damped(problem, p, self.how.damping / (self.batch * c))

        def direction(g: Tensor) -> Tensor:
            with matmul_precision(fast=True):
                return p.solve(g, more).mul_(n / kappa)

        return direction

    def _preconditioner(self, problem: QuadraticProblem, progress: Progress) -> Preconditioner:
        """A without the penalty: the ridge strengths of ``problem`` enter where it is solved with."""
        how, features = self.how, self.features
        assert features is not None

        def make() -> Preconditioner:
            with matmul_precision(fast=True):
                if how.scope == "all":
                    return precondition(problem, features, seed=how.seed, progress=progress)
                return Preconditioner(head_block(problem, features), KFAC(problem.model.body.layout, {}, {}, {}, {}))

        return self.cache.get(("kfac", how.scope, how.head, how.alpha, how.seed, how.dtype), make)

    def _quick(self) -> LinearModel:
        """The model with faster products from one pass, on a GPU."""
        if self.how.scope == "fc" or self.inputs.device.type != "cuda":
            return self.model
        dtype = torch.bfloat16 if self.how.precision == "bf16" else self.inputs.dtype
        return replace(self.model, body=FusedLinearization(self.body, dtype, self.inputs.example()))


def damped(problem: QuadraticProblem, p: Preconditioner, rho: float) -> QuadraticProblem:
    """The problem with ridge strengths μ + ρ·tr A, of the head's and of the body's block, for P alone."""
    ridge = problem.ridge
    return problem.with_ridge(Ridge(ridge.head + rho * _trace(p.head), ridge.body + rho * _trace(p.body)))


def _trace(block: Kronecker | KFAC) -> float:
    if isinstance(block, Kronecker):
        return float(block.d.double().sum())
    parts = [*(k.d for k in block.kronecker.values()), *(c.lam for c in block.channels.values())]
    return float(torch.stack([t.double().sum() for t in parts]).sum()) if parts else 0.0
