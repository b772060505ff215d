"""How many rows fit into the memory of a GPU at a time."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from lqf.linear.inputs import Inputs
from lqf.linear.layers import NormLayer, Tape
from lqf.linear.linearize import Linearization
from lqf.runtime.memory import available_bytes

MOST = 128
"""Rows beyond which a GPU gets no faster."""
CPU_ROWS = 16
"""Rows of a batch on a CPU."""
COPIES = 3
"""A pass holds what the forward pass saves, the gradients on the way back, and for K-FAC those of several draws."""


def saved_bytes(body: Linearization, row: Tensor) -> int:
    """What the forward pass of one row (1, …) keeps for the way back, without the weights."""
    kept: dict[int, int] = {}
    given = row.untyped_storage().data_ptr()  # perhaps a part of many rows
    own = {w.untyped_storage().data_ptr() for w in body.module.parameters()}

    def note(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = row.nbytes if storage.data_ptr() == given else storage.nbytes()
        return t

    with torch.enable_grad(), saved_tensors_hooks(note, lambda t: t):
        body.call({n: w.requires_grad_() for n, w in body.weights().items()}, row)
    return sum(kept.values())


def usual_rows(device: torch.device) -> int:
    """Rows of a batch for passes that save nothing for a way back."""
    return MOST if device.type == "cuda" else CPU_ROWS


def pass_bytes(tape: Tape, row: Tensor) -> tuple[int, int, int]:
    """Of one row (1, …): what the pass forward saves, all layers' outputs, and the largest layer's input patches."""
    _, records = tape.record(row)
    outputs = sum(r.y.numel() * r.y.element_size() for r in records)
    patches = [r.layer.patches(r.a) for r in records if not isinstance(r.layer, NormLayer)]
    return saved_bytes(tape.body, row), outputs, max((a.numel() * a.element_size() for a in patches), default=0)


def rows_that_fit(body: Linearization, row: Tensor, free: int, most: int = MOST) -> int:
    """A power of two: half of the ``free`` bytes may be filled."""
    fit = free // 2 // max(1, COPIES * saved_bytes(body, row))
    return max(1, min(most, 1 << max(0, fit.bit_length() - 1)))


def in_fitting_batches(inputs: Inputs, body: Linearization) -> Inputs:
    """The same rows, on a GPU as many at a time as fit into its memory."""
    if inputs.device.type != "cuda":
        return inputs
    return inputs.in_batches(rows_that_fit(body, inputs.example(1), available_bytes(inputs.device)))


def even_rows(total: int, most: int) -> int:
    """Rows per batch when ``total`` rows are cut into equal batches of at most ``most``, a multiple of 8."""
    batches = -(-total // most)
    return min(most, 8 * -(-total // (8 * batches)))
