"""The stages of a fit from the closed-form head on, each a method; `lqf.fitting.pipeline` puts them in order."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property

from torch import Tensor

from lqf.curvature import KFAC
from lqf.curvature.preconditioner import draws_for
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fast.cache_budget import keep_activations, release_activations
from lqf.fitting.features import Featured
from lqf.fitting.folds import stratified_folds
from lqf.fitting.iterate import Iterate
from lqf.fitting.moving import Strengths
from lqf.fitting.out_of_sample import from_kernels, way_to_leave_out
from lqf.fitting.point import Point, blind_point, make_point
from lqf.fitting.refits import Refits, folds_needed
from lqf.fitting.resuming import State
from lqf.fitting.ridges import choose_strengths
from lqf.fitting.select_pooling import Pooled
from lqf.fitting.select_ridge import Choice
from lqf.kernels.tangent import Kernels, averaged_kernels, exact_kernels
from lqf.linear.inputs import average_views
from lqf.linear.model import LinearModel
from lqf.linear.problem import QuadraticProblem, Ridge
from lqf.runtime.precision import matmul_precision
from lqf.solvers import Dense, Head
from lqf.solvers.planner import MOST_SAMPLES, Plan, Rates, plan
from lqf.solvers.solution import Solution


@dataclass(frozen=True)
class Outline:
    """A problem without ridge strengths.

    Attributes:
        pooled: features and closed-form head.
        point: the heads at the linearisation point.
        problem: around it.
        plan: how it will be solved.
    """

    pooled: Pooled
    point: Point
    problem: QuadraticProblem
    plan: Plan


@dataclass(frozen=True)
class Prepared(Outline):
    """A problem with ridge strengths, ready to be solved.

    Attributes:
        kernels: from which the strengths come.
        choice: of the strengths.
    """

    kernels: Kernels
    choice: Choice


@dataclass(frozen=True)
class Solved:
    """A solution, and what refits need: the problem with fast products, and the preconditioner."""

    outline: Outline
    solution: Solution
    fast: QuadraticProblem | None = None
    kfac: KFAC | None = None

    def release(self) -> None:
        """Give up the activations that were kept for its products."""
        if self.fast is not None:
            release_activations(self.fast)


@dataclass
class Stages(Featured):
    """From the closed-form head to the optimum and to leave-one-out."""

    def point(self, head: Head, mu: float) -> Point:
        """The head(s) at the linearisation point."""
        return self._point_of(head, mu, self._folds)

    def _point_of(self, head: Head, mu: float, fold: Tensor) -> Point:
        return make_point(self.settings.head, head, mu, fold, self.settings.seed)

    @cached_property
    def _folds(self) -> Tensor:
        """(n,) fold of every row."""
        labels = self.rows.labels.repeat_interleave(self.images.n_views)
        return stratified_folds(self.rows.groups, labels, seed=self.settings.seed)

    def problem(self, point: Point) -> QuadraticProblem:
        """The quadratic problem, still without ridge strengths."""
        heads = self.world.spread_(point.heads.to(device=self.device, dtype=self.dtype))
        model = LinearModel(self._parts[1], heads, self.settings.form == "w0", self.rows.constant)
        fold = point.fold.to(self.device)
        return QuadraticProblem(
            model,
            self.inputs,
            self.rows.targets.to(self.dtype),
            self.rows.weights.to(self.dtype),
            fold,
            Ridge(1.0, 1.0),
        )

    def plan(self, problem: QuadraticProblem) -> Plan:
        """Solver and cost, by timing this process."""
        draws = draws_for(self.settings.draws, len(self.images))
        fast, exact = self.engine.fast(problem), self.engine.measured(problem)
        rates = Rates.measure(problem, fast, exact, draws=draws).together(self.world.size)
        refits, epochs = self.settings.loo in ("auto", "folds"), self.settings.epochs
        return plan(problem, self.settings.solver, rates, self._memory(), epochs=epochs, refits=refits)

    def kernels(self, problem: QuadraticProblem, features: Tensor, chosen: Plan) -> Kernels:
        """What weight decay and leave-one-out are computed from: exact with the dense dual, averaged otherwise."""
        if chosen.solver == "dense":
            budget = chosen.jacobian_bytes
            return exact_kernels(problem, features, self.rows.groups, budget=budget, progress=self.progress)
        return averaged_kernels(
            problem,
            features,
            self.rows.groups,
            budget=chosen.jacobian_bytes,
            most_samples=MOST_SAMPLES // self.images.n_views,
            seed=self.settings.seed,
            progress=self.progress,
        )

    def choose(self, kernels: Kernels, head_mu: float, fixed: Ridge | None) -> Choice:
        """Ridge strengths by leave-one-out; what the user (or a checkpoint) fixed is only evaluated."""
        return choose_strengths(self.settings, self.rows, kernels, head_mu, fixed, self.progress)

    def outline(self, pooled: Pooled) -> Outline:
        """From features to a plan."""
        point = self.point(pooled.head, pooled.choice.mu)
        problem = self.problem(point)
        with self._timed("planning"):
            chosen = Plan(**self.world.first(lambda: asdict(self.plan(problem))))
        return Outline(pooled, point, problem, chosen)

    def prepare(self, outline: Outline, fixed: Ridge | Strengths | None = None) -> Prepared:
        """Kernels, and the ridge strengths by them."""
        pooled, problem = outline.pooled, outline.problem
        with self._timed("kernel"):
            kernels = self.kernels(problem, pooled.features, outline.plan)
        with self._timed("weight decay"):
            if isinstance(fixed, Strengths):
                total = float(self.rows.weights.sum())
                fixed = fixed.at(pooled.head.ridge, kernels, self.settings, total).ridge
            choice = self.choose(kernels, pooled.choice.mu, fixed)
        ridge = Ridge(choice.mu, choice.mu * choice.omega)
        problem = problem.with_ridge(Ridge(**self.world.first(lambda: asdict(ridge))))
        return Prepared(pooled, outline.point, problem, outline.plan, kernels, choice)

    def solve(self, ready: Outline, state: State | None = None, kernels: Kernels | None = None) -> Solved:
        """The optimum, by the planned solver; from what a checkpoint held, where there is one.

        Args:
            ready: with ridge strengths.
            state: of the checkpoint.
            kernels: the exact ones, where they are known; the dense dual needs them.
        """
        problem, features = ready.problem, ready.pooled.features
        iterate = Iterate(self.settings, self.checkpoint, self.world, self.progress)
        with self._timed("solve"):
            if ready.plan.solver == "dense":
                exact = kernels or self.kernels(problem, features, ready.plan)
                kernel, b_norm = exact.factorise(problem.ridge.body / problem.ridge.head), exact.rhs_norm()
                quick = self.engine.measured(problem)
                return Solved(ready, Dense().solve(quick, features, kernel, b_norm=b_norm, progress=self.progress))
            if ready.plan.solver == "pcg":
                with self._timed("curvature"):
                    kfac = iterate.curvature(problem)
                products = ready.plan.stages["solve"] + ready.plan.stages.get("leave-one-out", 0.0)
                fast = self.engine.fast(problem, compiled=self.engine.compiles(products))
                measured = self.engine.measured(problem)
                with matmul_precision(self.settings.precision != "float32"):  # recordings keep what holds now
                    keep_activations(fast, measured)
                solution = iterate.pcg(measured, fast, features, ready.pooled.head.ridge, kfac, state)
                return Solved(ready, solution, fast, kfac)
            with self._timed("curvature"):
                preconditioner = iterate.preconditioner(problem, features)
            return Solved(ready, iterate.stochastic(problem, preconditioner, state))

    # --- leave-one-out ------------------------------------------------------------------------------------------------

    def leave_one_out(self, ready: Prepared, solved: Solved) -> LeaveOneOut | None:
        """Out-of-sample outputs around a fixed point; None where they were not wanted or cannot be had."""
        with self._timed("leave-one-out"):
            can = solved.fast is not None
            way = way_to_leave_out(self.settings.loo, ready.kernels, len(self.images), can_refit=can)
            if way == "folds" and solved.fast is not None:
                every = self.settings.loo == "folds"
                return self.refits(solved.fast, ready.pooled.head, ready.choice.mu, solved.kfac, every=every)
            if way != "kernel":
                return None
            return from_kernels(ready.kernels, ready.choice, self.rows, self.loo_bias(ready))

    def refits(self, fast: QuadraticProblem, head: Head, mu: float, kfac: KFAC | None, *, every: bool) -> LeaveOneOut:
        """Out-of-sample outputs from a model without each fold, or without each of the first few.

        Args:
            fast: the problem, with the body that products are made with; an exact one where they leave its range.
            head: the closed-form head problem.
            mu: the ridge strength of the head at the point.
            kfac: the preconditioner.
            every: all folds, or as many as tell the error.
        """
        total = int(self._folds.max()) + 1
        folds = total if every else folds_needed(self._folds)
        shared = (head, lambda part, fold: self._point_of(part, mu, fold), kfac)
        try:
            outputs = Refits(fast, *shared).outputs(self._folds, folds, progress=self.progress)
        except FloatingPointError:
            exact = self.engine.measured(replace(fast, inputs=self.inputs))
            outputs = Refits(exact, *shared).outputs(self._folds, folds, progress=self.progress)
        note = f"by refits without each of {total} folds"
        if folds < total:
            note = f"by refits without {folds} of {total} folds; --loo folds takes all"
        by_sample = average_views(outputs, self.images.n_views).cpu()
        return LeaveOneOut(by_sample, self.rows.labels, self.rows.judge.weights, "estimated", note)

    def loo_bias(self, ready: Prepared) -> float | None:
        """How much a label-dependent point flatters leave-one-out: the error of the cross-fitted one minus its own."""
        choice, head = ready.choice, ready.pooled.head
        other = blind_point(ready.point, head, choice.mu, self._folds)
        if other is None:
            return None
        blind = self.kernels(self.problem(other), ready.pooled.features, ready.plan)
        trial = self.choose(blind, choice.mu, Ridge(choice.mu, choice.mu * choice.omega)).best
        return trial.error - choice.best.error
