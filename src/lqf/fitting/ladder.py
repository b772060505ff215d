"""A fit as a climb: the closed-form head first, then better models as long as they gain and there is time.

    head -> mirror images -> eight views -> last stage -> LQF -> fine-tuned -> LQF, moved -> stack

Every rung is a complete model, judged by the cross-entropy of its out-of-sample outputs on folds that all rungs share,
paired with the best model so far, and kept where it gains; more views, which nearly always help, unless they seem
worse. After each that is kept the model is handed to the caller, who may save it: whatever happens later, it stands.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, TypeVar

from torch import Tensor

from lqf.backbones import Backbone
from lqf.data import Images, Preprocess
from lqf.errors import LQFError
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.evaluation.paired import mean_loss
from lqf.fitting.checkpoint import read_state
from lqf.fitting.context import Context
from lqf.fitting.report import last_kept
from lqf.fitting.rungs.finetuned import FINETUNED, LOWER_RATE
from lqf.fitting.rungs.linear import LQF_CROPS
from lqf.fitting.rungs.moved import MOVED
from lqf.fitting.rungs.pace import WORK, Pace
from lqf.fitting.rungs.plan import Plan, make_plan
from lqf.fitting.rungs.rung import Attempt, EarlierAttempt, Ground, NotNow, Rung
from lqf.fitting.rungs.stack import STACK
from lqf.fitting.rungs.tried import Tried, said
from lqf.fitting.stack import Model, Stack
from lqf.fitting.training_set import TrainingSet
from lqf.fitting.whole_choice import choice_outputs
from lqf.linear.batch import usual_rows
from lqf.linear.targets import error_rate
from lqf.runtime.deadline import OutOfTime
from lqf.runtime.out_of_memory import DoesNotFit, in_smaller_batches
from lqf.utils import naming
from lqf.utils.text import rough_duration

T = TypeVar("T")
Keep = Callable[[Model], None]
"""Called with the best model so far, whenever there is a better one and at the end."""
FOR_NOW = ("needs ", "the time", "not yet")
"""How reasons begin that another time, or another machine, may not have."""
STANDING_ON_LQF = frozenset({LQF_CROPS, MOVED, FINETUNED, LOWER_RATE, STACK})
"""Rungs that go on from a linear problem, or come after one and are added up with it."""


def settled(model: Model) -> set[str]:
    """Names of the rungs that a model's climb is done with: tried, or impossible for other reasons than time or
    memory.
    """
    return {r["name"] for r in model.report.rungs if r["name"] in model.tried or not r["why"].startswith(FOR_NOW)}


def rung_of(model: Model) -> str:
    """Name of the rung that a model is."""
    return str(last_kept(model.report.rungs)["name"])


def climb(
    images: Images,
    backbone: Backbone,
    preprocess: Preprocess,
    context: Context,
    *,
    keep: Keep | None = None,
    earlier: Model | None = None,
    pace: Pace | None = None,
) -> Model:
    """The best model that the settings' effort and the deadline allow.

    Args:
        images: training images, checked.
        backbone: the network, on the CPU.
        preprocess: pixels to inputs.
        context: settings, device, processes, progress, deadline.
        keep: called with every better model.
        earlier: the model of a climb with the same data and settings, to climb on from.
        pace: how fast the network is here, where that was measured.
    """
    state = read_state(context.checkpoint, context.dtype, context.world, context.progress.say)
    if pace is None:
        pace = Pace(**context.world.first(lambda: asdict(Pace.measure(images, preprocess, backbone, context))))
    ground = Ground(TrainingSet.of(images, preprocess, context), backbone, pace, state=state)
    plan = make_plan(ground)
    done = settled(earlier) if earlier else set()
    if earlier is not None and all(rung.name in done for rung in plan.rungs):
        context.progress.say(f"all that effort {plan.effort} has was tried; a higher {naming.name('effort')} has more")
        return earlier
    for line in plan.lines(done):
        context.progress.note(line)
    ground = ground.with_settings(linearize=plan.stage)
    return _Climb(ground, plan, context, keep or (lambda _: None), earlier).run()


class _Climb:
    """The loop's state: where it stands, and what was tried."""

    def __init__(self, ground: Ground, plan: Plan, context: Context, keep: Keep, earlier: Model | None = None):
        self.ground, self.plan, self.context, self.keep, self.earlier = ground, plan, context, keep, earlier
        self.tried: list[Tried] = []
        if earlier is not None:
            context.deadline.arm()

    def run(self) -> Model:
        for rung in self.plan.rungs:
            if not self._step(rung):
                break
        if not self.ground.best:
            raise LQFError(
                f"no model could be fitted; a smaller {naming.name('batch_size')}, {naming.name('size')} or backbone "
                "needs less memory"
            )
        model = self._reported(last=True)
        self.keep(model)
        return model

    def _keep(self) -> None:
        """Hand out the best model so far; as long as that takes, it will take again at the end."""
        began = time.monotonic()
        self.keep(self._reported())
        self.context.deadline.reserve(time.monotonic() - began)

    def _step(self, rung: Rung) -> bool:
        """Try one rung; whether to go on."""
        began = time.perf_counter()
        predicted = self.context.world.first(lambda: rung.seconds(self.ground))
        under_way = self.context.progress.rung(rung.name, predicted, self._after(rung, predicted))
        if self.earlier is not None and self._is_known(rung):
            with under_way:
                self._restore(rung, self.earlier)
            return True
        first = not self.ground.best
        try:
            self._check_time(rung, predicted, first)
            with under_way:
                attempt = self._attempted(rung)
                self._judge(rung, attempt, predicted, began)
        except NotNow as reason:
            self.tried.append(Tried(rung.name, reason.seconds or predicted, why=str(reason)))
        except DoesNotFit:
            self.ground = self.ground.without_attempt(rung.name)
            self.tried.append(Tried(rung.name, predicted, time.perf_counter() - began, why="needs more memory"))
            self.context.progress.say(f"{rung.name} needs more memory than there is; it is left out")
        except LQFError as error:
            if first:
                raise
            self.ground = self.ground.without_attempt(rung.name)
            self.tried.append(Tried(rung.name, predicted, time.perf_counter() - began, why=str(error)))
            self.context.progress.say(f"{rung.name} is left out: {error}")
        except OutOfTime:
            self.tried.append(Tried(rung.name, predicted, time.perf_counter() - began, why="the time was up"))
            self.context.progress.say(f"{rung.name}: the time is up; the model before it is kept")
            return False
        return True

    def _is_known(self, rung: Rung) -> bool:
        """Whether an earlier climb is done with a rung; a stack is another one when there are new models."""
        known = settled(self.earlier) if self.earlier is not None else set()
        new = any(t.outputs is not None and t.name not in known for t in self.tried)
        return rung.name in known and not (rung.name == STACK and new)

    def _restore(self, rung: Rung, earlier: Model) -> None:
        """A rung that an earlier climb has tried: only what the rungs after it stand on is made again."""
        tried = Tried.from_report(rung.name, earlier)
        self.tried.append(tried)
        if tried.outputs is None:
            return
        ahead = {r.name for r in self.plan.rungs if r.name not in earlier.tried}
        if rung.effort == "quick" or ahead & STANDING_ON_LQF:
            attempt = rung.again(self.ground, EarlierAttempt(tried.outputs, tried.about))
            self.ground = self.ground.with_attempt(attempt)
        if not tried.kept:
            return
        self.ground = replace(self.ground, best=rung.name)
        if rung.name == rung_of(earlier):
            self.ground = self.ground.with_model(rung.name, earlier)
        elif isinstance(earlier, Stack) and rung.name in earlier.names:
            self.ground = self.ground.with_model(rung.name, earlier.members[earlier.names.index(rung.name)])
        elif rung.effort == "quick":
            self.ground = self.ground.with_model(rung.name, self.ground.attempts[rung.name].finish())

    def _check_time(self, rung: Rung, predicted: float, first: bool) -> None:
        left = self.context.world.first(self.context.deadline.left)
        if not first and predicted > left:
            raise NotNow(f"needs about {rough_duration(predicted)}", predicted)

    def _after(self, rung: Rung, predicted: float) -> float:
        """Predicted seconds of the rungs after one that there will be time for."""
        left, total = self.context.deadline.left() - predicted, 0.0
        for later in self.plan.rungs[self.plan.rungs.index(rung) + 1 :]:
            seconds = later.seconds(self.ground)
            if not self._is_known(later) and total + seconds <= left:
                total += seconds
        return total

    def _attempted(self, rung: Rung) -> Attempt:
        return self._in_batches(rung, lambda ground: rung.attempt(ground))

    def _finished(self, rung: Rung, attempt: Attempt) -> Model:
        """Fitted to all samples; where that does not fit, from an attempt in smaller batches."""
        before = self.ground

        def finish(ground: Ground) -> Model:
            if ground is before:
                return attempt.finish()
            attempt.release()
            return rung.attempt(ground).finish()

        return self._in_batches(rung, finish)

    def _in_batches(self, rung: Rung, compute: Callable[[Ground], T]) -> T:
        """Something of a rung, in smaller batches where the memory does not suffice."""
        ground = self.ground
        rows = ground.context.settings.batch_size or usual_rows(self.context.device)
        return in_smaller_batches(
            lambda n: compute(ground if n == rows else ground.with_settings(batch_size=n)),
            rows,
            self.context.progress.say,
            rung.name,
        )

    def _judge(self, rung: Rung, attempt: Attempt, predicted: float, began: float) -> None:
        """Finish it where it gains."""
        ground = self.ground = self.ground.with_attempt(attempt)
        before = ground.attempts[ground.best] if ground.best else None
        gain = None if before is None else ground.gain(attempt.outputs, before.outputs)
        gains = self.context.world.first(lambda: gain is None or gain.counts(attempt.doubt))
        if gains:
            model = self._finished(rung, attempt)
            self.ground = self.ground.with_model(rung.name, model)
            self.context.deadline.arm()  # a first model is made, whatever the time
        attempt.release()
        seconds = time.perf_counter() - began
        if rung.kind in WORK and (gains or rung.effort == "quick"):  # heads are finished with their attempt
            pace = self.ground.pace.learn(rung.kind, predicted, seconds, self.context.device)
            self.ground = replace(self.ground, pace=pace)
        error, loss = self._score(attempt.outputs)
        self.tried.append(
            Tried(
                rung.name,
                predicted,
                seconds,
                outputs=attempt.outputs,
                error=error,
                loss=loss,
                gain=gain,
                kept=gains,
                why="" if gains else "gains nothing",
                about=attempt.about,
                alternatives=attempt.alternatives,
            )
        )
        self.context.progress.note(said(self.tried[-1], self.context))
        if gains:
            self._keep()

    def _score(self, outputs: Tensor) -> tuple[float | None, float | None]:
        """Out-of-sample error and cross-entropy; None where nothing is known."""
        data, losses = self.ground.data, self.ground.losses(outputs)
        known = ~losses.isnan()
        if not bool(known.any()):
            return None, None
        error = error_rate(outputs[known], data.labels[known], data.judging[known])
        return error, mean_loss(losses, data.judging)

    def _reported(self, last: bool = False) -> Model:
        """The best model with the report of the whole climb."""
        model, clock = self.ground.models[self.ground.best], self.context.clock
        whole = self._whole_choice()
        report = replace(
            model.report,
            effort=self.plan.effort,
            rungs=tuple(t.to_dict() for t in (*self.tried, *self._left("the time was up" if last else "not yet"))),
            error=None if whole is None else whole.error,
            error_standard_error=None if whole is None else whole.standard_error,
            error_note=None if whole is None else whole.note,
            balanced_error=None if whole is None else whole.balanced_error,
            balanced_standard_error=None if whole is None else whole.balanced_standard_error,
            next_rung=self._next(),
            stages={name: round(seconds, 3) for name, seconds in clock.seconds.items()},
            seconds=clock.total(),
        )
        return replace(model, report=report, settings=self.context.settings, tried=self._outputs())

    def _whole_choice(self) -> LeaveOneOut | None:
        data = self.ground.data
        if data.alone:
            return None
        candidates, heads = self._outputs(), 1 + sum(len(t.alternatives) for t in self.tried)
        folds = data.folds[:: data.n_views]
        doubts = {name: attempt.doubt for name, attempt in self.ground.attempts.items()}
        outputs = choice_outputs(candidates, heads, self.ground.losses, data.judging, folds, doubts)
        note = f"all choices made again without each of {len(folds.unique())} folds"
        return data.left_out(outputs, "estimated", note)

    def _outputs(self) -> dict[str, Tensor]:
        """Of all candidates by name, in the order in which they were tried; alternatives follow the one taken."""
        found: dict[str, Tensor] = {}
        for tried in self.tried:
            if tried.outputs is not None:
                found |= {tried.name: tried.outputs, **tried.alternatives}
        return found

    def _left(self, why: str) -> list[Tried]:
        done = {t.name for t in self.tried}
        return [Tried(r.name, r.seconds(self.ground), why=why) for r in self.plan.rungs if r.name not in done]

    def _next(self) -> dict[str, Any] | None:
        """The first rung that was left out for want of time, or that is beyond the effort."""
        unknown = [t for t in self.tried if t.outputs is None]
        late = {t.name: t.predicted for t in unknown if t.why.startswith(("needs about", "the time"))}
        for rung in (*self.plan.rungs, *self.plan.further):
            if rung.name in late or rung in self.plan.further:
                seconds = late.get(rung.name, rung.seconds(self.ground))
                return {"name": rung.name, "seconds": round(seconds, 1), "effort": rung.effort}
        return None
