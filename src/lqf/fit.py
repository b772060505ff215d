"""From images to the optimum: the stages of a fit, in order.

features -> closed-form head -> linearisation point -> plan -> weight decay -> solve -> leave-one-out -> `Fitted`
"""

from __future__ import annotations

import time
from typing import Any

from lqf import choices, report
from lqf.choose_pooling import Pooled
from lqf.fitted import Fitted
from lqf.loo import LeaveOneOut
from lqf.objective import Ridge
from lqf.out_of_sample import temperature
from lqf.results import Assembly, head_solution
from lqf.resuming import resumed
from lqf.solution import Solution
from lqf.stages import Stages
from lqf.tune import Choice


class Fit(Stages):
    """One fit from beginning to end."""

    def run(self) -> Fitted:
        """All stages."""
        began = time.perf_counter()
        pooled = self.pool()
        if self.settings.solver == "head":
            return self._finish_head(pooled, began)
        state = resumed(self.checkpoint if self.resume else None, self.dtype, self.world, self.progress.say)
        ready = self.prepare(pooled, Ridge(**state[1]["ridge"]) if state else None)
        of = "body" if self.settings.form == "centred" else "model"
        self.choices += choices.of_weight_decay(ready.choice, float(self.rows.weights.sum()), of)
        solved = self.solve(ready, state)
        loo = self.leave_one_out(solved)
        beta = temperature(ready.kernels, ready.choice, self.rows) if loo is None else loo.temperature()[0]
        told = self._report(
            solved.solution, loo, pooled.choice, began, plan=ready.plan.sentence, point=ready.point.kind
        )
        return self._assembly.of_model(ready.problem.model, solved.solution.delta, loo, beta, told)

    def _finish_head(self, pooled: Pooled, began: float) -> Fitted:
        head, choice = pooled.head, pooled.choice
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
            "choices": self.choices,
            **report.of_solution(solution, float(self.rows.weights.sum())),
            **report.of_leave_one_out(loo),
            "head_loo_error": head_choice.best.error,
            "device": str(self.device),
            "processes": self.world.size,
            "skipped": [list(s) for s in self.images.skipped],
            "stages": {k: round(v, 3) for k, v in self.seconds.items()},
            "seconds": time.perf_counter() - began,
        }
