"""What a recording depends on, it is known by."""

import torch
from torch import Tensor

from lqf.fast.replay import Bound, Replayed
from lqf.runtime.precision import matmul_precision, tf32


def test_another_shape_or_precision_is_recorded_anew() -> None:
    made: list[tuple[bool, bool]] = []

    def record(function: Bound) -> Bound:
        made.append(tf32())
        return function

    def double(x: Tensor) -> tuple[Tensor]:
        return (2 * x,)

    passes = Replayed(double, record=record)
    for fast in (True, False, True):
        for n in (3, 3, 4):
            with matmul_precision(fast):
                assert torch.equal(passes(torch.ones(n))[0], 2 * torch.ones(n))
    assert made == [(True, True)] * 2 + [(False, False)] * 2
