"""Answers about a stack: it is linear in its members, so effects, predictions and leave-one-out add up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from lqf.analysis.counterfactual import Change
from lqf.analysis.method import Method
from lqf.analysis.queries import Queries
from lqf.analysis.unexplained import Unexplained
from lqf.analysis.units import Units
from lqf.data import with_views
from lqf.fitting.stack import Stack
from lqf.utils.exactness import Answer, Level, least_exact

_SHARES = ("asked", "training")


@dataclass(eq=False)
class ByStack:
    """The members' methods, each with its own views of the images that are asked about."""

    stack: Stack
    methods: tuple[Method, ...]
    level: Level
    note: str
    _queries: WeakKeyDictionary[Queries, tuple[Queries, ...]] = field(default_factory=WeakKeyDictionary, repr=False)

    @classmethod
    def of(cls, stack: Stack, methods: tuple[Method, ...]) -> ByStack:
        """As exact as the least exact member; one that has no closed form is named with its share."""
        parts = [f"{n} ({s:.0%})" for n, s in zip(stack.names, stack.shares, strict=True)]
        silent = [p for p, m in zip(parts, stack.members, strict=True) if not m.solved]
        note = f"a stack of {', '.join(parts)}"
        if silent:
            note += f"; without an answer of {', '.join(silent)}, which stays as it is"
        return cls(stack, methods, least_exact(m.level for m in methods), note)

    def outputs(self, queries: Queries) -> Tensor:
        """f (Q, C)."""
        return self._sum(lambda method, own: method.outputs(own), queries)

    def predictions(self, queries: Queries) -> Tensor:
        """f (Q, C), as the members give it."""
        return self._sum(lambda method, own: method.predictions(own), queries)

    def effects(self, queries: Queries, units: Units, chosen: Tensor | None) -> Answer:
        """Σ w_k of the members' effects."""
        return self._answers(lambda method, own: method.effects(own, units, chosen), queries)

    def effects_on_sums(self, queries: Queries, weights: Tensor, units: Units, *, quick: bool = False) -> Answer:
        """Likewise."""
        return self._answers(lambda method, own: method.effects_on_sums(own, weights, units, quick=quick), queries)

    def seconds(self, images: int, *, quick: bool) -> float:
        """Of all members."""
        return sum(method.seconds(images, quick=quick) for method in self.methods)

    def out_of_sample(self, units: Units, samples: Tensor | None) -> Answer:
        """Σ w_k of the members' outputs without their unit."""
        found = [method.out_of_sample(units, samples) for method in self.methods]
        return self._added(found)

    def information(self, queries: Queries | None, units: Units) -> Answer:
        """Of the largest member that has an answer: squares of sums do not add up."""
        method, own = self._main(queries)
        answer = method.information(own, units)
        name = self.stack.names[self.stack.members.index(self.stack.answering)]
        return Answer(answer.value, "estimated", f"{self.note}; of {name} alone", answer.uncertainty)

    def leaving(self, queries: Queries | None, units: Units, *, most: bool, steps: int) -> Tensor:
        """Likewise."""
        method, own = self._main(queries)
        return method.leaving(own, units, most=most, steps=steps)

    def prepare(self, queries: Queries) -> None:
        """That of all members."""
        for method, own in zip(self.methods, self._own(queries), strict=True):
            method.prepare(own)

    def what_if(self, queries: Queries, change: Change) -> Answer:
        """Σ w_k of the members' predictions after the change."""
        return self._answers(lambda method, own: method.what_if(own, change), queries)

    def changed_out_of_sample(self, units: Units, change: Change) -> Answer:
        """Σ w_k of the members' outputs without their unit, after the change."""
        return self._added([method.changed_out_of_sample(units, change) for method in self.methods])

    def refitted(self, queries: Queries, keep: Tensor) -> Tensor:
        """Σ w_k of the members' predictions after fitting the kept samples alone."""
        return self._sum(lambda method, own: method.refitted(own, keep), queries)

    def covariance(self, queries: Queries, units: Units) -> Answer:
        """Σ w_k Cov f_k of the members that have one, with weights that add up to 1: at least Cov Σ w_k f_k."""
        own = self._own(queries)
        found = [(w, self.methods[k].covariance(own[k], units)) for k, w in self._solved]
        value = torch.stack([w * a.value for w, a in found]).sum(0)
        notes = dict.fromkeys(a.note for _, a in found if a.note)
        note = f"{self.note}; at most, as if all members were wrong together"
        return Answer(value, "estimated", "; ".join([note, *notes]))

    def noise(self, units: Units) -> float:
        """Likewise."""
        return sum(w * self.methods[k].noise(units) for k, w in self._solved)

    def unexplained(self, queries: Queries, units: Units) -> Unexplained:
        """Σ w_k of the members' shares, likewise."""
        own = self._own(queries)
        found = [(w, self.methods[k].unexplained(own[k], units)) for k, w in self._solved]
        asked, training = (torch.stack([w * getattr(u, name) for w, u in found]).sum(0) for name in _SHARES)
        level = least_exact(u.level for _, u in found)
        return Unexplained(asked, training, level, "; ".join(dict.fromkeys([self.note, *(u.note for _, u in found)])))

    @property
    def _solved(self) -> list[tuple[int, float]]:
        """Members that answer, with weights that add up to 1; where none does, the one that stands for them."""
        solved = [k for k, m in enumerate(self.stack.members) if m.solved]
        if not solved:
            return [(self.stack.members.index(self.stack.answering), 1.0)]
        total = sum(self.stack.weights[k] for k in solved)
        return [(k, self.stack.weights[k] / total) for k in solved]

    def _main(self, queries: Queries | None) -> tuple[Method, Queries | None]:
        k = self.stack.members.index(self.stack.answering)
        return self.methods[k], None if queries is None else self._own(queries)[k]

    def _own(self, queries: Queries) -> tuple[Queries, ...]:
        if queries not in self._queries:
            views = [with_views(queries.images, m.preprocess) for m in self.stack.members]
            self._queries[queries] = tuple(Queries(images, queries.labels) for images in views)
        return self._queries[queries]

    def _sum(self, ask: Callable[[Method, Queries], Tensor], queries: Queries) -> Tensor:
        found = [ask(method, own) for method, own in zip(self.methods, self._own(queries), strict=True)]
        return torch.stack([w * f for w, f in zip(self.stack.weights, found, strict=True)]).sum(0)

    def _answers(self, ask: Callable[[Method, Queries], Answer], queries: Queries) -> Answer:
        return self._added([ask(method, own) for method, own in zip(self.methods, self._own(queries), strict=True)])

    def _added(self, found: list[Answer]) -> Answer:
        value = torch.stack([w * a.value for w, a in zip(self.stack.weights, found, strict=True)]).sum(0)
        notes = dict.fromkeys(a.note for a in found if a.note)
        return Answer(value, least_exact(a.level for a in found), "; ".join([self.note, *notes]))
