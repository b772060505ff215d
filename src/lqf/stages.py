"""The stages of a fit, each a method; `lqf.fit` puts them in order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lqf import choices
from lqf.backbones import Backbone
from lqf.backbones.pool import AveragePool, find_average_pool
from lqf.batch import rows_that_fit
from lqf.checkpoint import Checkpoint
from lqf.choose_pooling import OWN, Pooled, best, candidates, try_poolings
from lqf.curvature import KFAC
from lqf.curvature.preconditioner import draws_for
from lqf.data import Images, Preprocess
from lqf.distributed import ALONE, World
from lqf.engine import Engine
from lqf.folds import stratified_folds
from lqf.inputs import Inputs
from lqf.iterate import Iterate
from lqf.kernels import Kernels, averaged_kernels, exact_kernels
from lqf.linearize import linearized_body
from lqf.loo import LeaveOneOut, average_views
from lqf.memory import available_bytes
from lqf.model import LinearModel
from lqf.objective import Problem, Ridge
from lqf.out_of_sample import from_kernels, way_to_leave_out
from lqf.point import Point, blind_point, make_point
from lqf.pooling import ChannelMoment
from lqf.precision import matmul_precision
from lqf.progress import SILENT, Progress
from lqf.refits import Refits, folds_needed
from lqf.resuming import State
from lqf.ridges import choose_strengths, fixed_mu
from lqf.rows import Rows
from lqf.settings import Settings
from lqf.solution import Solution
from lqf.solvers import Dense, Head
from lqf.solvers.planner import MOST_SAMPLES, Plan, Rates, plan
from lqf.tune import Choice, choose_ridge


@dataclass(frozen=True)
class Prepared:
    """A problem that is ready to be solved.

    Attributes:
        pooled: features and closed-form head.
        point: the heads at the linearisation point.
        problem: with its ridge strengths.
        plan: how it will be solved.
        kernels: from which the strengths come.
        choice: of the strengths.
    """

    pooled: Pooled
    point: Point
    problem: Problem
    plan: Plan
    kernels: Kernels
    choice: Choice


@dataclass(frozen=True)
class Solved:
    """Its solution, and what refits need: the problem with fast products, and the preconditioner."""

    prepared: Prepared
    solution: Solution
    fast: Problem | None = None
    kfac: KFAC | None = None


@dataclass
class Stages:
    """One fit: its data, its settings, and the stages as methods.

    Attributes:
        settings: what to do.
        backbone: the network, on the CPU.
        images: training images, checked.
        preprocess: pixels to inputs.
        device: where to compute.
        checkpoint: where to keep what a solve has reached; None: nowhere.
        resume: start from the checkpoint if there is one.
        progress: where to report.
        world: the processes that share the images.
    """

    settings: Settings
    backbone: Backbone
    images: Images
    preprocess: Preprocess
    device: torch.device
    checkpoint: Checkpoint | None = None
    resume: bool = False
    progress: Progress = SILENT
    world: World = ALONE
    pooling: str = OWN
    seconds: dict[str, float] = field(default_factory=dict)
    choices: list[dict[str, Any]] = field(default_factory=list)

    # --- the data as rows ---------------------------------------------------------------------------------------------

    @cached_property
    def dtype(self) -> torch.dtype:
        """Floating-point type of all passes."""
        return torch.float64 if self.settings.dtype == "float64" else torch.float32

    @cached_property
    def inputs(self) -> Inputs:
        """Rows on the device; the frozen prefix's activations are kept when they fit."""
        inputs = Inputs(
            self.images,
            self.preprocess,
            device=self.device,
            dtype=self.dtype,
            batch_size=self.settings.batch_size or 16,
            prefix=self._parts[0],
            world=self.world,
        )
        if self.device.type == "cuda" and self.settings.batch_size is None:
            free = available_bytes(self.device)
            inputs.batch_size = rows_that_fit(self._parts[1], inputs.example(1), free)
        inputs.cache_prefix(progress=self.progress)
        inputs.keep_on_device()
        return inputs

    @cached_property
    def _parts(self) -> tuple[Any, Any]:
        return linearized_body(self.backbone.body.to(device=self.device, dtype=self.dtype), self.settings.linearize)

    @cached_property
    def rows(self) -> Rows:
        """Targets, weights and groups of the rows."""
        return Rows(self.images, self.settings.alpha, self.device)

    # --- the stages ---------------------------------------------------------------------------------------------------

    def pool(self) -> Pooled:
        """Features and closed-form head under the pooling that is kept, which from here on is the backbone's."""
        s, module, cuda = self.settings, self._parts[1].module, self.device.type == "cuda"
        found = self.world.first(lambda: (p := find_average_pool(module, self.inputs.example())) and asdict(p))
        wanted = candidates(
            s.pooling,
            AveragePool(**found) if found else None,
            s.pool_channels,
            self.backbone.name,
            len(self.inputs),
            self.dtype.itemsize,
            min(self.world.every(self._memory())) // 2,
            cuda,
        )
        if wanted.note:
            self.progress.say(wanted.note)
        tried = try_poolings(wanted, self.backbone, self._parts[1], self._features_of, self._judged, self.world)
        kept = best(tried, self.world)
        self._use(kept.backbone)
        self.pooling = kept.name
        self.choices += choices.of_pooling(tried, kept)
        self.choices += choices.of_weight_decay(kept.choice, float(self.rows.weights.sum()), "head")
        return kept

    def _features_of(self, backbone: Backbone, moment: ChannelMoment | None) -> Tensor:
        self._use(backbone)
        with self._timed("features"):
            return self.features(moment)

    def _judged(self, features: Tensor) -> tuple[Head, Choice]:
        with self._timed("head"):
            head = self.closed_form_head(features)
            judge, fixed = self.rows.judge, fixed_mu(self.settings, float(self.rows.weights.sum()))
            return head, choose_ridge(lambda _: head.ridge, head.residual, judge, [1.0], fixed)

    def _use(self, backbone: Backbone) -> None:
        """Another pooling; what comes before it, and so the rows' inputs, stays the same."""
        if backbone is not self.backbone:
            self.backbone = backbone
            for made in ("_parts", "engine"):
                self.__dict__.pop(made, None)

    def features(self, moment: ChannelMoment | None = None) -> Tensor:
        """z (n, p) of all rows; the moment, if there is one, is added up on the way."""
        out = None
        total = len(self.inputs.own) * self.images.n_views
        with self.progress.stage("features", total=total, unit="images") as stage:
            for rows, x in self.inputs.batches():
                with matmul_precision(fast=False):
                    z = self._parts[1].value(x)
                out = z.new_zeros(len(self.inputs), z.shape[1]) if out is None else out
                out[rows] = z
                if moment is not None:
                    moment.add(self.rows.weights[rows])
                stage.advance(len(rows))
        assert out is not None
        return self.world.sum_(out)

    def closed_form_head(self, features: Tensor) -> Head:
        """The factorised head problem."""
        return Head.of(
            features, self.rows.targets - self.rows.constant, self.rows.weights, self.rows.groups.to(self.device)
        )

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

    def problem(self, point: Point) -> Problem:
        """The quadratic problem, still without ridge strengths."""
        heads = self.world.spread_(point.heads.to(device=self.device, dtype=self.dtype))
        model = LinearModel(self._parts[1], heads, self.settings.form == "w0", self.rows.constant)
        fold = point.fold.to(self.device)
        return Problem(
            model,
            self.inputs,
            self.rows.targets.to(self.dtype),
            self.rows.weights.to(self.dtype),
            fold,
            Ridge(1.0, 1.0),
        )

    def plan(self, problem: Problem) -> Plan:
        """Solver and cost, by timing this process."""
        draws = draws_for(self.settings.draws, len(self.images))
        rates = Rates.measure(problem, self.engine.fast(problem), draws).together(self.world.size)
        refits, epochs = self.settings.loo in ("auto", "folds"), self.settings.epochs
        return plan(problem, self.settings.solver, rates, self._memory(), epochs=epochs, refits=refits)

    def kernels(self, problem: Problem, features: Tensor, chosen: Plan) -> Kernels:
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

    def prepare(self, pooled: Pooled, fixed: Ridge | None = None) -> Prepared:
        """From features to a problem with its ridge strengths: point, plan, kernels, weight decay."""
        point = self.point(pooled.head, pooled.choice.mu)
        problem = self.problem(point)
        with self._timed("planning"):
            chosen = Plan(**self.world.first(lambda: asdict(self.plan(problem))))
            self.progress.say(chosen.sentence)
        with self._timed("kernel"):
            kernels = self.kernels(problem, pooled.features, chosen)
        with self._timed("weight decay"):
            choice = self.choose(kernels, pooled.choice.mu, fixed)
        ridge = Ridge(choice.mu, choice.mu * choice.omega)
        problem = problem.with_ridge(Ridge(**self.world.first(lambda: asdict(ridge))))
        return Prepared(pooled, point, problem, chosen, kernels, choice)

    def solve(self, ready: Prepared, state: State | None = None) -> Solved:
        """The optimum, by the planned solver; from what a checkpoint held, where there is one."""
        problem, features = ready.problem, ready.pooled.features
        iterate = Iterate(self.settings, self.checkpoint, self.world, self.progress)
        with self._timed("solve"):
            if ready.plan.solver == "dense":
                kernel, b_norm = ready.kernels.factorise(ready.choice.omega), ready.kernels.rhs_norm()
                quick = self.engine.measured(problem)
                return Solved(ready, Dense().solve(quick, features, kernel, b_norm=b_norm, progress=self.progress))
            if ready.plan.solver == "pcg":
                with self._timed("curvature"):
                    kfac = iterate.curvature(problem)
                products = ready.plan.stages["solve"] + ready.plan.stages.get("leave-one-out", 0.0)
                fast = self.engine.fast(problem, compiled=self.engine.compiles(products))
                measured = self.engine.measured(problem)
                solution = iterate.pcg(measured, fast, features, ready.pooled.head.ridge, kfac, state)
                return Solved(ready, solution, fast, kfac)
            with self._timed("curvature"):
                preconditioner = iterate.preconditioner(problem, features)
            return Solved(ready, iterate.stochastic(problem, preconditioner, state))

    @cached_property
    def engine(self) -> Engine:
        """Faster passes for the solve."""
        return Engine(self._parts[1], self.settings, self.inputs.example(), self.progress.say)

    # --- leave-one-out ------------------------------------------------------------------------------------------------

    def leave_one_out(self, solved: Solved) -> LeaveOneOut | None:
        """Out-of-sample outputs around a fixed point; None where they were not wanted or cannot be had."""
        ready = solved.prepared
        with self._timed("leave-one-out"):
            can = solved.fast is not None
            way = way_to_leave_out(self.settings.loo, ready.kernels, len(self.images), can_refit=can)
            if way == "folds" and solved.fast is not None:
                try:
                    return self.refits(solved, solved.fast)
                except FloatingPointError:  # the solve has said so
                    return self.refits(solved, self.engine.measured(ready.problem))
            return (
                from_kernels(ready.kernels, ready.choice, self.rows, self.loo_bias(ready)) if way == "kernel" else None
            )

    def refits(self, solved: Solved, fast: Problem) -> LeaveOneOut:
        """Out-of-sample outputs from a model without each fold, or without each of the first few."""
        head, mu = solved.prepared.pooled.head, solved.prepared.choice.mu
        every = int(self._folds.max()) + 1
        folds = every if self.settings.loo == "folds" else folds_needed(self._folds)
        refits = Refits(fast, head, lambda part, fold: self._point_of(part, mu, fold), solved.kfac)
        outputs = refits.outputs(self._folds, folds, progress=self.progress)
        note = f"by refits without each of {every} folds"
        if folds < every:
            note = f"by refits without {folds} of {every} folds; --loo folds takes all"
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

    # --- small things -------------------------------------------------------------------------------------------------

    def _memory(self) -> int:
        """Free bytes on the device; processes on one machine share its main memory."""
        free = available_bytes(self.device)
        return free if self.device.type == "cuda" else free // self.world.local_size

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began
