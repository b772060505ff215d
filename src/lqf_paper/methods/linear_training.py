"""The steps of a linear method by mini-batches: gradients, preconditioner, features of random views for a head alone.

`lqf_paper.methods.linear` says what is minimised; the loop and the damping are those of `lqf fit --solver sgd`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lqf.curvature import KFAC, Preconditioner, precondition
from lqf.curvature.damping import DampedCurvature, Damping
from lqf.curvature.preconditioner import head_block
from lqf.data import normalize
from lqf.fast.replay import Passes, Replayed
from lqf.linear import sweep
from lqf.linear.inputs import Inputs
from lqf.linear.linearize import Linearization
from lqf.linear.model import LinearModel
from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge
from lqf.runtime.memory import available_bytes
from lqf.runtime.precision import matmul_precision
from lqf.solvers import SGD, Adam
from lqf.solvers.stable_damping import BATCHES, stable_damping, stable_rate
from lqf.solvers.stochastic import Inverse, Stochastic
from lqf.training.finetune import STOP_EPOCHS
from lqf.training.random_views import RandomViews
from lqf.training.stream import drawn, per_epoch, steps, stream
from lqf.utils.progress import Progress
from lqf_paper.methods.feature_batches import feature_batches
from lqf_paper.methods.models import encoded, products, quick
from lqf_paper.runner.group_cache import GroupCache

if TYPE_CHECKING:
    from lqf_paper.methods.linear import Linear

Direction = Callable[[Tensor], Tensor]
"""Gradient of the mean loss -> direction of the step."""


@dataclass(frozen=True)
class Plain:
    """No preconditioner: the sum-form gradient, scaled to that of the mean."""

    scale: float

    def solve(self, v: Tensor) -> Tensor:
        """P⁻¹ v."""
        return self.scale * v


@dataclass
class Training:
    """The steps of one run of `lqf_paper.methods.linear.Linear`."""

    how: Linear
    model: LinearModel
    body: Linearization
    inputs: Inputs
    cache: GroupCache
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def batch(self) -> int:
        return min(self.how.batch_size, len(self.inputs))

    @property
    def total(self) -> int:
        return steps(len(self.inputs), self.how.epochs, self.batch)

    def central_features(self, progress: Progress) -> Tensor:
        """(N, p) of the central views."""
        return self.cache.get(
            ("features", self.how.dtype), lambda: sweep.features(self.body, self.inputs, progress=progress)
        )

    @property
    def kappa(self) -> float:
        """κ: the curvature of ℓ at w0."""
        return 1.0 if self.how.loss == "mse" else 1.0 / self.model.n_outputs

    @cached_property
    def labels(self) -> Tensor:
        return torch.tensor(self.inputs.images.samples.labels, device=self.inputs.device)

    @cached_property
    def weights(self) -> Tensor:
        """s, of mean one."""
        samples = self.inputs.images.samples
        weights = torch.tensor(samples.weights, dtype=self.inputs.dtype, device=self.inputs.device)
        return weights / weights.mean()

    def solver(self, learning_rate: float) -> Stochastic:
        """What takes the steps."""
        how = self.how
        given: dict[str, Any] = {"learning_rate": learning_rate, "schedule": how.schedule}
        return SGD(momentum=how.momentum, **given) if how.optimiser == "sgd" else Adam(beta1=how.beta1, **given)

    @cached_property
    def problem(self) -> QuadraticProblem:
        """Its squared error in sum form, over the central views; ridge strengths μ = Nλ/κ."""
        mu = self.how.weight_decay * len(self.inputs) / self.kappa
        fold = torch.zeros(len(self.inputs), dtype=torch.long, device=self.inputs.device)
        targets = self.how.alpha * F.one_hot(self.labels, self.model.n_outputs).to(self.inputs.dtype)
        return QuadraticProblem(self.model, self.inputs, targets, self.weights, fold, Ridge(mu, mu))

    def run(self, views: RandomViews, progress: Progress, start: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """δ, and the loss of every step on the CPU."""
        total, inverse = self.total, self.inverse(views, progress)
        solver = self.solver(self.learning_rate(inverse, views))
        state = solver.start(self.problem.zero() if start is None else start.clone())
        losses, wrong = (torch.zeros(total, device=self.inputs.device, dtype=self.inputs.dtype) for _ in range(2))
        gradient = self._recorded(state["delta"], self._direction(inverse), progress.say)
        made = 0
        with progress.stage("training", total=total * self.batch, unit="images") as stage, products(self.how.precision):

            def direction(batch: tuple[Tensor, Tensor]) -> Tensor:
                nonlocal made
                rows, given = batch
                losses[made], wrong[made], g = gradient(given, self.labels[rows], self.weights[rows])
                made += 1
                stage.advance(self.batch)
                return g

            solver.descend(state, self._until_learned(self._batches(views), wrong), direction, total)
        return state["delta"], losses[:made].cpu()

    def _until_learned(
        self, batches: Iterable[tuple[Tensor, Tensor]], wrong: Tensor
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches, up to where the training error has been low for some epochs."""
        below, n = self.how.stop_below, len(self.inputs)
        for k, batch in enumerate(batches):
            yield batch
            ended = (k + 1) * self.batch // n > k * self.batch // n
            if below is not None and ended:
                last = per_epoch(wrong[: k + 1].cpu(), n, self.batch)[-STOP_EPOCHS:]
                if len(last) == STOP_EPOCHS and max(last) <= below:
                    return

    def _recorded(self, delta: Tensor, direction: Direction, say: Callable[[str], None]) -> Passes:
        """(pixels or features, labels, weights) -> mean loss, share of wrong predictions, direction of the step.

        One recording on a GPU, which reads δ where it lies. The update of δ stays outside.
        """
        model = self._quick()

        def gradient(given: Tensor, y: Tensor, s: Tensor) -> tuple[Tensor, ...]:
            loss, wrong, g = self._gradient(model, self._input(given), y, s, delta)
            return loss, wrong, direction(g)

        return Replayed(gradient, say)

    def _gradient(self, model: LinearModel, x: Tensor, y: Tensor, s: Tensor, delta: Tensor) -> tuple[Tensor, ...]:
        """Mean loss, share of wrong predictions and gradient of a batch, the penalty in the gradient."""
        kept: list[Tensor] = []

        def cotangent(z: Tensor, jd: Tensor) -> Tensor:
            outputs = model.base(z) + jd
            losses, u = self.how.cotangent(outputs, y)
            kept.extend([(s * losses).mean(), (outputs.argmax(1) != y).to(losses).mean()])
            return s[:, None] * u

        pulled = model.fused(x, delta, cotangent)[1]
        return *kept[:2], self.how.weight_decay * delta - pulled / len(x)

    def _batches(self, views: RandomViews) -> Iterable[tuple[Tensor, Tensor]]:
        """Row numbers of every step, and pixels for a linearised network or features for a head alone."""
        how, n = self.how, len(self.inputs)
        if how.scope == "all":
            return stream(views, n, how.epochs, self.batch, how.seed)
        if how.augment == "none":  # every step sees the same features
            z = self._encoded(views.batch(torch.arange(n, device=views.device), None))
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
        """Features (B, p), as in test."""
        with products(self.how.precision), torch.no_grad():
            return torch.cat(
                [
                    encoded(self.body, normalize(part, self.inputs.preprocess, self.inputs.dtype), self.how.precision)
                    for part in pixels.split(256)
                ]
            )

    def _direction(self, inverse: Plain | DampedCurvature) -> Direction:
        """Gradient of the mean loss -> N/κ·P⁻¹ times it."""
        if isinstance(inverse, Plain):
            return lambda g: g
        scale = len(self.inputs) / self.kappa

        def direction(g: Tensor) -> Tensor:
            with matmul_precision(fast=True):
                return inverse.solve(g).mul_(scale)

        return direction

    def inverse(self, views: RandomViews, progress: Progress) -> Plain | DampedCurvature:
        """P⁻¹, times κ: what the sum-form gradient of the squared error goes through."""
        how = self.how
        if not how.kfac:
            return Plain(self.kappa / len(self.inputs))
        curvature = self.curvature(progress)
        damping = self._stable(curvature, views) if how.damping == "auto" else self._damping(float(how.damping))
        damped = damping.of(curvature, self.problem)
        self.facts |= {"damping": damping.rho, "preconditioned": damped.preconditioned().to_dict()}
        return damped

    def learning_rate(self, inverse: Inverse, views: RandomViews) -> float:
        """η as given, or the largest whose steps do not overshoot the first batches."""
        how = self.how
        if how.learning_rate != "stable":
            return float(how.learning_rate)
        with products(how.precision):
            found = stable_rate(inverse, self.quick_problem(), self._first(views), how.momentum)
        self.facts["learning_rate"] = found
        return found

    def _damping(self, rho: float) -> Damping:
        return Damping(rho, self.how.damping_kind, self.batch)

    def _stable(self, curvature: Preconditioner, views: RandomViews) -> Damping:
        """The least damping whose steps do not overshoot the first batches."""
        assert not isinstance(self.how.learning_rate, str)
        with products(self.how.precision):
            return stable_damping(
                curvature,
                self.quick_problem(),
                self._first(views),
                kind=self.how.damping_kind,
                learning_rate=self.how.learning_rate,
                momentum=self.how.momentum,
                batch=self.batch,
            )

    def quick_problem(self) -> QuadraticProblem:
        """`problem` by the products of the precision."""
        return replace(self.problem, model=self._quick())

    def _first(self, views: RandomViews) -> list[tuple[Tensor, Tensor]]:
        """The first batches."""
        return [(rows, self._input(given)) for rows, given in islice(self._batches(views), BATCHES)]

    def _input(self, given: Tensor) -> Tensor:
        return normalize(given, self.inputs.preprocess, self.inputs.dtype) if self.how.scope == "all" else given

    def curvature(self, progress: Progress) -> Preconditioner:
        """A without the penalty and without damping."""
        how, problem = self.how, self.problem
        features = self.central_features(progress)

        def make() -> Preconditioner:
            with matmul_precision(fast=True):
                if how.scope == "all":
                    return precondition(problem, features, seed=how.seed, progress=progress)
                return Preconditioner(head_block(problem, features), KFAC(problem.model.body.layout, {}, {}, {}, {}))

        return self.cache.get(("kfac", how.scope, how.head, how.head_std, how.alpha, how.seed, how.dtype), make)

    def _quick(self) -> LinearModel:
        """The model by the products of its precision."""
        if self.how.scope == "fc":
            return self.model
        return replace(self.model, body=quick(self.body, self.how.precision, self.inputs.example()))
