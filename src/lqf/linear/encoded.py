"""Images with their features: rows whose outputs are asked about."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lqf.linear.inputs import Inputs


@dataclass(frozen=True)
class EncodedInputs:
    """Rows of a network, and what it makes of them.

    Attributes:
        inputs: the rows.
        features: (rows, p) z of each.
        fold: (rows,) which head of the linear model each row uses; None: the mean of all.
    """

    inputs: Inputs
    features: Tensor
    fold: Tensor | None = None
