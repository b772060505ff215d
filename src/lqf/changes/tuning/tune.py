"""Tuning a fitted model: how its error depends on both strengths, and the model at other ones.

The linearisation point stays as it is, and with it features and kernels, so that a head and a dense model are known at
every strength in closed form; a model that was solved by iteration is solved again from where it stands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lqf.changes.tuning.descent import descend
from lqf.changes.tuning.judged_by_kernels import ByKernels, LeftOut, Validated
from lqf.changes.tuning.judged_by_solving import BySolving
from lqf.changes.tuning.path import LEAVE_ONE_OUT, VALIDATION, TuningPath, decays
from lqf.changes.tuning.strength_judge import AnyStrength, StrengthJudge, Term
from lqf.changes.tuning.strength_kernels import StrengthKernels
from lqf.changes.tuning.strengths import FEW, GRID, Tried, scaled
from lqf.changes.tuning.tuned_model import tuned_model
from lqf.changes.tuning.tuned_stack import tuned_stack
from lqf.data import Images, with_views
from lqf.errors import LQFError
from lqf.fitting import Context, FittedModel, Model, Stack, TrainingProblem
from lqf.fitting.out_of_sample import UNMEASURED
from lqf.fitting.reopen import reopen
from lqf.settings import view_count
from lqf.utils import naming
from lqf.utils.exactness import Level, least_exact
from lqf.utils.text import counted

SOLVED_STEPS, SOLVED_FLAT = 6, 5e-3
"""Of a descent in which every step takes two solves."""


@dataclass(eq=False)
class Opened:
    """A fitted model and its training problem, opened again.

    Attributes:
        model: that was solved.
        problem: that it solves.
        validation: labelled images that judge, in its views; None: its own samples, left out.
        weight: of its outputs.
    """

    model: FittedModel
    problem: TrainingProblem
    validation: Images | None = None
    weight: float = 1.0

    @property
    def closed(self) -> bool:
        """Whether it is known at every strength in closed form."""
        return self.model.head_alone or self.model.report.solver == "dense"

    @cached_property
    def kernels(self) -> StrengthKernels:
        """Exact where it was solved in closed form, averaged over the outputs otherwise."""
        if self.model.head_alone:
            return StrengthKernels.of_head(self.problem)
        return StrengthKernels.of_pairs(self.problem) if self.closed else StrengthKernels.averaged(self.problem)

    @cached_property
    def term(self) -> Term:
        """At any strengths, on the images that judge."""
        problem = self.problem
        every: AnyStrength
        if self.validation is None:
            first = None if self.model.trained_views is None else view_count(self.model.preprocess.views)
            judge = problem.data.judge.of(self.kernels.samples)
            return Term(
                self.weight, problem.ridge, ByKernels(self.kernels, LeftOut(judge, first)), self.kernels.samples
            )
        if self.closed:
            images = Validated.of(problem, self.validation, head_alone=self.model.head_alone)
            every = ByKernels(self.kernels, images)
        else:
            every = BySolving(problem, self.validation, self.model.delta)
        return Term(self.weight, problem.ridge, every, torch.arange(len(self.validation)))

    @property
    def level(self) -> tuple[Level, str]:
        """How exact its outputs are at other strengths."""
        if self.validation is not None:
            return ("exact", "") if self.closed else ("solved", "each from the solution before")
        if not self.kernels.exact:
            return "estimated", "roughly, by the kernel averaged over the outputs"
        return ("estimated", UNMEASURED) if self.model.report.moved is not None else ("exact", "")

    def at(self, head: float, body: float, why: str) -> FittedModel:
        """With these factors on its strengths."""
        kernels = self.kernels if self.closed or self.model.settings.loo != "none" else None
        return tuned_model(self.model, self.problem, scaled(self.problem.ridge, head, body), kernels, why)


@dataclass(eq=False)
class StrengthSearch:
    """A fitted model, or a stack, whose strengths can be changed.

    A stack's strengths are shown by those of its largest member that has any; all others change by the same factors.

    Attributes:
        model: fitted.
        opened: its members that have strengths, by number; of a model alone number 0.
        validation: labelled images that judge; None: the model's own samples, left out.
    """

    model: Model
    opened: Mapping[int, Opened]
    validation: Images | None = None

    @classmethod
    def of(cls, model: Model, images: Images, context: Context, validation: Images | None = None) -> StrengthSearch:
        """Open the model's problem over its training images (`open_training`)."""
        opened = {}
        for k, (m, w) in enumerate(zip(model.members, model.weights, strict=True)):
            if m.solved:
                problem = reopen(m, with_views(images, m.trained_on), context)
                own = None if validation is None else with_views(validation, m.preprocess)
                opened[k] = Opened(m, problem, own, w)
        if not opened:
            raise LQFError(
                "the network was fine-tuned by mini-batches, and no weight decay of it can be changed without training "
                "again; tune a model that was solved"
            )
        return cls(model, opened, validation)

    # --- the path -----------------------------------------------------------------------------------------------------

    def path(self, factors: Sequence[float] | None = None, *, descend: bool = True) -> TuningPath:
        """The loss at factors of both strengths, and from the best of them downhill.

        Args:
            factors: of each strength; default: `GRID`, or `FEW` where every pair takes a solve.
            descend: whether to go on along the slope from the best pair.
        """
        factors = _checked(factors) or (FEW if self.by_solving else GRID)
        pairs = [(f, g) for f in factors for g in ([f] if self.alone else factors)]
        found: dict[tuple[float, float], Tried] = {}
        judge = self.judge  # its kernels have a progress of their own
        with self.context.progress.stage("weight decay", total=len(pairs), unit="pairs") as stage:
            for f, g in _ordered(pairs, together=not self.by_solving):
                found[f, g] = judge.at(f, g)
                stage.advance(1, error=f"{found[f, g].error:.1%}")
        way = self._descended(min(found, key=lambda pair: found[pair].loss)) if descend else ()
        grid = tuple(found[pair] for pair in pairs)
        now = found[1.0, 1.0] if (1.0, 1.0) in found else judge.at(1.0, 1.0)
        return TuningPath(self.by, self.n, *self.level, now, grid, way)

    def _descended(self, start: tuple[float, float]) -> tuple[Tried, ...]:
        found: dict[tuple[float, ...], Tried] = {}

        def at(logs: Tensor) -> tuple[float, Tensor]:
            factors = logs.exp().tolist()
            tried = self.judge.at(factors[0], factors[-1], slope=True)
            found[tuple(logs.tolist())] = tried
            return tried.loss, torch.tensor(tried.slope, dtype=torch.float64)

        logs = torch.tensor(start[:1] if self.alone else start, dtype=torch.float64).log()
        how: dict[str, Any] = {"steps": SOLVED_STEPS, "flat": SOLVED_FLAT} if self.by_solving else {}
        return tuple(found[tuple(x.tolist())] for x in descend(at, logs, **how))

    # --- other strengths ----------------------------------------------------------------------------------------------

    def at(self, weight_decay: float, body_weight_decay: float | None = None, why: str = "given") -> Model:
        """The model with these weight decays; the body's: default: the one it has."""
        if self.alone and body_weight_decay is not None:
            raise LQFError("the model is a head alone, which has one weight decay; leave the body's out")
        for name, value in (("weight_decay", weight_decay), ("body_weight_decay", body_weight_decay)):
            if value is not None and not 0 < value < math.inf:
                raise LQFError(f"{naming.name(name)} is {value:g}; give a number above zero")
        base, total = self.main.problem.ridge, self.main.problem.data.total_weight
        head = weight_decay * total / base.head
        body = head if self.alone else 1.0 if body_weight_decay is None else body_weight_decay * total / base.body
        new = {k: one.at(head, body, f"{_decays(one, head, body)}, {why}") for k, one in self.opened.items()}
        return tuned_stack(self.model, new, self.main.model) if isinstance(self.model, Stack) else new[0]

    def chosen(self, path: TuningPath) -> Model:
        """The model at the best strengths of a path."""
        best = path.best
        return self.at(best.weight_decay, best.body_weight_decay, f"chosen by {path.by} of {counted(path.n, 'image')}")

    # --- who judges ---------------------------------------------------------------------------------------------------

    @property
    def main(self) -> Opened:
        """The largest member with strengths."""
        return self.opened[self.model.members.index(self.model.answering)]

    @property
    def alone(self) -> bool:
        """Whether there are heads only, which have one strength."""
        return all(one.model.head_alone for one in self.opened.values())

    @property
    def context(self) -> Context:
        """Device and progress."""
        return self.main.problem.context

    @property
    def by(self) -> str:
        """What judges, in words."""
        return LEAVE_ONE_OUT if self.validation is None else VALIDATION

    @property
    def by_solving(self) -> bool:
        """Whether a pair of strengths takes a solve."""
        return self.validation is not None and not all(one.closed for one in self.opened.values())

    @property
    def n(self) -> int:
        """Images that judge."""
        return int(((self.judge.weights > 0) & self._known).sum())

    @property
    def level(self) -> tuple[Level, str]:
        """That of the least exact member; all their notes."""
        found = [one.level for one in self.opened.values()]
        return least_exact(level for level, _ in found), "; ".join(dict.fromkeys(n for _, n in found if n))

    @cached_property
    def judge(self) -> StrengthJudge:
        """Of pairs of factors."""
        terms, problem = tuple(one.term for one in self.opened.values()), self.main.problem
        data, c = problem.data, problem.model.n_outputs
        shown: dict[str, Any] = {"shown": problem.ridge, "total_weight": data.total_weight, "alone": self.alone}
        if self.validation is not None:
            s = self.validation.samples
            weights = torch.tensor(s.weights)
            return StrengthJudge(terms, self._rest(len(s), c), torch.tensor(s.labels), weights, weights, **shown)
        if data.alone:
            raise LQFError(
                "with one image per class nothing can be left out; "
                f"give labelled images to judge by ({naming.name('validation')})"
            )
        rest = self._rest(len(data), c)
        return StrengthJudge(terms, rest, data.labels, data.judging, data.known_weights, **shown)

    @property
    def _known(self) -> Tensor:
        """(N,) images of which every member says something."""
        covered = torch.stack([torch.isin(torch.arange(len(self.judge.labels)), t.samples) for t in self.judge.terms])
        return covered.all(0) & ~self.judge.rest.isnan().any(1)

    def _rest(self, n: int, c: int) -> Tensor:
        """(n, C) outputs of the members that stay as they are."""
        out = torch.zeros(n, c, dtype=torch.float64)
        device, rows = self.context.device, self.main.problem.quadratic.inputs.batch_size
        for k, (m, w) in enumerate(zip(self.model.members, self.model.weights, strict=True)):
            if k in self.opened:
                continue
            if self.validation is not None:
                images = with_views(self.validation, m.preprocess)
                out += w * m.outputs(images, device=device, batch_size=rows).double()
            else:
                out += w * (torch.full_like(out, torch.nan) if m.loo is None else m.loo.outputs.double())
        return out


def _decays(one: Opened, head: float, body: float) -> str:
    ridge, total = scaled(one.problem.ridge, head, body), one.problem.data.total_weight
    return decays(ridge.head / total, None if one.model.head_alone else ridge.body / total)


def _ordered(pairs: Sequence[tuple[float, float]], *, together: bool) -> list[tuple[float, float]]:
    """Those that share a factorisation together, or, where each is solved, each next to the one before."""
    if together:
        return sorted(pairs, key=lambda pair: (round(math.log(pair[1] / pair[0]), 9), pair[0]))
    heads = sorted({f for f, _ in pairs})
    return sorted(pairs, key=lambda pair: (pair[0], pair[1] * (-1) ** heads.index(pair[0])))


def _checked(factors: Sequence[float] | None) -> tuple[float, ...]:
    if factors is None:
        return ()
    if not len(factors) or not all(0 < f < float("inf") for f in factors):
        raise LQFError(f"factors are {list(factors)}; give numbers above zero")
    return tuple(float(f) for f in sorted(factors))
