"""How exact a number is: every result that stands for a solve says so.

- ``exact``: from a factorisation, to about 1e-10 of its size.
- ``solved``: by iteration; a certificate has the measured residual.
- ``estimated``: by K-FAC, by samples or by refits of folds; with a standard error where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from torch import Tensor

Level = Literal["exact", "solved", "estimated"]


def least_exact(levels: Iterable[Level]) -> Level:
    """The level of what several answers were made into."""
    return max(levels, key=get_args(Level).index)


@dataclass(frozen=True, repr=False)
class Answer:
    """A result with its exactness label: the base of all that carry one.

    Attributes:
        value: the numbers, on the CPU.
        level: how exact they are.
        note: what stands behind the level.
        uncertainty: their standard errors; None where there are none.
    """

    value: Tensor
    level: Level
    note: str = ""
    uncertainty: Tensor | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._about()}; {self.level})"

    def _about(self) -> str:
        """What it says, in a few words."""
        return " × ".join(map(str, self.value.shape))


def how_sure(gap: float, bound: float | None, shown: Callable[[float], str]) -> str:
    """Of a distance ``gap`` that is at most ``bound``: whether it is an estimate; nothing where no bound is known."""
    if bound is None:
        return ""
    return " (proven)" if bound <= gap else f" (estimated; at most {shown(bound)})"
