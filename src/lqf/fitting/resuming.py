"""What a solve keeps on the way, and where a resumed one begins; many processes keep and read as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from lqf.fitting.checkpoint import Checkpoint
from lqf.linear.problem import Ridge
from lqf.runtime.distributed import World
from lqf.solvers.stochastic import StateCheckpoint

State = tuple[dict[str, Tensor], dict[str, Any]]
"""A checkpoint: the solver's vectors, and where it was."""


def keeper(checkpoint: Checkpoint | None, ridge: Ridge, world: World) -> StateCheckpoint:
    """Writes what a solver has reached; the first process does it for all."""

    def keep(vectors: dict[str, Tensor], at: int, last: bool = False) -> None:
        if checkpoint and world.rank == 0:
            checkpoint.save(vectors, {"at": at, "ridge": asdict(ridge)}, force=last)

    return keep


def resumed(
    checkpoint: Checkpoint | None, dtype: torch.dtype, world: World, say: Callable[[str], None]
) -> State | None:
    """What the checkpoint holds, read by the first process; None where there is none."""
    if checkpoint is None:
        return None
    state = world.together(checkpoint.load if world.rank == 0 else lambda: None)
    lengths = {k: len(v) for k, v in state[0].items()} if state else {}
    lengths, at = world.every([lengths, state[1] if state else None])[0]
    if at is None:
        return None
    say(f"resuming after {at['at']} passes")
    kept = state[0] if state else {k: torch.zeros(n, dtype=dtype) for k, n in lengths.items()}
    return {k: world.spread_(v) for k, v in kept.items()}, at
