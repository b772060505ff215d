"""One pass over rows: a function of every batch, its results collected by row number, over all processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from lqf.linear.inputs import Inputs
from lqf.linear.linearize import Linearization
from lqf.linear.model import LinearModel
from lqf.runtime.distributed import ALONE, World
from lqf.runtime.precision import matmul_precision
from lqf.utils.progress import SILENT, Progress


def sweep(
    batches: Iterable[tuple[Tensor, Tensor]],
    n: int,
    function: Callable[[Tensor, Tensor], Tensor],
    *,
    world: World = ALONE,
    progress: Progress = SILENT,
    stage: tuple[str, int] = ("", 0),
    collect: torch.device | None = None,
    like: Tensor | None = None,
) -> Tensor:
    """(n, …) results of ``function`` (row numbers, inputs), without TF32.

    Args:
        batches: (row numbers, inputs) of this process's rows.
        n: rows of all processes.
        function: (B,) row numbers, inputs -> (B, …).
        world: the processes that share the rows; each gets all results.
        progress: where to report.
        stage: its name, and the rows of this process; no name: nothing is reported.
        collect: where the results lie; default: where they are made.
        like: one result (…), for a process that may have no rows.
    """
    out = None if like is None else torch.zeros(n, *like.shape, dtype=like.dtype, device=collect or like.device)
    name, total = stage
    with (progress if name else SILENT).stage(name, total=total, unit="images") as bar:
        for rows, x in batches:
            with matmul_precision(fast=False):
                y = function(rows, x)
            if out is None:
                out = torch.zeros(n, *y.shape[1:], dtype=y.dtype, device=collect or y.device)
            out[rows.to(out.device)] = y.to(out.device)
            bar.advance(len(rows))
    assert out is not None, "a process without rows"
    return world.all_reduce_(out)


def features(
    body: Linearization,
    inputs: Inputs,
    *,
    progress: Progress = SILENT,
    name: str = "features",
    collect: torch.device | None = None,
) -> Tensor:
    """z (rows, p) of all rows."""
    return sweep(
        inputs.batches(),
        len(inputs),
        lambda _, x: body.value(x),
        world=inputs.world,
        progress=progress,
        stage=(name, inputs.own_rows),
        collect=collect,
    )


def outputs(
    model: LinearModel,
    inputs: Inputs,
    delta: Tensor,
    known: Tensor | None = None,
    *,
    progress: Progress = SILENT,
    name: str = "",
    collect: torch.device | None = None,
) -> Tensor:
    """f (rows, C) of all rows through the mean of the heads; ``known``: their features (rows, p)."""

    def apply(rows: Tensor, x: Tensor) -> Tensor:
        if known is not None:
            z = known[rows.to(known.device)].to(x)
            return model.base(z) + model.jvp_at(z, x, delta)
        z, jd = model.jvp(x, delta)
        return model.base(z) + jd

    return sweep(
        inputs.batches(),
        len(inputs),
        apply,
        world=inputs.world,
        progress=progress,
        stage=(name, inputs.own_rows),
        collect=collect,
        like=delta.new_zeros(model.n_outputs),
    )
