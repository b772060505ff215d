"""Fitted models of one network and one point, added and scaled: `0.5 * a + b`, `a - b`."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, Self

from lqf.changes.arithmetic import combined
from lqf.estimator.predictor import Predictor


class Arithmetic(Predictor):
    """Sums and multiples; the result predicts those of the outputs, and leave-one-out no longer applies to it."""

    def __add__(self, other: Any) -> Self:
        return self._sum([self, other], [1.0, 1.0]) if isinstance(other, Arithmetic) else NotImplemented

    def __sub__(self, other: Any) -> Self:
        return self._sum([self, other], [1.0, -1.0]) if isinstance(other, Arithmetic) else NotImplemented

    def __mul__(self, factor: Any) -> Self:
        return self._sum([self], [float(factor)]) if isinstance(factor, Real) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, factor: Any) -> Self:
        return self * (1 / factor) if isinstance(factor, Real) and factor != 0 else NotImplemented

    def __neg__(self) -> Self:
        return self * -1.0

    def _sum(self, models: Sequence[Predictor], weights: Sequence[float]) -> Self:
        return self.with_model(combined([m._model() for m in models], weights))
