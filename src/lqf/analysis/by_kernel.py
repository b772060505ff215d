"""Exact answers for models whose kernel fits: the dense dual, and the head alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.analysis.counterfactual import Change
from lqf.analysis.dual import Exact
from lqf.analysis.method import FIXED_POINT, Answer
from lqf.analysis.queries import Queries
from lqf.analysis.units import Units
from lqf.errors import LQFError
from lqf.fitting.reopen import Rebuilt
from lqf.kernels.cross import body_cross, head_cross
from lqf.kernels.tangent import exact_kernels
from lqf.linear.inputs import Inputs, average_views
from lqf.linear.targets import encode
from lqf.runtime.memory import available_bytes
from lqf.runtime.precision import matmul_precision
from lqf.utils.exactness import Level


@dataclass
class ByKernel:
    """Everything from one eigendecomposition and the kernel between images and training rows."""

    rebuilt: Rebuilt
    exact: Exact
    note: str
    level: Level = "exact"

    @classmethod
    def of(cls, rebuilt: Rebuilt) -> ByKernel:
        """Factorise: the head's own kernel, or that of all (row, output) pairs."""
        problem, n_views = rebuilt.problem, rebuilt.fit.images.n_views
        if rebuilt.head_alone:
            exact = Exact(rebuilt.head.ridge, problem.ridge.head, rebuilt.head.residual, n_views)
            return cls(rebuilt, exact, "")
        _check_memory(rebuilt)
        kernels = exact_kernels(
            problem,
            rebuilt.features,
            rebuilt.fit.rows.groups,
            budget=available_bytes(rebuilt.fit.device) // 4,
            progress=rebuilt.fit.progress,
        )
        ridge = kernels.factorise(problem.ridge.body / problem.ridge.head)
        r = problem.initial_residual(rebuilt.features).double()
        return cls(rebuilt, Exact(ridge, problem.ridge.head, r, n_views), FIXED_POINT)

    def outputs(self, queries: Queries) -> Tensor:
        """f (Q, C)."""
        return self.exact.outputs(*self._kernel(queries)).cpu()

    def effects(self, queries: Queries, units: Units, chosen: Tensor | None) -> Answer:
        """(U, Q, C), by the removal formula."""
        every = self.exact.effects(self._response(queries), self.exact.left_out(units), units).cpu()
        return self._answer(every if chosen is None else every[chosen])

    def out_of_sample(self, units: Units, samples: Tensor | None) -> Answer:
        """(N, C) t − e^loo."""
        rows = self.rebuilt.fit.rows.targets.to(self.exact.residual) - self.exact.out_of_sample(units)
        every = average_views(rows, self.exact.n_views).cpu()
        return self._answer(every if samples is None else every[samples])

    def information(self, queries: Queries | None, units: Units) -> Answer:
        """(U,) F-SI, exact."""
        if queries is None:
            n = len(units.ids)
            return self._answer(self.exact.information(self.exact.own_responses(), units) / n)
        return self._answer(self.exact.information(self._pieces(queries), units) / len(queries))

    def what_if(self, queries: Queries, change: Change) -> Answer:
        """f (Q, C) after the change, by a low-rank update."""
        samples = torch.tensor(sorted({*change.weights, *change.labels}), dtype=torch.long)
        if not len(samples):
            return self._answer(self.outputs(queries))
        labels = self.rebuilt.fit.rows.labels
        rho = change.factors(len(labels))[samples] - 1
        names, alpha = self.rebuilt.fitted.classes, self.rebuilt.fitted.alpha
        shift = encode(change.relabelled(labels)[samples], len(names), alpha) - encode(
            labels[samples], len(names), alpha
        )
        moved = self.exact.changed(self._response(queries), samples, rho, shift).cpu()
        return self._answer(self.outputs(queries) + moved)

    def refitted(self, queries: Queries, keep: Tensor) -> Tensor:
        """f (Q, C) of the kept samples' own problem."""
        return self.exact.refitted(*self._kernel(queries), keep).cpu()

    def leaving(self, queries: Queries | None, units: Units, *, most: bool, steps: int) -> Tensor:
        """(U,) the order in which units leave, exact."""
        return self.exact.leaving(None if queries is None else self._response(queries), units, most=most, steps=steps)

    def _answer(self, value: Tensor) -> Answer:
        return Answer(value, self.level, self.note)

    # --- the images' kernel with the training data --------------------------------------------------------------------

    def _kernel(self, queries: Queries) -> tuple[Tensor, Tensor]:
        """Outputs at δ = 0 (Q, C), and the kernel with the training rows, both averaged over views; made once."""
        key = f"kernel {id(self)}"
        if key not in queries.kept:
            queries.kept[key] = self._make_kernel(queries)
        return queries.kept[key]

    def _make_kernel(self, queries: Queries) -> tuple[Tensor, Tensor]:
        rebuilt, problem = self.rebuilt, self.rebuilt.problem
        inputs = rebuilt.inputs(queries.images)
        z = features(rebuilt, inputs)
        base = average_views(problem.model.base(z), inputs.n_views).double()
        k = head_cross(z, rebuilt.features)
        if rebuilt.head_alone:
            return base, average_views(k, inputs.n_views)
        c = problem.model.n_outputs
        k = average_views(k, inputs.n_views)
        body = body_cross(problem, inputs, progress=rebuilt.fit.progress)
        body = average_views(body.view(len(inputs), -1), inputs.n_views).view(len(queries) * c, -1)
        omega = problem.ridge.body / problem.ridge.head
        return base, torch.kron(k, torch.eye(c).to(k)) + body / omega

    def _response(self, queries: Queries) -> Tensor:
        key = f"response {id(self)}"
        if key not in queries.kept:
            queries.kept[key] = self.exact.response(self._kernel(queries)[1])
        return queries.kept[key]

    def _pieces(self, queries: Queries) -> Iterator[tuple[Tensor, None]]:
        width = 1 if self.exact.shared else self.exact.n_outputs
        for piece in self._response(queries).split(64 * width):
            yield piece, None


def features(rebuilt: Rebuilt, inputs: Inputs) -> Tensor:
    """z (rows, p) of other images."""
    out: Tensor | None = None
    for rows, x in inputs.batches():
        with matmul_precision(fast=False):
            z = rebuilt.problem.model.body.value(x)
        out = z.new_empty(len(inputs), z.shape[1]) if out is None else out
        out[rows] = z
    assert out is not None
    return out


def _check_memory(rebuilt: Rebuilt) -> None:
    pairs = rebuilt.problem.targets.numel()
    need, free = 6 * 8 * pairs * pairs, available_bytes(rebuilt.fit.device)
    if need > free:
        raise LQFError(
            f"the kernel of {pairs} (row, output) pairs needs about {need / 2**30:.1f} GB and "
            f"{free / 2**30:.1f} GB are free; use method='pcg' or method='kfac'"
        )
