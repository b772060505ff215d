"""The stages of a fit whose network is moved (`lqf.fitting.moving`), and its error on unseen data by whole refits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from lqf.backbones import Backbone
from lqf.backbones.state import flat_state, with_flat_state
from lqf.data import Images, select_images
from lqf.errors import LQFError
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting.moving import Strengths, Used, fine_tuned, follows, stepped
from lqf.fitting.out_of_sample import from_kernels
from lqf.fitting.refits import folds_needed
from lqf.fitting.resuming import State
from lqf.fitting.select_pooling import Pooled
from lqf.fitting.select_ridge import choose_ridge
from lqf.fitting.training_problem import Outline, Prepared, Solved, Stages
from lqf.kernels.ridge import KernelRidge
from lqf.linear.inputs import average_views
from lqf.linear.linearize import Linearization, linearized_body
from lqf.linear.model import LinearModel
from lqf.linear.problem import Ridge
from lqf.solvers.planner import Plan
from lqf.utils.progress import SILENT

UNMEASURED = "around a network that was moved with all labels in sight, which flatters it by an unknown amount"


HALVINGS = 8
"""Lengths of a step that are tried: 1, ½, ¼, …"""
ROWS_LOOKED_AT = 512
"""Rows, per process, by which the length of a step is judged."""


@dataclass
class Journey(Stages):
    """From the pretrained weights to those at which the last problem is solved."""

    def travel(self, first: list[Prepared], state: State | None = None) -> tuple[Prepared, Solved, list[Used]]:
        """All solves from the pretrained weights on: the last problem, its solution, all ridge strengths.

        Args:
            first: the problem at the pretrained weights, taken from the list: its kernels are freed when it is left.
            state: of a checkpoint of the first solve.
        """
        strengths = Strengths.of(_used(first[0]), first[0].pooled.head.ridge, first[0].kernels)
        if self.settings.finetune_first:
            first.clear()
            self.fine_tune()
            first.append(self.again(strengths))
        return self._onward(first, strengths, [], state)

    def travel_on(self, state: State) -> tuple[Prepared, Solved, list[Used]]:
        """The same from a checkpoint at moved weights."""
        vectors, at = state
        strengths, used = Strengths(**at["strengths"]), [Used(**u) for u in at["used"]]
        self.use_moved(with_flat_state(self.backbone, vectors["moved"].to(self.device), at["moved"]))
        own = {k: v for k, v in vectors.items() if k != "moved"}
        return self._onward([self.again(strengths, Ridge(**at["ridge"]))], strengths, used, (own, at))

    def _onward(
        self, first: list[Prepared], strengths: Strengths, used: list[Used], state: State | None
    ) -> tuple[Prepared, Solved, list[Used]]:
        ready = first.pop()
        while True:
            self._note(strengths, used)
            used = [*used, _used(ready)]
            solved = self.solve(ready, state, ready.kernels)
            if len(used) > self.settings.relinearize:
                return ready, solved, used
            model, delta = ready.problem.model, solved.solution.delta
            solved.release()
            del ready, solved  # the next problem needs the memory of this one's kernels and recorded passes
            self._step(model, delta)
            ready, state = self.again(strengths), None

    def again(self, strengths: Strengths, fixed: Ridge | None = None) -> Prepared:
        """The problem around the weights that the network has now; nothing is chosen by its labels."""
        pooled = self._pooled(lambda head: strengths.point_at(head, self.settings, float(self.rows.weights.sum())))
        outline = self.outline(pooled)
        self.progress.say(f"linearised again: {outline.plan.sentence}")
        return self.prepare(outline, fixed or strengths)

    def follow(self, used: list[Used], plan: Plan) -> tuple[LinearModel, Tensor]:
        """The whole way with given ridge strengths and solver: the last model and its δ."""
        if self.settings.finetune_first:
            self.fine_tune()
        model, delta = self._solved_at(used[0], plan)
        for u in used[1:]:
            self._step(model, delta)
            model, delta = self._solved_at(u, plan)
        return model, delta

    def _solved_at(self, u: Used, plan: Plan) -> tuple[LinearModel, Tensor]:
        pooled = self._pooled(u.point)
        point = self.point(pooled.head, u.point)
        problem = self.problem(point).with_ridge(u.ridge)
        solved = self.solve(Outline(pooled, point, problem, plan))
        solved.release()
        return problem.model, solved.solution.delta

    def fine_tune(self) -> None:
        """Ordinary fine-tuning; all weights change, those before the first linearised stage too."""
        with self._timed("fine-tuning"):
            s = self.settings
            self.use_moved(fine_tuned(self.backbone, self.images, self.preprocess, s, self.device, self.progress))

    def use_moved(self, backbone: Backbone) -> None:
        """Another network, from its first weight on."""
        self._use(backbone)
        self.__dict__.pop("inputs", None)

    def _step(self, model: LinearModel, delta: Tensor) -> None:
        """Move the network by δ, or by a half, a quarter, … of it."""
        body, stage = model.split(delta)[1], self.settings.linearize
        for halvings in range(HALVINGS):
            length = 0.5**halvings
            other = stepped(self.backbone, stage, body, length)
            if self._follows(model, linearized_body(other.body, stage)[1], length * body):
                return self._use(other)
        raise LQFError(
            f"the network does not follow its linear model over {length:.1g} of the step either; "
            "give no relinearize, or a larger body_weight_decay"
        )

    def _follows(self, model: LinearModel, other: Linearization, change: Tensor) -> bool:
        """Whether the features of the moved network are nearer to the linear model's than those of the old one."""
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        seen = 0
        for _, x in self.inputs.batches():
            sums += follows(*model.body.jvp(x, change), other.value(x))
            seen += len(x)
            if seen >= ROWS_LOOKED_AT:
                break
        gap, linear = self.world.sum_(sums).tolist()
        return bool(self.world.agree(float(gap <= linear)))

    def _pooled(self, mu: float | Callable[[KernelRidge], float]) -> Pooled:
        """Features and closed-form head at the weights that the network has now, at a given ridge strength."""
        with self._timed("features"):
            z = self.features()
        if not bool(torch.isfinite(z).all()):
            raise LQFError(
                "the network's features are no longer finite after it was moved; "
                "give fewer steps (relinearize), or a larger body_weight_decay"
            )
        with self._timed("head"):
            head = self.closed_form_head(z)
            at = self.world.agree(mu(head.ridge) if callable(mu) else mu)
            choice = choose_ridge(lambda _: head.ridge, head.residual, self.rows.judge, [1.0], [at])
        return Pooled(self.pooling, self.backbone, z, head, choice)

    def _note(self, strengths: Strengths, used: list[Used]) -> None:
        """What a checkpoint needs to go on from here, beside the solver's own vectors."""
        if self.checkpoint is None or "moved" not in self.backbone.spec:
            return
        at = {"strengths": asdict(strengths), "used": [asdict(u) for u in used], "moved": self.backbone.spec["moved"]}
        self.checkpoint = self.checkpoint.with_more({"moved": flat_state(self.backbone.body)}, at)

    # --- the error on unseen data -------------------------------------------------------------------------------------

    def leave_one_out_of_moved(self, ready: Prepared, used: list[Used], pretrained: Backbone) -> LeaveOneOut | None:
        """By refits without each fold that begin at the pretrained weights; around the last point only where asked."""
        if self.settings.loo == "none":
            return None
        with self._timed("leave-one-out"):
            if self.settings.loo == "kernel":
                loo = from_kernels(ready.kernels, ready.choice, self.rows, None)
                notes = [n for n in (loo.note if loo else "", UNMEASURED) if n]
                return loo and replace(loo, level="estimated", note="; ".join(notes))
            return self._whole_refits(used, ready.plan, pretrained)

    def _whole_refits(self, used: list[Used], plan: Plan, pretrained: Backbone) -> LeaveOneOut:
        v, judge = self.images.n_views, self.rows.judge
        fold = self._folds[::v]
        every = int(fold.max()) + 1
        folds = every if self.settings.loo == "folds" else folds_needed(self._folds)
        outputs = torch.full((len(fold), self.rows.targets.shape[1]), torch.nan, dtype=self.dtype)
        with self.progress.stage("refits without a fold", total=folds, unit="folds") as stage:
            for k in range(folds):
                outputs[fold == k] = self._without(fold == k, used, plan, pretrained)
                stage.advance(1)
        note = f"by refits without each of {every} folds, from the pretrained weights on"
        if folds < every:
            note = f"by refits without {folds} of {every} folds, from the pretrained weights on; --loo folds takes all"
        return LeaveOneOut(outputs, self.rows.labels, judge.weights, "estimated", note)

    def _without(self, left_out: Tensor, used: list[Used], plan: Plan, pretrained: Backbone) -> Tensor:
        """Outputs (N_out, C) of some samples from a fit without them."""
        part = Journey(
            settings=self.settings,
            backbone=pretrained,
            images=select_images(self.images, (~left_out).numpy()),
            preprocess=self.preprocess,
            device=self.device,
            progress=SILENT,
            world=self.world,
            pooling=self.pooling,
        )
        model, delta = part.follow(used, plan)
        rows = part.outputs(select_images(self.images, left_out.numpy()), model, delta)
        return average_views(rows, self.images.n_views).cpu()

    def outputs(self, images: Images, model: LinearModel, delta: Tensor) -> Tensor:
        """(n, C) outputs of the rows of other images."""
        inputs = self._inputs(images, self.preprocess)
        inputs.batch_size = self.inputs.batch_size
        out = torch.zeros(len(inputs), model.n_outputs, dtype=self.dtype, device=self.device)
        for rows, x in inputs.batches():
            z, jd = model.jvp(x, delta)
            out[rows] = model.base(z) + jd
        return self.world.sum_(out)


def _used(ready: Prepared) -> Used:
    ridge = ready.problem.ridge
    return Used(ready.pooled.choice.mu, ridge.head, ridge.body)
