"""Ridge strengths: of the head, and of the body's weights, all alike or stage by stage.

    ½ μ_head ‖V‖² + ½ Σ_s μ_s ‖δ_s‖²,     M = diag(μ_head, μ_1, …, μ_S).

Early stages of a network usually want to change far less than late ones, relative to how strongly they act on the
outputs; with one strength for all of them the sum is a compromise. A stage is named by what its weights' names begin
with, so that a strength means the same wherever the network is cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lqf.linear.linearize import Layout


@dataclass(frozen=True)
class Ridge:
    """Ridge strengths μ (sum form); the paper's single λ is head = body = λN.

    Attributes:
        head: of the head.
        body: of the body's weights, but for those of stages with a strength of their own.
        stages: (name, μ) of these.
    """

    head: float
    body: float
    stages: tuple[tuple[str, float], ...] = ()

    def of(self, weight: str) -> float:
        """The strength of one of the body's weights, by its name."""
        at = stage_of(weight, [name for name, _ in self.stages])
        return self.body if at is None else self.stages[at][1]

    def along(self, layout: Layout) -> float | list[float]:
        """Of every weight in turn; a number where all of them have the same."""
        return [self.of(name) for name in layout.names] if self.stages else self.body

    def is_multiple(self, of: Ridge | None) -> bool:
        """Whether the body's strengths are those of another ridge times a factor; None: of one with equal strengths."""
        mine, theirs = dict(self.stages), dict(of.stages) if of else {}
        ratios = [mine.get(n, self.body) / theirs.get(n, of.body if of else 1.0) for n in {**mine, **theirs}]
        own = self.body / (of.body if of else 1.0)
        return all(abs(ratio / own - 1) < 1e-6 for ratio in ratios)

    @property
    def lowest(self) -> float:
        """The lowest of all: what bounds the distance to the optimum."""
        return min(self.head, self.body, *(mu for _, mu in self.stages))

    def scaled(self, factor: float) -> Ridge:
        """All times a factor."""
        stages = tuple((name, factor * mu) for name, mu in self.stages)
        return Ridge(factor * self.head, factor * self.body, stages)

    def with_head(self, mu: float) -> Ridge:
        """The same for the body, with another strength of the head."""
        return Ridge(mu, self.body, self.stages)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        own = {"head": self.head, "body": self.body}
        return own | {"stages": dict(self.stages)} if self.stages else own

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Ridge:
        """The inverse of `to_dict`."""
        return cls(values["head"], values["body"], tuple(values.get("stages", {}).items()))


def stage_of(weight: str, stages: Sequence[str]) -> int | None:
    """Which of the stages a weight belongs to, by its name: the most precise; None: to none."""
    found = [i for i, name in enumerate(stages) if weight.startswith(f"{name}.") or weight == name]
    return max(found, key=lambda i: len(stages[i]), default=None)


def spread(strengths: float | Sequence[float], layout: Layout, like: Tensor) -> float | Tensor:
    """Of every entry of a flat vector (D,), from those of the weights; a number stays one."""
    if isinstance(strengths, float | int):
        return strengths
    sizes = torch.tensor(layout.sizes, device=like.device)
    return torch.tensor(strengths, dtype=like.dtype, device=like.device).repeat_interleave(sizes)
