"""What leaving out training samples does to predictions: results of `Analysis.influence`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from lqf.analysis.unit_effects import UnitEffects
from lqf.errors import LQFError
from lqf.linear.targets import class_scores, decide, encode, logits
from lqf.utils.frames import Tabular
from lqf.utils.text import listed, shortened

Loss = Literal["cross_entropy", "squared"]


@dataclass(frozen=True)
class Effect:
    """One training unit's effect: its number, its name (id or group), and what changes when it is left out."""

    unit: int
    name: str
    change: float


@dataclass(frozen=True)
class Top:
    """The units that helped most (leaving them out hurts most first) and those that harmed most."""

    helpers: tuple[Effect, ...]
    harmers: tuple[Effect, ...]

    def __repr__(self) -> str:
        return f"Top(\n  helpers: {_listed(self.helpers)}\n  harmers: {_listed(self.harmers)}\n)"


def _listed(effects: Sequence[Effect], most: int = 3) -> str:
    shown = [f"{shortened(e.name, 20)} {e.change:+.2g}" for e in effects[:most]]
    return ", ".join(shown + (["…"] if len(effects) > most else [])) or "none"


@dataclass(frozen=True, kw_only=True, repr=False)
class Influence(Tabular, UnitEffects):
    """Signed effect of leaving out every unit on every output of every query: (U, Q, C) f₋S(x) − f(x).

    Attributes:
        alpha: scale of the targets.
    """

    alpha: float

    @property
    def effects(self) -> Tensor:
        """(U, Q, C): by how much each output changes when unit S is left out."""
        return self.value

    @property
    def predicted(self) -> Tensor:
        """(Q,) predicted classes."""
        return decide(self.outputs)

    def of_class(self, which: int | str | Tensor | None = None) -> Tensor:
        """(U, Q) change of the score of one class (number, name, or one number per query); None: the predicted one."""
        index = self.predicted if which is None else self._class_index(which)
        without = class_scores((self.outputs + self.effects).flatten(0, 1), self.alpha).view(
            *self.effects.shape[:2], -1
        )
        change = without - class_scores(self.outputs, self.alpha)
        return change.gather(2, index.view(1, -1, 1).expand(len(change), -1, 1))[..., 0]

    def of_log_odds(self) -> Tensor:
        """(U, Q) change of log p/(1 − p), where p is the calibrated probability of the predicted class.

        It orders the units as p without them does, also where p is so close to 1 that its digits no longer tell. The
        score alone (`of_class`) does not: p falls, too, where the score of another class rises.
        """
        before = self._log_odds(self.outputs, self.predicted)
        without, many = (self.outputs + self.effects).flatten(0, 1), self.predicted.repeat(len(self.effects))
        return self._log_odds(without, many).view(self.effects.shape[:2]) - before

    def of_loss(self, loss: Loss = "cross_entropy", labels: Tensor | None = None) -> Tensor:
        """(U, Q) change of every query's loss, not linearised: its value without the unit minus its value with it.

        "cross_entropy" of the calibrated probabilities, or "squared", ½‖t − f‖². Labels default to the queries' own.
        """
        y = self.labels if labels is None else labels
        if bool((y < 0).any()):
            raise LQFError("the loss needs a label for every query; give labelled images, or y=")
        without = (self.outputs + self.effects).flatten(0, 1)
        many = y.repeat(len(self.effects))
        return self._loss(without, many, loss).view(self.effects.shape[:2]) - self._loss(self.outputs, y, loss)

    def top(self, k: int = 10, *, query: int | str | None = None, of: str = "prediction") -> Top:
        """The k strongest helpers and harmers of one prediction, or of all queries together.

        Args:
            k: how many of each, at most.
            query: number or id; None: summed over all queries.
            of: "prediction", the score of the predicted class; "loss", the cross-entropy; or the name of a class.
        """
        change = self.of_loss() if of == "loss" else self.of_class(None if of == "prediction" else of)
        total = change.sum(1) if query is None else change[:, self._query_index(query)]
        harm = total if of == "loss" else -total  # how much worse it is without the unit
        order = torch.argsort(harm, descending=True, stable=True).tolist()
        helpers = [i for i in order[:k] if harm[i] > 0]
        harmers = [i for i in order[::-1][:k] if harm[i] < 0]
        return Top(self._effects_of(helpers, total), self._effects_of(harmers, total))

    def rows(self) -> list[dict[str, Any]]:
        """One for every query and unit: by how much the score of the predicted class changes without the unit."""
        change = self.of_class()
        return [
            {"query": query, "unit": name, "change": float(change[u, q])}
            for q, query in enumerate(self.query_ids)
            for u, name in enumerate(self.units.names)
        ]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {"level": self.level, "note": self.note, "effects": self.rows()}

    def _effects_of(self, units: Sequence[int], change: Tensor) -> tuple[Effect, ...]:
        return tuple(Effect(i, self.units.names[i], float(change[i])) for i in units)

    def _loss(self, outputs: Tensor, y: Tensor, loss: Loss) -> Tensor:
        if loss == "squared":
            return 0.5 * (encode(y, len(self.classes), self.alpha) - outputs).square().sum(1)
        return torch.nn.functional.cross_entropy(self.beta * logits(outputs), y, reduction="none")

    def _log_odds(self, outputs: Tensor, k: Tensor) -> Tensor:
        scores, own = self.beta * logits(outputs.double()), k[:, None].to(outputs.device)
        return scores.gather(1, own)[:, 0] - scores.scatter(1, own, -torch.inf).logsumexp(1)

    def _class_index(self, which: int | str | Tensor) -> Tensor:
        if isinstance(which, Tensor):
            return which
        if isinstance(which, str):
            if which not in self.classes:
                raise LQFError(f"there is no class `{which}`; the model knows {', '.join(self.classes)}")
            which = self.classes.index(which)
        if not 0 <= which < len(self.classes):
            raise LQFError(f"there is no class number {which}; they go from 0 to {len(self.classes) - 1}")
        return torch.full((len(self.outputs),), which)

    def _query_index(self, query: int | str) -> int:
        if isinstance(query, str):
            if query not in self.query_ids:
                raise LQFError(f"`{query}` is not among the queries; they are {listed(self.query_ids, 5)}")
            return self.query_ids.index(query)
        if not 0 <= query < len(self.query_ids):
            raise LQFError(f"there is no query number {query}; they go from 0 to {len(self.query_ids) - 1}")
        return query
