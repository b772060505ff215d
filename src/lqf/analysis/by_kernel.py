"""Exact answers for models whose kernel fits: the dense dual, and the head alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from lqf.analysis import seconds
from lqf.analysis.changed_out_of_sample import Blocks, changed_out_of_sample, unit_blocks
from lqf.analysis.counterfactual import Change
from lqf.analysis.dual import AT_ONCE, Dual
from lqf.analysis.method import FIXED_NETWORK, FIXED_POINT
from lqf.analysis.queries import Queries
from lqf.analysis.unexplained import Unexplained
from lqf.analysis.units import Units
from lqf.fitting import FittedModel, TrainingProblem
from lqf.kernels.cross import body_cross, head_cross, sums_cross
from lqf.kernels.own import own_head, own_kernel
from lqf.linear.encoded import EncodedInputs
from lqf.linear.inputs import average_views
from lqf.linear.targets import encode
from lqf.runtime.precision import matmul_precision
from lqf.utils.exactness import Answer, Level

FEW = 2
"""Images up to which a forward-mode pass for every output is quicker than the gradients of all training rows: with
EfficientNet-Lite0 at 96 px and ten outputs a pass takes 1.8 s where the gradients take 35 s (40 images, one thread)."""
OTHER_METHODS = "use method='pcg' or method='kfac'"
"""Where the kernel does not fit."""


@dataclass(eq=False)
class ByKernel:
    """Everything from one eigendecomposition and the kernel between images and training rows."""

    model: FittedModel
    problem: TrainingProblem
    dual: Dual
    note: str
    level: Level = "exact"
    _kernels: WeakKeyDictionary[Queries, tuple[Tensor, Tensor]] = field(default_factory=WeakKeyDictionary, repr=False)
    _responses: WeakKeyDictionary[Queries, Tensor] = field(default_factory=WeakKeyDictionary, repr=False)
    _encoded: WeakKeyDictionary[Queries, EncodedInputs] = field(default_factory=WeakKeyDictionary, repr=False)
    _own_kernels: WeakKeyDictionary[Queries, Tensor] = field(default_factory=WeakKeyDictionary, repr=False)
    _outputs: WeakKeyDictionary[Queries, Tensor] = field(default_factory=WeakKeyDictionary, repr=False)
    _units: tuple[Tensor, Tensor] | None = field(default=None, repr=False)
    _alone: tuple[Tensor, Blocks] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, model: FittedModel, problem: TrainingProblem) -> ByKernel:
        """Factorise: the head's own kernel, or that of all (row, output) pairs."""
        n_views, mu = problem.data.n_views, problem.ridge.head
        if model.head_alone:
            dual = Dual(problem.head.ridge, mu, problem.head.residual, n_views)
            return (
                cls(model, problem, dual, "") if model.solved else cls(model, problem, dual, FIXED_NETWORK, "estimated")
            )
        ridge = problem.factorised or problem.exact_kernels(OTHER_METHODS).factorise(problem.ridge)
        r = problem.quadratic.initial_residual(problem.features).double()
        return cls(model, problem, Dual(ridge, mu, r, n_views), FIXED_POINT)

    def outputs(self, queries: Queries) -> Tensor:
        """f (Q, C), as the model gives it; made once."""
        if queries not in self._outputs:
            self._outputs[queries] = own_outputs(self.model, queries, self.problem)
        return self._outputs[queries]

    def predictions(self, queries: Queries) -> Tensor:
        """Likewise."""
        return self.outputs(queries)

    def effects(self, queries: Queries, units: Units, chosen: Tensor | None) -> Answer:
        """(U, Q, C), by the removal formula."""
        every = self.dual.effects(self._response(queries), self._left_out(units), units).cpu()
        return self._answer(every if chosen is None else every[chosen])

    def effects_on_sums(self, queries: Queries, weights: Tensor, units: Units, *, quick: bool = False) -> Answer:
        """(U, Q), by the removal formula; one pass over the training rows, which all images share."""
        if self.model.head_alone or queries in self._kernels:
            answer = self.effects(queries, units, None)
            return replace(answer, value=(answer.value * weights.cpu()).sum(2))
        problem, asked = self.problem, self._asked(queries)
        problem.encoder.prepare()
        k = average_views(head_cross(asked.features, problem.features), asked.inputs.n_views)  # (Q, n)
        k = torch.einsum("qn,qc->qnc", k, weights.to(k)).flatten(1)
        k += sums_cross(problem.measured, asked, asked.sums(weights))
        return self._answer(self.dual.effects_on_sums(self.dual.response(k), self._left_out(units), units).cpu())

    def seconds(self, images: int, *, quick: bool) -> float:
        """One pass for every image; none for a head."""
        return 0.0 if self.model.head_alone else images * seconds.of_forward_pass(self.model)

    def out_of_sample(self, units: Units, samples: Tensor | None) -> Answer:
        """(N, C) t − e^loo."""
        rows = self.problem.data.targets.to(self.dual.residual) - self.dual.out_of_sample(units)
        every = average_views(rows, self.dual.n_views, self.model.preprocess.n_views).cpu()
        return self._answer(every if samples is None else every[samples])

    def information(self, queries: Queries | None, units: Units) -> Answer:
        """(U,) F-SI, exact."""
        if queries is None:
            n = len(units.ids)
            return self._answer(self.dual.information(self.dual.own_responses(), units) / n)
        return self._answer(self.dual.information(self._pieces(queries), units) / len(queries))

    def prepare(self, queries: Queries) -> None:
        """Outputs, and the kernel with the training rows."""
        self.outputs(queries)
        self._response(queries)

    def what_if(self, queries: Queries, change: Change) -> Answer:
        """f (Q, C) after the change, by a low-rank update."""
        samples, rho, shift = self._changes(change)
        if not len(samples):
            return self._answer(self.outputs(queries))
        if self.model.head_alone or queries in self._kernels:
            moved = self.dual.changed(self._response(queries), samples, rho, shift).cpu()
        else:
            moved = self._moved(queries, self.dual.moved_by(samples, rho, shift))
        return self._answer(self.outputs(queries) + moved)

    def _moved(self, queries: Queries, a: Tensor) -> Tensor:
        """J_x M⁻¹ Jᵀ a (Q, C) for a change of the dual coefficients: one pass over the training rows."""
        problem, asked = self.problem, self._asked(queries)
        problem.encoder.prepare()
        with matmul_precision(fast=False):
            delta = problem.measured.from_dual((problem.ridge.head * a).to(problem.quadratic.targets))
        return problem.change(asked.inputs, delta)

    def changed_out_of_sample(self, units: Units, change: Change) -> Answer:
        """(N, C) t' − e'^loo."""
        samples, rho, shift = self._changes(change)
        if not len(samples):
            return self.out_of_sample(units, None)
        targets = self.problem.data.targets.to(self.dual.residual).clone()
        views = self.dual.n_views
        targets.view(-1, views, targets.shape[1])[samples.to(targets.device)] += shift.to(targets)[:, None]
        rows = targets - changed_out_of_sample(self.dual, self._blocks(units), samples, rho, shift)
        return self._answer(average_views(rows, views, self.model.preprocess.n_views).cpu())

    def _changes(self, change: Change) -> tuple[Tensor, Tensor, Tensor]:
        """(k,) samples, (k,) by which part their weights change, (k, C) by how much their targets move."""
        samples = torch.tensor(sorted({*change.weights, *change.labels}), dtype=torch.long)
        labels, c, alpha = self.problem.data.labels, len(self.model.classes), self.model.alpha
        before, after = (encode(y[samples], c, alpha) for y in (labels, change.relabelled(labels)))
        return samples, change.factors(len(labels))[samples] - 1, after - before

    def refitted(self, queries: Queries, keep: Tensor) -> Tensor:
        """f (Q, C) of the kept samples' own problem."""
        return self.dual.refitted(*self._kernel(queries), keep).cpu()

    def leaving(self, queries: Queries | None, units: Units, *, most: bool, steps: int) -> Tensor:
        """(U,) the order in which units leave, exact."""
        return self.dual.leaving(None if queries is None else self._response(queries), units, most=most, steps=steps)

    def covariance(self, queries: Queries, units: Units) -> Answer:
        """(Q, C, C) σ² J_x H⁻¹ J_xᵀ."""
        return self._answer(self._covariance(queries).cpu() * self.dual.noise(units))

    def noise(self, units: Units) -> float:
        """σ², from the leave-one-out residuals."""
        return self.dual.noise(units)

    def unexplained(self, queries: Queries, units: Units) -> Unexplained:
        """From covariance and kernel."""
        variance = self._covariance(queries).diagonal(dim1=1, dim2=2).mean(1)
        asked = self.dual.unexplained(variance, self._own_kernel(queries))
        return Unexplained(asked.cpu(), self.dual.left_out_unexplained(units).cpu(), self.level, self.note)

    def _covariance(self, queries: Queries) -> Tensor:
        """(Q, C, C) J_x H⁻¹ J_xᵀ."""
        return self.dual.covariance(self._response(queries), self._kernel(queries)[1], self._own_kernel(queries))

    def _own_kernel(self, queries: Queries) -> Tensor:
        """k(x, x): (Q, C, C), or (Q,) of a head alone; made once."""
        if queries not in self._own_kernels:
            self._own_kernels[queries] = self._make_own_kernel(queries)
        return self._own_kernels[queries]

    def _make_own_kernel(self, queries: Queries) -> Tensor:
        problem, asked = self.problem, self._asked(queries)
        head = own_head(asked)
        if self.model.head_alone:
            return head
        body = own_kernel(problem.quadratic, asked.inputs, progress=problem.context.progress)
        return body + head[:, None, None] * torch.eye(problem.model.n_outputs).to(head)

    def _left_out(self, units: Units) -> Tensor:
        """Residuals of all rows without their unit; made once."""
        if self._units is None or not torch.equal(self._units[0], units.member):
            self._units = (units.member, self.dual.left_out(units))
        return self._units[1]

    def _blocks(self, units: Units) -> Blocks:
        """Of I − H, one for every unit; made once."""
        if self._alone is None or not torch.equal(self._alone[0], units.member):
            self._alone = (units.member, unit_blocks(self.dual, units))
        return self._alone[1]

    def _answer(self, value: Tensor) -> Answer:
        return Answer(value, self.level, self.note)

    # --- the images' kernel with the training data --------------------------------------------------------------------

    def _kernel(self, queries: Queries) -> tuple[Tensor, Tensor]:
        """Outputs at δ = 0 (Q, C), and the kernel with the training rows, both averaged over views; made once."""
        if queries not in self._kernels:
            self._kernels[queries] = self._make_kernel(queries)
        return self._kernels[queries]

    def _make_kernel(self, queries: Queries) -> tuple[Tensor, Tensor]:
        problem, asked = self.problem, self._asked(queries)
        inputs = asked.inputs
        base = average_views(problem.model.base(asked.features), inputs.n_views).double()
        k = average_views(head_cross(asked.features, problem.features), inputs.n_views)
        if self.model.head_alone:
            return base, k
        c = problem.model.n_outputs
        problem.encoder.prepare()
        if len(queries) <= FEW:
            body = sums_cross(problem.quadratic, asked, asked.every_output(c))
        else:
            body = body_cross(problem.quadratic, inputs, progress=problem.context.progress)
            body = average_views(body.view(len(inputs), -1), inputs.n_views).view(len(queries) * c, -1)
        return base, torch.kron(k, torch.eye(c).to(k)) + body

    def _asked(self, queries: Queries) -> EncodedInputs:
        """Rows and features, made once."""
        if queries not in self._encoded:
            self._encoded[queries] = self.problem.encode(queries.images)
        return self._encoded[queries]

    def _response(self, queries: Queries) -> Tensor:
        if queries not in self._responses:
            self._responses[queries] = self.dual.response(self._kernel(queries)[1])
        return self._responses[queries]

    def _pieces(self, queries: Queries) -> Iterator[tuple[Tensor, None]]:
        width = 1 if self.dual.shared else self.dual.n_outputs
        for piece in self._response(queries).split(AT_ONCE * width):
            yield piece, None


def own_outputs(model: FittedModel, queries: Queries, problem: TrainingProblem) -> Tensor:
    """f (Q, C) as the model itself gives it."""
    device, rows = problem.context.device, problem.quadratic.inputs.batch_size
    return model.outputs(queries.images, device=device, batch_size=rows).double()
