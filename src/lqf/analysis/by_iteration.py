"""Answers where the kernel does not fit: one solve per question, several side by side.

Of one prediction, every output's response to all training targets is one solve and one pass over the data
(`responses`). A sample's removal then needs its leave-one-out residual e_S^loo = (I − H_SS)⁻¹ e_S: for chosen samples
from a refit without them (`solved`), for all at once from leverages of a kernel averaged over the outputs
(`lqf.analysis.leverages`, `estimated`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from lqf.analysis.counterfactual import Change
from lqf.analysis.dual import Dual
from lqf.analysis.leverages import AVERAGED, PROBES, SURROGATE, Leverages, sketched_information
from lqf.analysis.method import FIXED_POINT
from lqf.analysis.queries import Queries
from lqf.analysis.refit import Refit, residuals_of
from lqf.analysis.responses import Responses
from lqf.analysis.unexplained import Unexplained
from lqf.analysis.units import Units
from lqf.errors import LQFError
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import FittedModel, TrainingProblem
from lqf.fitting.refits import refit_folds
from lqf.kernels.own import own_head, own_kernel
from lqf.kernels.tangent import Kernels
from lqf.linear.encoded import EncodedInputs
from lqf.linear.inputs import average_views
from lqf.linear.problem import rows_of
from lqf.runtime.memory import available_bytes
from lqf.runtime.precision import matmul_precision
from lqf.solvers.solution import Solution
from lqf.utils import naming
from lqf.utils.exactness import Answer, Level

TOL = {torch.float32: 1e-5, torch.float64: 1e-7}
"""Relative residual of every solve here: differences of two solutions are asked for, not the solutions."""
SKETCH_TOL = 1e-2
"""Of solves for random sums of many outputs, whose own randomness is a quarter of every value."""


@dataclass(eq=False)
class ByIteration:
    """Everything by conjugate gradients, started from the fitted solution."""

    model: FittedModel
    problem: TrainingProblem
    refit: Refit
    responses: Responses
    solution: Solution
    note: str
    level: Level = "solved"
    _loo: dict[int, Tensor] = field(default_factory=dict, repr=False)  # unit -> its leave-one-out residuals
    _encoded: WeakKeyDictionary[Queries, EncodedInputs] = field(default_factory=WeakKeyDictionary, repr=False)
    _responses: WeakKeyDictionary[Queries, tuple[Tensor, float]] = field(default_factory=WeakKeyDictionary, repr=False)

    @classmethod
    def of(cls, model: FittedModel, problem: TrainingProblem) -> ByIteration:
        """Solve the fitted problem to the tolerance that differences need."""
        problem.encoder.prepare()
        context, tol = problem.context, TOL[problem.context.dtype]
        refit = Refit(problem, problem.curvature, tol)
        solution = refit.whole(model.delta.to(problem.quadratic.targets))
        responses = Responses(problem.schur(), problem.curvature, tol, refit.max_passes, context.progress)
        note = f"{FIXED_POINT}; relative residual {solution.certificate.relative_residual:.1e}"
        return cls(model, problem, refit, responses, solution, note)

    def outputs(self, queries: Queries) -> Tensor:
        """f (Q, C)."""
        return self._outputs(queries, self.solution)

    def effects(self, queries: Queries, units: Units, chosen: Tensor | None) -> Answer:
        """−P_S e_S^loo: e^loo solved for chosen units, estimated where all are asked for."""
        p, worst = self._response(queries)
        numbers = range(len(units)) if chosen is None else chosen.tolist()
        left_out = self._estimated(units) if chosen is None else self._solved(units, numbers)
        n, c = len(units.ids), self.problem.model.n_outputs
        by_sample = -(p.view(len(p), n, -1) * left_out.view(n, -1)).sum(-1).T.reshape(n, -1, c)
        every = units.add_up(by_sample).cpu()
        note = f"{self.note}; responses solved to {worst:.1e}"
        if chosen is not None:
            return Answer(every[chosen], "solved", f"{note}, leave-one-out residuals by refits")
        if c == 1:
            return Answer(every, "solved", f"{note}, leverages by the kernel of all samples")
        return Answer(every, "estimated", f"{note}, {SURROGATE}")

    def effects_on_sums(self, queries: Queries, weights: Tensor, units: Units) -> Answer:
        """(U, Q) likewise: one solve for every image."""
        asked, n = self._asked(queries), len(units.ids)
        p, worst = self.responses.of(asked, asked.sums(weights))
        left_out = self._estimated(units)
        by_sample = -(p.view(len(p), n, -1) * left_out.view(n, -1)).sum(-1).T  # (N, Q)
        note = f"{self.note}; responses solved to {worst:.1e}"
        if self.problem.model.n_outputs == 1:
            return Answer(units.add_up(by_sample).cpu(), "solved", f"{note}, leverages by the kernel of all samples")
        return Answer(units.add_up(by_sample).cpu(), "estimated", f"{note}, {SURROGATE}")

    def out_of_sample(self, units: Units, samples: Tensor | None) -> Answer:
        """Some: by refits without their units. All: the refits by folds of the fit, or the averaged kernel."""
        targets = self.problem.quadratic.targets.double()
        if samples is not None:
            wanted = sorted(set(units.member[samples].tolist()))
            e = self._solved(units, wanted)
            outputs = self._shown(targets - e.to(targets))
            return Answer(outputs[samples], "solved", f"{self.note}, by refits without them")
        stored = self.model.loo
        if stored is None:
            return Answer(self._by_leverage(units), "estimated", f"{self.note}, {SURROGATE}")
        if not bool(stored.known.all()):
            stored = self._every_fold()
        return Answer(stored.outputs.double(), stored.level, stored.note)

    def information(self, queries: Queries | None, units: Units) -> Answer:
        """E (ξᵀ(f − f₋S))² = ‖f − f₋S‖² for random signs ξ over all outputs of all images: one solve per draw.

        On the training samples, where what a unit does to itself does not count, by the averaged kernel.
        """
        if queries is None:
            return Answer(self._leverages.information(self._e, units), "estimated", f"{self.note}; {AVERAGED}")
        asked, seed = self._asked(queries), self.problem.context.settings.seed
        found = sketched_information(self._rough, asked, self._estimated(units), units, seed)
        note = f"{self.note}; standard errors of {PROBES} random probes, {SURROGATE}"
        return Answer(found.values, "estimated", note, found.error)

    def leaving(self, queries: Queries | None, units: Units, *, most: bool, steps: int) -> Tensor:
        """(U,) the order in which units leave, estimated by the kernel averaged over the outputs."""
        leverages = self._leverages  # they say whether the kernels fit
        cross = None if queries is None else self.problem.averaged_cross(self._asked(queries))
        return leverages.leaving(self._e, units, cross, most=most, steps=steps)

    def what_if(self, queries: Queries, change: Change) -> Answer:
        """By a warm-started refit."""
        solution = self.refit.changed(change, self._body)
        note = f"{FIXED_POINT}; relative residual {solution.certificate.relative_residual:.1e}"
        return Answer(self._outputs(queries, solution), "solved", note)

    def refitted(self, queries: Queries, keep: Tensor) -> Tensor:
        """f (Q, C) of the kept samples' own problem."""
        gone = torch.ones(len(self.problem.data), dtype=torch.bool)
        gone[keep] = False
        return self._outputs(queries, self.refit.without(gone.nonzero()[:, 0], self._body))

    def covariance(self, queries: Queries, units: Units) -> Answer:
        """(Q, C, C) σ² J_x H⁻¹ J_xᵀ: one solve for every output of every image."""
        found, worst = self.responses.covariance(self._asked(queries))
        sigma, level, how = self._noise(units)
        note = f"{self.note}; covariances solved to {worst:.1e}, the noise from {how}"
        return Answer(found.cpu() * sigma, level, note)

    def noise(self, units: Units) -> float:
        """σ², from out-of-sample outputs."""
        return self._noise(units)[0]

    def unexplained(self, queries: Queries, units: Units) -> Unexplained:
        """By the kernel averaged over the outputs, of images and training samples alike."""
        asked, leverages, progress = self._asked(queries), self._leverages, self.problem.context.progress
        cross, signs, mu = self.problem.averaged_cross(asked), self.problem.averaged.signs, leverages.ridge
        assert signs is not None
        own = own_head(asked) + own_kernel(self.problem.quadratic, asked.inputs, signs, progress=progress)
        averaged = Dual(leverages.averaged, mu, cross.new_zeros(cross.shape[1], 1), self.problem.data.n_views)
        found = averaged.unexplained(averaged.covariance(averaged.response(cross), cross, own)[:, 0, 0], own)
        note = f"{FIXED_POINT}; {AVERAGED}"
        return Unexplained(found.cpu(), averaged.left_out_unexplained(units).cpu(), "estimated", note)

    def _noise(self, units: Units) -> tuple[float, Level, str]:
        """σ² = Σ s e·e^loo / (N·C), how exact it is, and where e^loo comes from."""
        s, n = self.problem.quadratic.weights.double(), len(units.ids) * self.problem.model.n_outputs
        if self.model.loo is None:
            products = (s[:, None] * self._e * self._estimated(units)).sum()
            one = self.problem.model.n_outputs == 1
            return float(products) / n, "solved" if one else "estimated", "leverages of the averaged kernel"
        loo, v = self.model.loo, self.problem.data.n_views
        known = loo.known
        targets, e = average_views(self.problem.data.targets, v).cpu(), average_views(self._e, v).cpu()
        products = self.problem.data.sample_weights[:, None] * e * (targets - loo.outputs)
        sigma = float(products[known].sum()) / (int(known.sum()) * e.shape[1])
        return sigma, loo.level, "the fit's out-of-sample outputs"

    def _every_fold(self) -> LeaveOneOut:
        """The refits that the fit did not make, because fewer settle the error."""
        if "moved" in self.model.backbone.spec:
            raise LQFError(
                "the outputs of a moved network on unseen data are known for some of the training samples only; "
                f"fit with {naming.given('loo', 'folds')} to have all of them"
            )
        return refit_folds(self.problem, every=True, first=self.model.preprocess.n_views)

    # --- leave-one-out residuals --------------------------------------------------------------------------------------

    @property
    def _body(self) -> Tensor:
        return self.problem.body(self.solution)

    @cached_property
    def _e(self) -> Tensor:
        """(n, C) residuals of the fitted problem."""
        with matmul_precision(fast=False):
            return self.problem.measured.residuals(self.solution.delta).double()

    def _solved(self, units: Units, numbers: list[int] | range) -> Tensor:
        """(n, C) e^loo of the units' rows by a refit without each; zero elsewhere."""
        out = torch.zeros_like(self._e)
        with self.problem.context.progress.stage("refits", total=len(numbers), unit="refits") as stage:
            for u in numbers:
                samples = units.samples(u)
                rows = rows_of(self.problem.quadratic, samples)
                if u not in self._loo:
                    solution = self.refit.without(samples, self._body)
                    self._loo[u] = residuals_of(self.problem.measured, solution, rows)
                out[rows] = self._loo[u]
                stage.advance(1)
        return out

    def _estimated(self, units: Units) -> Tensor:
        """(n, C) e^loo of all rows by leverages of the averaged kernel (exact where there is one output)."""
        return self._leverages.left_out(self._e, units)

    @cached_property
    def _leverages(self) -> Leverages:
        averaged = self._kernels.factorise(self.problem.ridge)
        return Leverages(self._rough, averaged, self.problem.context.settings.seed)

    @cached_property
    def _rough(self) -> Responses:
        return replace(self.responses, tol=max(SKETCH_TOL, self.responses.tol))

    def _by_leverage(self, units: Units) -> Tensor:
        """(N, C) out-of-sample outputs from `_estimated`."""
        e = self._estimated(units)
        return self._shown(self.problem.quadratic.targets.to(e) - e)

    def _shown(self, rows: Tensor) -> Tensor:
        """Outputs of training rows (n, C) as those of a prediction (N, C), on the CPU."""
        return average_views(rows, self.problem.data.n_views, self.model.preprocess.n_views).cpu()

    @property
    def _kernels(self) -> Kernels:
        """Averaged over the outputs."""
        n, free = len(self.problem.quadratic.targets), available_bytes(self.problem.context.device)
        if 5 * 8 * n * n > free:
            raise LQFError(
                f"leverages of all {n} rows need {40 * n * n / 2**30:.1f} GB and {free / 2**30:.1f} GB are free; "
                "name the training samples that you ask about"
            )
        return self.problem.averaged

    # --- images -------------------------------------------------------------------------------------------------------

    def _asked(self, queries: Queries) -> EncodedInputs:
        """Rows and features, made once."""
        if queries not in self._encoded:
            self._encoded[queries] = self.problem.encode(queries.images)
        return self._encoded[queries]

    def _response(self, queries: Queries) -> tuple[Tensor, float]:
        """P (Q·C, n·C), made once."""
        if queries not in self._responses:
            p, worst = self.responses.every_output(self._asked(queries))
            self._responses[queries] = p.flatten(1), worst
        return self._responses[queries]

    def _outputs(self, queries: Queries, solution: Solution) -> Tensor:
        return self.problem.outputs(self._asked(queries).inputs, solution.delta)
