"""Counts sweeps over all training rows, by which a problem is multiplied, measured or encoded; and allows more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from lqf.analysis import by_iteration
from lqf.linear.inputs import Inputs


class Passes:
    """How many sweeps were made over as many rows as the training set has; forward and backward are one each."""

    def __init__(self, patch: pytest.MonkeyPatch, rows: int):
        self.sweeps, self.rows = 0, rows
        batches = Inputs.batches

        def counted(inputs: Inputs) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
            self.sweeps += len(inputs) == self.rows
            return batches(inputs)

        patch.setattr(Inputs, "batches", counted)

    def of(self, work: object) -> int:
        """Sweeps of a call."""
        before = self.sweeps
        work()  # type: ignore[operator]
        return self.sweeps - before


def closely(patch: pytest.MonkeyPatch, tol: float, share: float = 10.0) -> None:
    """Let answers by iteration be so accurate, by so many times the passes of the fit."""
    for name in ("SCORES", "WHAT_IF"):
        patch.setattr(by_iteration, name, replace(getattr(by_iteration, name), tol=tol, share=share))
