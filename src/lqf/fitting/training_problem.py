"""A training problem: a quadratic problem with all that it was made from and all that its solution needs.

`lqf.fitting.pose` makes it in a fit and `lqf.fitting.reopen` for a saved model; fitting, analysis and experiments use
it alike. Other ridge strengths and fewer samples are other problems, which share features, curvature and recorded
passes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lqf.backbones import Backbone
from lqf.curvature import KFAC, body_curvature
from lqf.curvature.stored import from_tensors
from lqf.data import Images
from lqf.data.parts import preprocess_of
from lqf.errors import LQFError
from lqf.fitting.checkpoint import State
from lqf.fitting.choices import choice_of_weight_decay
from lqf.fitting.context import Context
from lqf.fitting.encoder import Encoder
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.point import Point, make_point
from lqf.fitting.remembered import NOTHING, Remembered
from lqf.fitting.select_ridge import Choice
from lqf.fitting.select_stages import StageChoice
from lqf.fitting.solve import planned_kernels, solve_dense, solve_pcg, solve_stochastic
from lqf.fitting.sound import check_strengths
from lqf.fitting.strengths import Strengths, Used
from lqf.fitting.training_set import TrainingSet
from lqf.kernels.cross import averaged_cross
from lqf.kernels.ridge import KernelRidge
from lqf.kernels.tangent import Kernels, averaged_kernels, exact_kernels
from lqf.linear import sweep
from lqf.linear.encoded import EncodedInputs
from lqf.linear.inputs import Inputs, average_views
from lqf.linear.layers import Tape
from lqf.linear.model import LinearModel
from lqf.linear.problem import QuadraticProblem, rows_of, without_weight
from lqf.linear.ridge import Ridge
from lqf.linear.targets import error_rate
from lqf.runtime.precision import matmul_precision
from lqf.solvers.head import Head
from lqf.solvers.planner import AVERAGED_DRAWS, Plan, jacobian_bytes
from lqf.solvers.schur import SchurComplement
from lqf.solvers.solution import Solution


@dataclass(frozen=True)
class Moves:
    """How a network came to the weights at which it is linearised now.

    Attributes:
        pretrained: the network before it was moved.
        head: the ridge strength that was chosen for its head, with its leave-one-out.
        strengths: of the first problem, in its kernels' units.
        choices: what was chosen automatically there, for the report.
        used: ridge strengths of every solve so far.
    """

    pretrained: Backbone
    head: Choice
    strengths: Strengths
    choices: tuple[dict[str, Any], ...]
    used: tuple[Used, ...] = ()


@dataclass(frozen=True, eq=False)
class TrainingProblem:
    """min_δ L(δ) over a training set, around a linearisation point.

    Attributes:
        context: of the fit.
        head_fit: training set, encoder, features and closed-form head.
        point: the heads at the linearisation point.
        quadratic: the problem itself, with its ridge strengths.
        plan: how it will be solved; None: by conjugate gradients.
        kernels: from which the ridge strengths came; None where they were given.
        choice: of the ridge strengths; None likewise.
        moves: None where the network has its pretrained weights.
        made: its curvature, where it comes from another problem.
        kept: the factorised dual, where it was made before.
        stages: the choice of a strength for every stage; None where there is one for the body, or they were given.
        remembered: what the fit knew, of a problem that was opened again.
    """

    context: Context
    head_fit: HeadFit
    point: Point
    quadratic: QuadraticProblem
    plan: Plan | None = None
    kernels: Kernels | None = None
    choice: Choice | None = None
    moves: Moves | None = None
    made: KFAC | None = None
    kept: KernelRidge | None = None
    stages: StageChoice | None = None
    remembered: Remembered = NOTHING

    # --- what it was made from ----------------------------------------------------------------------------------------

    @property
    def data(self) -> TrainingSet:
        """The training set."""
        return self.head_fit.data

    @property
    def encoder(self) -> Encoder:
        """Images to the features that the body's weights act through, and faster passes."""
        return self.head_fit.acting.encoder

    @property
    def features(self) -> Tensor:
        """(n, p) of all rows."""
        return self.head_fit.features

    @property
    def head(self) -> Head:
        """The closed-form head problem, factorised."""
        return self.head_fit.head

    @property
    def model(self) -> LinearModel:
        """The linear model."""
        return self.quadratic.model

    @property
    def ridge(self) -> Ridge:
        """Ridge strengths of head and body."""
        return self.quadratic.ridge

    @property
    def used(self) -> Used:
        """Ridge strengths of its solution."""
        return Used.of(self.head_fit.point_ridge, self.ridge)

    @property
    def choices(self) -> tuple[dict[str, Any], ...]:
        """What was chosen automatically, for the report; at the pretrained weights."""
        if self.moves is not None:
            return self.moves.choices
        total, of = self.data.total_weight, "body" if self.context.settings.form == "centred" else "model"
        decays = choice_of_weight_decay(self.head_fit.choice, total, "head")
        if self.stages is not None:
            decays += (self.stages.entry(total),)
        elif self.choice is not None:
            decays += choice_of_weight_decay(self.choice, total, of)
        return (*self.head_fit.choices, *decays)

    @property
    def unit(self) -> float:
        """tr K_body / tr K_head, the unit of the ratio of the body's strength to the head's."""
        if self.stages is not None:
            return self.stages.unit
        assert self.kernels is not None
        return self.kernels.unit

    def point_of(self, rows: Tensor, head: Head, folds: Tensor) -> Point:
        """The linearisation point of the same kind and strength for some of the rows.

        Args:
            rows: numbers of the rows.
            head: their head problem over all features.
            folds: (rows,) their own folds.
        """
        settings, acting = self.context.settings, self.head_fit.acting
        if acting is not self.head_fit:
            head = acting.head.among(rows)
        return make_point(settings.head, head, self.head_fit.point_ridge, folds, settings.seed)

    # --- passes -------------------------------------------------------------------------------------------------------

    @property
    def measured(self) -> QuadraticProblem:
        """The problem by exact passes: for true residuals, and for all that is reported."""
        return self.encoder.engine.measured(self.quadratic)

    @property
    def fast(self) -> QuadraticProblem:
        """The problem by fast products; activations of as many batches as fit are kept until `release`.

        Ask for `curvature` first: it needs the memory before activations take it.
        """
        engine, stages = self.encoder.engine, self.plan.stages if self.plan else {}
        seconds = stages.get("solve", 0.0) + stages.get("leave-one-out", 0.0)
        return engine.cached(self.quadratic, compiled=engine.compiles(seconds))

    def release(self) -> None:
        """Give up the activations that were kept."""
        self.encoder.engine.release()

    @cached_property
    def curvature(self) -> KFAC | None:
        """K-FAC of the body, for every ridge strength; None where it was not wanted."""
        settings = self.context.settings
        if self.made is not None or settings.preconditioner != "kfac":
            return self.made
        if self.remembered.curvature:
            tape = Tape(self.model.body, self.encoder.inputs.example())
            return from_tensors(tape, self.remembered.curvature, self.quadratic.targets)
        with self.context.timed("curvature"), matmul_precision(fast=True):
            return body_curvature(
                self.quadratic, draws=settings.draws, seed=settings.seed, progress=self.context.progress
            )

    @property
    def curvature_known(self) -> KFAC | None:
        """`curvature`, where it was made already."""
        return self.made if self.made is not None else vars(self).get("curvature")

    def schur(self, *, fast: bool = False) -> SchurComplement:
        """The problem without its head: right-hand sides and residuals are exact, products may be fast."""
        quick = self.fast if fast else None
        return SchurComplement(self.measured, self.features, self.head.at(self.ridge.head), quick, tf32=False)

    @cached_property
    def averaged(self) -> Kernels:
        """Kernels averaged over the outputs, of all samples."""
        if self.kernels is not None and self.kernels.signs is not None and len(self.kernels.samples) == len(self.data):
            return self.kernels
        return self.averaged_kernels(len(self.data))

    def exact_kernels(self, instead: str) -> Kernels:
        """Kernels of all (row, output) pairs, by a pass over the training rows with all their gradients.

        Raises:
            LQFError: where they do not fit; ``instead`` says what to do then.
        """
        pairs, free = self.quadratic.targets.numel(), self.context.free_bytes()
        need = 6 * 8 * pairs * pairs
        if need > free:
            raise LQFError(
                f"the kernel of {pairs} (row, output) pairs needs about {need / 2**30:.1f} GB and "
                f"{free / 2**30:.1f} GB are free; {instead}"
            )
        self.encoder.prepare()
        progress = self.context.progress
        return exact_kernels(self.quadratic, self.features, self.data.groups, budget=free // 4, progress=progress)

    def averaged_kernels(self, most_samples: int) -> Kernels:
        """Kernels averaged over the outputs, of at most so many samples."""
        problem, context = self.quadratic, self.context
        rows = min(len(problem.targets), most_samples * self.data.n_views)
        free = context.free_bytes() - 6 * 8 * rows * rows
        return averaged_kernels(
            problem,
            self.features,
            self.data.groups,
            budget=jacobian_bytes(problem, rows * min(AVERAGED_DRAWS, problem.model.n_outputs), free),
            most_samples=most_samples,
            seed=context.settings.seed,
            progress=context.progress,
        )

    def averaged_cross(self, asked: EncodedInputs) -> Tensor:
        """The averaged kernel of other images with the training rows, (images, n)."""
        signs, progress = self.averaged.signs, self.context.progress
        assert signs is not None
        return averaged_cross(self.quadratic, self.features, asked, signs, progress=progress)

    @cached_property
    def dual(self) -> tuple[KernelRidge, float | None]:
        """The kernel of all (row, output) pairs at its ridge strengths, factorised; and ‖b‖, where that gives it."""
        if self.kept is not None:
            return self.kept, None
        assert self.plan is not None
        kernels = self.kernels or planned_kernels(self, self.plan)
        return kernels.factorise(self.ridge), kernels.rhs_norm()

    @property
    def factorised(self) -> KernelRidge | None:
        """The factorised dual, where it is known already."""
        return self.dual[0] if self.kept is not None or "dual" in vars(self) else None

    # --- other problems -----------------------------------------------------------------------------------------------

    def with_ridge(self, ridge: Ridge) -> TrainingProblem:
        """The same problem with other ridge strengths; what was made is shared."""
        return replace(
            self, quadratic=self.quadratic.with_ridge(ridge), made=self.curvature, kept=None, remembered=NOTHING
        )

    def among(self, samples: Tensor) -> TrainingProblem:
        """The problem of these samples alone, with the same point and ridge strengths; the others lose their weight."""
        rows, head = rows_of(self.quadratic, samples), self.head
        part = head.among(rows)
        made = part.ridge.among(rows.to(part.ridge.q.device), len(head.features))
        quadratic = without_weight(self.quadratic, rows)
        share = float(quadratic.weights.sum() / self.quadratic.weights.sum())
        return replace(
            self,
            head_fit=replace(self.head_fit, head=replace(head, made=made)),
            quadratic=quadratic,
            kernels=None,
            choice=None,
            kept=None,
            remembered=NOTHING,
            made=self.curvature and self.curvature.scaled(share),
        )

    # --- solutions ----------------------------------------------------------------------------------------------------

    def solve(self, start: Tensor | None = None, *, tol: float | None = None, state: State | None = None) -> Solution:
        """The optimum, by the planned solver.

        Args:
            start: (D,) the body's weights to begin with; default: zero. For conjugate gradients alone.
            tol: relative residual at which conjugate gradients stop, in place of the settings' tolerance for outputs.
            state: of a checkpoint to continue from.
        """
        check_strengths(self.ridge)
        self.encoder.prepare()
        with self.context.timed("solve"):
            solver = self.plan.solver if self.plan else "pcg"
            if solver == "dense":
                return solve_dense(self)
            if solver == "pcg":
                return solve_pcg(self, start, tol=tol, state=state)
            return solve_stochastic(self, state)

    def body(self, solution: Solution) -> Tensor:
        """(D,) the body's part of a solution, for the next ``start``."""
        return self.model.split(solution.delta)[1]

    def inputs_of(self, images: Images) -> Inputs:
        """Rows of other images, on the same way to the network."""
        inputs = self.encoder.inputs.showing(images, preprocess_of(images) or self.data.preprocess)
        inputs.keep_on_device()
        return inputs

    def encode(self, images: Images) -> EncodedInputs:
        """Other images with their features."""
        inputs = self.inputs_of(images)
        return EncodedInputs(inputs, sweep.features(self.head_fit.encoder.reader, inputs))

    def outputs(self, images: Images | Inputs, delta: Tensor) -> Tensor:
        """f (N, C) of other images, or of their rows, averaged over their views, in float64 on the CPU."""
        inputs = images if isinstance(images, Inputs) else self.inputs_of(images)
        rows = sweep.outputs(self.measured.model, inputs, delta)
        return average_views(rows, inputs.n_views).double().cpu()

    def change(self, inputs: Inputs, delta: Tensor) -> Tensor:
        """J δ (N, C) of other images' rows: by how much their outputs move with the weights."""
        model = self.measured.model

        def move(_: Tensor, x: Tensor) -> Tensor:
            return model.jvp(x, delta)[1]

        rows = sweep.sweep(inputs.batches(), len(inputs), move, world=inputs.world)
        return average_views(rows, inputs.n_views).double().cpu()

    def error(self, images: Images, solution: Solution) -> float:
        """Share of wrong predictions on other images."""
        return error_rate(self.outputs(images, solution.delta), torch.tensor(images.samples.labels))
