"""Answers where the kernel does not fit: one solve per question, several side by side.

The score of a prediction is one right-hand side, solved as accurately as its answer needs (`lqf.analysis.scores`), and
a change of the data one more: what it makes of the solution as it was fitted.

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

from lqf.analysis import seconds
from lqf.analysis.by_kernel import own_outputs
from lqf.analysis.counterfactual import Change
from lqf.analysis.dual import Dual
from lqf.analysis.known_leverages import KnownLeverages, shown
from lqf.analysis.leverages import PROBES, Leverages, sketched_information
from lqf.analysis.method import FIXED_POINT
from lqf.analysis.queries import Queries
from lqf.analysis.quick_worth import QuickWorth
from lqf.analysis.refit import Refit, residuals_of
from lqf.analysis.responses import Responses
from lqf.analysis.scores import Begun, Response, Scores
from lqf.analysis.unexplained import Unexplained
from lqf.analysis.units import Units
from lqf.analysis.wanted import SCORES, WHAT_IF
from lqf.curvature import KFAC
from lqf.errors import LQFError
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import FittedModel, TrainingProblem
from lqf.fitting.refits import refit_folds
from lqf.kernels.own import own_head, own_kernel
from lqf.linear.encoded import EncodedInputs
from lqf.linear.inputs import average_views
from lqf.linear.problem import rows_of
from lqf.runtime.precision import matmul_precision
from lqf.solvers.schur import SchurComplement
from lqf.solvers.solution import Solution
from lqf.utils import naming
from lqf.utils.exactness import Answer, Level

TOL = {torch.float32: 1e-5, torch.float64: 1e-7}
"""Relative residual of every solve here: differences of two solutions are asked for, not the solutions."""
QUICK = "by the head's kernel and one step along EK-FAC"
SKETCH_TOL = 1e-2
"""Of solves for random sums of many outputs, whose own randomness is a quarter of every value."""


@dataclass(eq=False)
class ByIteration:
    """Everything by conjugate gradients, each made when it is asked for.

    Scores of predictions and what-if start from what the fit knew and from the solution as it was fitted; effects on
    all outputs, and probes, from the solution made so exact that differences of two can be told.
    """

    model: FittedModel
    problem: TrainingProblem
    level: Level = "solved"
    _loo: dict[int, Tensor] = field(default_factory=dict, repr=False)  # unit -> its leave-one-out residuals
    _encoded: WeakKeyDictionary[Queries, EncodedInputs] = field(default_factory=WeakKeyDictionary, repr=False)
    _responses: WeakKeyDictionary[Queries, tuple[Tensor, float]] = field(default_factory=WeakKeyDictionary, repr=False)
    _begun: WeakKeyDictionary[Queries, Begun] = field(default_factory=WeakKeyDictionary, repr=False)
    _of_units: tuple[Tensor, Tensor] | None = field(default=None, repr=False)

    @cached_property
    def note(self) -> str:
        """What stands behind the level."""
        return f"{FIXED_POINT}; relative residual {self.solution.certificate.relative_residual:.1e}"

    @cached_property
    def curvature(self) -> KFAC | None:
        """Of the body, which only decides how soon a solve is good; rows are ready for passes from now on."""
        self.problem.encoder.prepare()
        return self.problem.curvature

    @cached_property
    def refit(self) -> Refit:
        """Solves after changes of the data."""
        return Refit(self.problem, self.curvature, TOL[self.problem.context.dtype])

    @cached_property
    def solution(self) -> Solution:
        """The fitted problem's, to the tolerance that differences need."""
        return self.refit.whole(self._body)

    @cached_property
    def responses(self) -> Responses:
        """Solves for outputs, to the same tolerance."""
        refit, progress = self.refit, self.problem.context.progress
        return Responses(self.problem.schur(), self.curvature, refit.tol, refit.max_passes, progress)

    @cached_property
    def scores(self) -> Scores:
        """Solves for scores, to the accuracy of an answer."""
        curvature, context = self.curvature, self.problem.context
        return Scores(self.problem.schur(), curvature, context.progress, context.settings.precision != "float32")

    def outputs(self, queries: Queries) -> Tensor:
        """f (Q, C)."""
        return self._outputs(queries, self.solution)

    def predictions(self, queries: Queries) -> Tensor:
        """f (Q, C), as the model gives it."""
        return own_outputs(self.model, queries, self.problem)

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
        return Answer(every, "estimated", f"{note}, {self._leverages.note}")

    def effects_on_sums(self, queries: Queries, weights: Tensor, units: Units, *, quick: bool = False) -> Answer:
        """(U, Q) likewise: one solve for every image, by which all go on together; ``quick``: its first step."""
        begun, measured = self._scored(queries, weights, quick)
        estimate = self._on_units(begun.response(quick=True), units)
        if quick:
            return Answer(estimate, "estimated", f"{FIXED_POINT}; {QUICK}; {self.quick_worth.note}")
        response = begun.response(quick=False)
        value = self._on_units(response, units)
        if measured:
            self.quick_worth.add(estimate, value)
        level = SCORES.level(response.gap) if self._leverages.exact else "estimated"
        return Answer(value, level, f"{FIXED_POINT}; {SCORES.note(response.gap)}; {self._leverages.note}")

    @cached_property
    def quick_worth(self) -> QuickWorth:
        """What quick answers of this model have been worth so far."""
        context = self.problem.context
        return QuickWorth.known(self.model, context.progress.say, writes=context.world.rank == 0)

    def _on_units(self, response: Response, units: Units) -> Tensor:
        """(U, Q) −P_S e_S^loo."""
        n = len(units.ids)
        by_sample = -(response.p.view(len(response.p), n, -1) * self._left_out(units).view(n, -1)).sum(-1).T  # (N, Q)
        return units.add_up(by_sample).cpu()

    def seconds(self, images: int, *, quick: bool) -> float:
        """Of as many passes as may be made for every image, and of curvature that is not known."""
        curvature = 0.0 if self.problem.remembered.curvature else seconds.of_curvature(self.model)
        passes = seconds.QUICK_PASSES if quick else SCORES.passes(self.model)
        return curvature + images * passes * seconds.of_product(self.model)

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
            return Answer(self._by_leverage(units), "estimated", f"{FIXED_POINT}, {self._leverages.note}")
        if not bool(stored.known.all()):
            stored = self._every_fold()
        return Answer(stored.outputs.double(), stored.level, stored.note)

    def information(self, queries: Queries | None, units: Units) -> Answer:
        """E (ξᵀ(f − f₋S))² = ‖f − f₋S‖² for random signs ξ over all outputs of all images: one solve per draw.

        On the training samples, where what a unit does to itself does not count, by a kernel that all outputs share.
        """
        if queries is None:
            leverages = self._known_leverages.without_passes
            values = leverages.information(self._residuals, units)
            return Answer(values, "estimated", f"{FIXED_POINT}; {leverages.averaged_note}")
        asked, seed = self._asked(queries), self.problem.context.settings.seed
        found = sketched_information(self._rough, asked, self._estimated(units), units, seed)
        note = f"{self.note}; standard errors of {PROBES} random probes, {self.leverage_note}"
        return Answer(found.values, "estimated", note, found.error)

    def leaving(self, queries: Queries | None, units: Units, *, most: bool, steps: int) -> Tensor:
        """(U,) the order in which units leave, estimated by the kernel averaged over the outputs."""
        leverages = self._averaged  # they say whether the kernels fit
        cross = None if queries is None else self.problem.averaged_cross(self._asked(queries))
        return leverages.leaving(self._residuals, units, cross, most=most, steps=steps)

    @property
    def leverage_note(self) -> str:
        """Where leverages come from."""
        return self._leverages.note

    def prepare(self, queries: Queries) -> None:
        """Outputs."""
        self.outputs(queries)

    def what_if(self, queries: Queries, change: Change) -> Answer:
        """By a solve for the difference that the change makes, from the solution as it was fitted."""
        before = self.predictions(queries)
        if not change:
            return Answer(before, "solved", FIXED_POINT)
        delta, gap = self._difference(change)
        after = before + self.problem.change(self._asked(queries).inputs, delta)
        return Answer(after, WHAT_IF.level(gap), f"{FIXED_POINT}; {WHAT_IF.note(gap)}")

    def _difference(self, change: Change) -> tuple[Tensor, float]:
        """By how much the weights of head and body move with a change of the data, and how well that is known."""
        problem, head, u = self.refit.posed(change, self._residuals)
        schur = SchurComplement(problem, self.problem.features, head, tf32=False)
        scores = replace(self.scores, schur=schur)
        asked = EncodedInputs(problem.inputs, self.problem.features, problem.fold)
        sides = scores.sides(asked, u[None])
        response = scores.solved(sides, scores.estimated(sides), WHAT_IF.tol, WHAT_IF.passes(self.model))
        return scores.weights(sides, response)[0], response.gap

    def changed_out_of_sample(self, units: Units, change: Change) -> Answer:
        """Not offered: every unit would be a solve of its own."""
        raise LQFError(
            "leave-one-out after a change of the training data is known for heads and dense fits, which have all "
            f"leverages at once; fit with {naming.given('solver', 'dense')} or {naming.given('solver', 'head')}"
        )

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
        asked, leverages, progress = self._asked(queries), self._averaged, self.problem.context.progress
        cross, signs, mu = self.problem.averaged_cross(asked), self.problem.averaged.signs, leverages.ridge
        assert signs is not None
        own = own_head(asked) + own_kernel(self.problem.quadratic, asked.inputs, signs, progress=progress)
        averaged = Dual(leverages.averaged, mu, cross.new_zeros(cross.shape[1], 1), self.problem.data.n_views)
        found = averaged.unexplained(averaged.covariance(averaged.response(cross), cross, own)[:, 0, 0], own)
        note = f"{FIXED_POINT}; {leverages.averaged_note}"
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
        """(D,) as it was fitted."""
        return self.model.delta.to(self.problem.quadratic.targets)

    @cached_property
    def _residuals(self) -> Tensor:
        """(n, C) residuals of the solution as it was fitted: known to the fit, or by a pass."""
        if self.problem.remembered.residuals is not None:
            return self.problem.remembered.residuals.double()
        self.problem.encoder.prepare()
        with matmul_precision(fast=False):
            return self.problem.measured.residuals(self._fitted).double()

    @property
    def _fitted(self) -> Tensor:
        """δ of head and body, as it was fitted."""
        linear, head = self.problem.model, self.model.head.to(self._body)
        start = head - linear.of_all_features(linear.heads.mean(0)) if linear.around_w0 else head
        return torch.cat([start.reshape(-1), self._body])

    def _left_out(self, units: Units) -> Tensor:
        """(n, C) e^loo of all rows, estimated from the residuals as fitted; made once."""
        if self._of_units is None or not torch.equal(self._of_units[0], units.member):
            self._of_units = (units.member, self._leverages.left_out(self._residuals, units))
        return self._of_units[1]

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

    @cached_property
    def _known_leverages(self) -> KnownLeverages:
        return KnownLeverages(self.model, self.problem, lambda: self._residuals, lambda: self._rough)

    @property
    def _leverages(self) -> Leverages:
        return self._known_leverages.best

    @property
    def _averaged(self) -> Leverages:
        return self._known_leverages.averaged

    def _estimated(self, units: Units) -> Tensor:
        """(n, C) e^loo of all rows by leverages of the averaged kernel (exact where there is one output)."""
        return self._leverages.left_out(self._e, units)

    @cached_property
    def _rough(self) -> Responses:
        return replace(self.responses, tol=max(SKETCH_TOL, self.responses.tol))

    def _by_leverage(self, units: Units) -> Tensor:
        """(N, C) out-of-sample outputs from leverages."""
        e = self._left_out(units)
        return self._shown(self.problem.quadratic.targets.to(e) - e)

    def _shown(self, rows: Tensor) -> Tensor:
        """Outputs of training rows (n, C) as those of a prediction (N, C), on the CPU."""
        return shown(self.model, self.problem, rows)

    def _scored(self, queries: Queries, weights: Tensor, quick: bool) -> tuple[Begun, bool]:
        """P of one sum of outputs of every image, as far as it is wanted, and whether it goes further now than it was
        known.
        """
        begun = self._begun.get(queries)
        if begun is None or not torch.equal(begun.weights, weights):
            begun = Begun.of(self.scores, self._asked(queries), weights, self.responses.at_once)
        further = not quick and begun.done is None
        if further:
            begun = begun.finished(self.scores, SCORES.tol, SCORES.passes(self.model))
        self._begun[queries] = begun
        return begun, further

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
