"""From images to the optimum: the stages of a fit, in order.

features -> closed-form head -> linearisation point -> plan -> weight decay -> solve (and, where the network is moved,
again from the features on) -> leave-one-out -> `Fitted`
"""

from __future__ import annotations

import time
from typing import Any

from lqf.data import has_pixels
from lqf.errors import LQFError
from lqf.evaluation.calibration import fit_temperature
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import choices, report
from lqf.fitting.assemble import Assembly, head_solution
from lqf.fitting.fitted_model import Fitted
from lqf.fitting.out_of_sample import temperature
from lqf.fitting.relinearize import Journey
from lqf.fitting.resuming import State, resumed
from lqf.fitting.select_pooling import Pooled
from lqf.fitting.select_ridge import Choice
from lqf.fitting.select_views import reason_against, too_dear, worth_it
from lqf.fitting.training_problem import Outline, Prepared
from lqf.linear.problem import Ridge
from lqf.solvers.solution import Solution


class Fit(Journey):
    """One fit from beginning to end."""

    def run(self) -> Fitted:
        """All stages."""
        began = time.perf_counter()
        if self.settings.views not in ("auto", self.preprocess.views):
            self.show(self.settings.views)  # type: ignore[arg-type]
        state = self._resumed()
        if self.settings.solver != "head":
            self.engine.compile_ahead()
        plain = self.pool()
        pooled = self.views(plain, state[1].get("views") if state else None)
        if self.settings.solver == "head":
            return self._finish_head(pooled, began)
        pretrained = self.backbone
        if state and "moved" in state[0]:
            self._note_views()
            ready, solved, used = self.travel_on(state)
        else:
            first = [self._first(plain, pooled, state)]
            pooled = first[0].pooled
            ready, solved, used = self.travel(first, state)
        if self.settings.moves:
            solved.release()  # whole refits need the memory
            loo = self.leave_one_out_of_moved(ready, used, pretrained)
        else:
            loo = self.leave_one_out(ready, solved)
        solved.release()
        honest = loo is not None and not (self.settings.moves and self.settings.loo == "kernel")
        told = self._report(
            solved.solution, loo, pooled.choice, began, plan=ready.plan.sentence, point=ready.point.kind
        )
        told["point_ridge"] = ready.pooled.choice.mu  # of a moved network, at its last point
        beta = loo.temperature()[0] if loo and honest else self._temperature(pooled, ready)
        return self._assembly.of_model(ready.problem.model, solved.solution.delta, loo, beta, told)

    def _first(self, plain: Pooled, pooled: Pooled, state: State | None) -> Prepared:
        """The problem at the pretrained weights; all that is chosen is chosen here."""
        outline = self.outline(plain) if pooled is plain else self._with_bearable_views(plain, pooled, bool(state))
        self.progress.say(outline.plan.sentence)
        self._note_views()
        ready = self.prepare(outline, Ridge(**state[1]["ridge"]) if state else None)
        total, of = float(self.rows.weights.sum()), "body" if self.settings.form == "centred" else "model"
        self.choices += choices.of_weight_decay(ready.pooled.choice, total, "head")
        self.choices += choices.of_weight_decay(ready.choice, total, of)
        return ready

    def _note_views(self) -> None:
        if self.checkpoint is not None:
            self.checkpoint = self.checkpoint.with_more({}, {"views": self.preprocess.views})

    def _temperature(self, pooled: Pooled, ready: Prepared) -> float:
        """Of the probabilities, without out-of-sample outputs of the model: by the kernels it was chosen by.

        Around a moved network these flatter, and the closed-form head at the pretrained weights stands in.
        """
        if not self.settings.moves:
            return temperature(ready.kernels, ready.choice, self.rows)
        judge = self.rows.judge
        return fit_temperature(judge.outputs(pooled.choice.e_loo), judge.labels, judge.weights)[0]

    def _resumed(self) -> State | None:
        """What the checkpoint holds, where it is to be continued; a head alone has none."""
        wanted = self.resume and self.settings.solver != "head"
        return resumed(self.checkpoint if wanted else None, self.dtype, self.world, self.progress.say)

    def views(self, plain: Pooled, fixed: str | None = None) -> Pooled:
        """`--views auto`: mirrored views where they gain enough, or what a checkpoint ``fixed``."""
        s, n = self.settings, len(self.inputs)
        may = s.views == "auto" and self.preprocess.views == "none" and s.augment == "none" and has_pixels(self.images)
        if not may or fixed == "none":
            return plain
        memory = min(self.world.every(self._memory())) // 2
        cuda = self.device.type == "cuda"
        against = reason_against(2 * n, plain.features.shape[1], self.dtype.itemsize, memory, cuda)
        if against and fixed is None:
            self.progress.say(against)
            return plain
        other = self.mirrored(plain)
        keep = fixed == "flip" or self.world.first(lambda: worth_it(plain.choice.best, other.choice.best))
        if fixed is None:
            why = "" if keep else "flip gains too little"
            self.choices.append(choices.of_views(plain, other, "flip" if keep else "none", why))
        if keep:
            self.show("flip")
        return other if keep else plain

    def _with_bearable_views(self, plain: Pooled, pooled: Pooled, fixed: bool) -> Outline:
        """The problem with the mirrored views, or without them where it would be too large or take too long."""
        try:
            outline = self.outline(pooled)
            if fixed or not too_dear(outline.plan):
                return outline
            why = f"flip: {outline.plan.sentence.partition(' (')[0]}"
        except LQFError:
            if fixed:
                raise
            why = "flip needs too much memory"
        self.show("none")
        self.choices[-1] |= {"kept": "none", "why": why}
        return self.outline(plain)

    def _finish_head(self, pooled: Pooled, began: float) -> Fitted:
        head, choice = pooled.head, pooled.choice
        self.choices += choices.of_weight_decay(choice, float(self.rows.weights.sum()), "head")
        solution = head_solution(head, choice.mu)
        loo = LeaveOneOut(
            self.rows.judge.outputs(choice.e_loo).cpu(), self.rows.labels, self.rows.judge.weights, "exact"
        )
        told = self._report(solution, loo, choice, began, point=None, plan="head: closed form")
        return self._assembly.of_head(solution.delta.view(head.residual.shape[1], -1), loo, loo.temperature()[0], told)

    @property
    def _assembly(self) -> Assembly:
        return Assembly(self.settings, self.backbone, self.preprocess, self.rows)

    def _report(
        self,
        solution: Solution,
        loo: LeaveOneOut | None,
        head_choice: Choice,
        began: float,
        *,
        plan: str,
        point: str | None,
    ) -> dict[str, Any]:
        return {
            "n": len(self.images),
            "classes": list(self.images.samples.classes),
            "backbone": self.backbone.name,
            "plan": plan,
            "point": point,
            "form": self.settings.form,
            "pooling": self.pooling,
            "views": self.preprocess.views,
            "moved": self.backbone.spec.get("moved"),
            "choices": self.choices,
            **report.of_solution(solution, float(self.rows.weights.sum())),
            **report.of_leave_one_out(loo),
            "head_loo_error": head_choice.best.error,
            "point_ridge": head_choice.mu,
            "device": str(self.device),
            "processes": self.world.size,
            "skipped": [list(s) for s in self.images.skipped],
            "stages": {k: round(v, 3) for k, v in self.seconds.items()},
            "seconds": time.perf_counter() - began,
        }
