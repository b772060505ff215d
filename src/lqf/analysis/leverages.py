"""Leave-one-out residuals of all samples at once where the kernel of all outputs does not fit, and what follows.

e_S^loo = (I − H_SS)⁻¹ e_S needs every sample's leverages. They are estimated from the kernel averaged over the outputs,
K ≈ k ⊗ I_C, which gives every output a body of its own and so explains too much. Its ridge strength is therefore raised
until what it leaves out of each fold is what the fit's refits without each fold have found
(`lqf.fitting.leverage_strength`); where there were none, until the leverages add up to tr H, which a few random probes
measure well: E ξᵀHξ = tr H.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lqf.analysis.elimination import information, order_of_leaving
from lqf.analysis.responses import Responses
from lqf.analysis.units import Units
from lqf.curvature.random_signs import random_signs
from lqf.kernels.ridge import KernelRidge
from lqf.linear.encoded import EncodedInputs
from lqf.linear.problem import QuadraticProblem

TRACE_PROBES = 8
"""Random sums of all training outputs by which the sum of all leverages is measured."""
BRACKET, HALVINGS = (1e-3, 1e6), 100
"""μ'/μ between which the strength with the measured trace is searched; halvings that settle it to the last digit."""
PROBES = 32
"""Random sums of all validation outputs by which information is sketched."""

AVERAGED = (
    f"by the kernel averaged over the outputs, whose leverages add up to what {TRACE_PROBES} random probes measure"
)
BY_FOLDS = "by the kernel averaged over the outputs, its strength by the refits without each fold"
BY_HEAD = "by the kernel of the head alone, its strength by the refits without each fold"
CALIBRATED = "leverages by a kernel that all outputs share, its strength by the refits without each fold"
SURROGATE = f"leverages by the kernel averaged over the outputs, their sum by {TRACE_PROBES} random probes"


@dataclass(frozen=True)
class Leverages:
    """Leverages of all training rows, estimated (exact where there is one output).

    Attributes:
        responses: solves of the training problem, made when probes need them.
        problem: the training problem.
        averaged: the factorised kernel averaged over the outputs, of all rows.
        seed: of the probes.
        strength: μ', where it is known without probes.
        of_head: whether the kernel is that of the head alone.
    """

    responses: Callable[[], Responses]
    problem: QuadraticProblem
    averaged: KernelRidge
    seed: int = 0
    strength: float | None = None
    of_head: bool = False

    @property
    def exact(self) -> bool:
        """Whether there is one output, whose kernel this is."""
        return self.problem.model.n_outputs == 1 and self.strength is None

    @property
    def note(self) -> str:
        """Where the leverages come from."""
        if self.exact:
            return "leverages by the kernel of all samples"
        return SURROGATE if self.strength is None else CALIBRATED

    @property
    def averaged_note(self) -> str:
        """Likewise, where everything is by this kernel."""
        if self.of_head:
            return BY_HEAD
        return AVERAGED if self.strength is None else BY_FOLDS

    def left_out(self, e: Tensor, units: Units) -> Tensor:
        """(n, C) e^loo of all rows from their residuals e."""
        return self._leverages(units).leave_out(e, self.ridge)

    @cached_property
    def ridge(self) -> float:
        """μ' at which the averaged kernel's leverages, C times Σ λ/(λ+μ'), add up to the measured tr H."""
        lam, mu, c = self.averaged.lam, self.problem.ridge.head, self.problem.model.n_outputs
        if self.strength is not None:
            return self.strength
        if c == 1:
            return mu
        wanted = self.trace()[0]
        low, high = (mu * factor for factor in BRACKET)
        for _ in range(HALVINGS):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if c * float((lam / (lam + middle)).sum()) > wanted else (low, middle)
        return middle

    def trace(self) -> tuple[float, float]:
        """tr H by random probes, and its standard error."""
        problem, responses = self.problem, self.responses()
        n, c = problem.targets.shape
        signs = random_signs(torch.arange(n), TRACE_PROBES, c, self.seed + 1).double()
        p, _ = responses.of(EncodedInputs(problem.inputs, responses.features, problem.fold), signs)
        traces = (p * signs.to(p)).sum((1, 2))
        return float(traces.mean()), float(traces.std() / TRACE_PROBES**0.5)

    def information(self, e: Tensor, units: Units, cross: Tensor | None = None) -> Tensor:
        """(U,) F-SI from the residuals e (n, C) and the averaged kernel alone; ``cross`` as of `leaving`."""
        p, images = (None, len(units.ids)) if cross is None else (self._response(cross), len(cross))
        return information(self.averaged, self.ridge, e, units, p, n_views=self._n_views) / images

    def leaving(self, e: Tensor, units: Units, cross: Tensor | None = None, *, most: bool, steps: int) -> Tensor:
        """(U,) the order in which units leave, from the residuals e (n, C) and the averaged kernel alone.

        ``cross`` (Q, n) is the averaged kernel of images on which information is measured (`lqf.kernels.cross`); None:
        it is measured on the other training samples.
        """
        p = None if cross is None else self._response(cross)
        ridge, mu, n_views = self.averaged, self.ridge, self._n_views
        return order_of_leaving(ridge, mu, e, units, p, n_views=n_views, most=most, steps=steps)

    def _response(self, cross: Tensor) -> Tensor:
        return self.averaged.dual(cross.T, self.ridge).T

    @property
    def _n_views(self) -> int:
        return self.problem.inputs.n_views

    def _leverages(self, units: Units) -> KernelRidge:
        ridge = self.averaged
        groups = units.member.repeat_interleave(self.problem.inputs.n_views)
        return KernelRidge(ridge.q, ridge.lam, ridge.weights, groups)


@dataclass(frozen=True)
class Sketch:
    """F-SI (U,) of every unit by random probes, its standard error (U,), and the worst residual of their solves."""

    values: Tensor
    error: Tensor
    residual: float


def sketched_information(
    responses: Responses, asked: EncodedInputs, left_out: Tensor, units: Units, seed: int
) -> Sketch:
    """E (ξᵀ(f − f₋S))² = ‖f − f₋S‖² for random signs ξ over all outputs of all images: one solve per draw.

    Args:
        responses: solves of the training problem.
        asked: the images on which information is measured.
        left_out: (n, C) leave-one-out residuals of the training rows.
        units: who leaves together.
        seed: of the signs.
    """
    v, c, n = asked.inputs.n_views, responses.problem.model.n_outputs, len(units.ids)
    images = len(asked.features) // v
    signs = random_signs(torch.arange(images), PROBES, c, seed).double()
    p, worst = responses.of(asked, signs.repeat_interleave(v, 1) / v)  # (k, n, C)
    change = -(p * left_out.to(p)).view(PROBES, n, -1).sum(-1)
    squared = units.add_up(change, 1).square().cpu() / images  # (k, U)
    return Sketch(squared.mean(0), squared.std(0) / PROBES**0.5, worst)
