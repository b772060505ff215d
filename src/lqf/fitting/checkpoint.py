"""What a long solve has reached so far, in one file that is always whole; many processes keep and read as one.

The file holds the solver's vectors and, as metadata, where it is and what problem it belongs to. A kill at any moment
leaves the previous checkpoint readable.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lqf.errors import LQFError
from lqf.linear.ridge import Ridge
from lqf.runtime.distributed import World
from lqf.solvers.stochastic import StateCheckpoint
from lqf.utils import naming
from lqf.utils.files import atomic_file


@dataclass(frozen=True)
class State:
    """What a checkpoint holds.

    Attributes:
        vectors: of the solver, and of a network that was moved.
        at: passes or epochs made, ridge strengths, and what was chosen before the solve began.
    """

    vectors: dict[str, Tensor]
    at: dict[str, Any]

    @property
    def passes(self) -> int:
        """Passes over the data, or epochs, that were made."""
        return int(self.at["at"])

    @property
    def ridge(self) -> Ridge:
        """Ridge strengths of the problem that was being solved."""
        return Ridge.from_dict(self.at["ridge"])

    @property
    def views(self) -> str | None:
        """Views that were chosen for it."""
        return self.at.get("views")


class Checkpoint:
    """One checkpoint file of one problem.

    Args:
        path: the file.
        fingerprint: settings and data that decide the problem; resuming another problem is refused.
        every: seconds between two writes, at least.
        resume: whether a fit continues from what the file holds.
    """

    def __init__(self, path: Path, fingerprint: Mapping[str, Any], every: float = 10.0, *, resume: bool = False):
        self.path, self.every, self.resume = path, every, resume
        self._fingerprint = json.dumps(fingerprint, sort_keys=True)
        self._last = time.monotonic()
        self._vectors: dict[str, Tensor] = {}
        self._state: dict[str, Any] = {}

    def with_more(self, vectors: Mapping[str, Tensor], state: Mapping[str, Any]) -> Checkpoint:
        """The same file; these are written beside whatever is saved."""
        other = copy(self)
        other._vectors, other._state = {**self._vectors, **vectors}, {**self._state, **state}
        return other

    def save(self, vectors: Mapping[str, Tensor], state: Mapping[str, Any], force: bool = False) -> None:
        """Write if the last write is long enough ago."""
        if not force and time.monotonic() - self._last < self.every:
            return
        self._last = time.monotonic()
        tensors = {k: v.detach().cpu().contiguous() for k, v in {**vectors, **self._vectors}.items()}
        meta = {"fingerprint": self._fingerprint, "state": json.dumps({**state, **self._state})}
        with atomic_file(self.path) as temporary:
            save_file(tensors, temporary, metadata=meta)

    def load(self) -> State | None:
        """What the file holds; None where there is none; LQFError where it is damaged or of another problem."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, "pt") as file:
                meta = file.metadata() or {}
                vectors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118 - not a dict
        except (SafetensorError, OSError) as error:
            raise LQFError(
                f"`{self.path}` is not a readable checkpoint ({error}); delete it and fit without "
                f"{naming.given('resume')}"
            ) from error
        if meta.get("fingerprint") != self._fingerprint:
            raise LQFError(
                f"`{self.path}` belongs to a fit with other data or settings; give the same ones, or no "
                f"{naming.given('resume')}"
            )
        return State(vectors, json.loads(meta["state"]))


def keeper(checkpoint: Checkpoint | None, ridge: Ridge, world: World) -> StateCheckpoint:
    """Writes what a solver has reached; the first process does it for all."""

    def keep(vectors: dict[str, Tensor], at: int, last: bool = False) -> None:
        if checkpoint and world.rank == 0:
            checkpoint.save(vectors, {"at": at, "ridge": ridge.to_dict()}, force=last)

    return keep


def read_state(
    checkpoint: Checkpoint | None, dtype: torch.dtype, world: World, say: Callable[[str], None]
) -> State | None:
    """What the checkpoint holds, read by the first process for all; None where there is nothing to continue."""
    if checkpoint is None or not checkpoint.resume:
        return None
    state = world.together(checkpoint.load if world.rank == 0 else lambda: None)
    lengths = {k: len(v) for k, v in state.vectors.items()} if state else {}
    lengths, at = world.all_gather([lengths, state.at if state else None])[0]
    if at is None:
        return None
    say(f"resuming after {at['at']} passes")
    kept = state.vectors if state else {k: torch.zeros(n, dtype=dtype) for k, n in lengths.items()}
    return State({k: world.broadcast_(v) for k, v in kept.items()}, at)
