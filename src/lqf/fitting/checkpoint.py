"""What a long solve has reached so far, in one file that is always whole; many processes keep and read as one.

The file holds the solver's vectors and, as metadata, where it is, what problem it belongs to and a checksum of all
that. A kill at any moment leaves the previous checkpoint readable. Before a dense solve it holds the part of the kernel
that is done instead (`KernelKeeper`).
"""

from __future__ import annotations

import hashlib
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

KERNEL = "kernel"
"""The vector that is a part of a kernel, and the key of what it is a part of."""
_RARELY = 20
"""A checkpoint is written again after so many times the time it took."""


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
        began = time.monotonic()
        tensors = {k: v.detach().cpu().contiguous() for k, v in {**vectors, **self._vectors}.items()}
        meta = {"fingerprint": self._fingerprint, "state": json.dumps({**state, **self._state})}
        with atomic_file(self.path) as temporary:
            save_file(tensors, temporary, metadata={**meta, "sha256": _digest(tensors, meta)})
        self._last = time.monotonic()
        self._last += max(0.0, _RARELY * (self._last - began) - self.every)

    def load(self) -> State | None:
        """What the file holds; None where there is none; LQFError where it is damaged or of another problem."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, "pt") as file:
                meta = file.metadata() or {}
                vectors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118 - not a dict
        except (SafetensorError, OSError) as error:
            raise self._unreadable(str(error)) from error
        if meta.get("fingerprint") != self._fingerprint:
            raise LQFError(
                f"`{self.path}` belongs to a fit with other data or settings; give the same ones, or no "
                f"{naming.given('resume')}"
            )
        if meta.pop("sha256", None) != _digest(vectors, meta):
            raise self._unreadable("its checksum is not that of its content")
        return State(vectors, json.loads(meta["state"]))

    def kernel(self, key: str) -> KernelKeeper:
        """For the kernel that ``key`` stands for."""
        return KernelKeeper(self, key)

    def _unreadable(self, why: str) -> LQFError:
        return LQFError(
            f"`{self.path}` is not a readable checkpoint ({why}); delete it and fit without {naming.given('resume')}"
        )


@dataclass(frozen=True)
class KernelKeeper:
    """Keeps the part of one kernel that is done: `lqf.kernels.gram.Keeper`."""

    checkpoint: Checkpoint
    key: str

    def load(self) -> tuple[Tensor, int, int] | None:
        """The kernel of the first parts, their number, and entries of a gradient that were held at a time."""
        state = self.checkpoint.load() if self.checkpoint.resume else None
        if state is None or state.at.get(KERNEL) != self.key:
            return None
        return state.vectors[KERNEL], state.at["done"], state.at["held"]

    def save(self, kernel: Tensor, done: int, held: int) -> None:
        """If the last write is long enough ago."""
        self.checkpoint.save({KERNEL: kernel}, {KERNEL: self.key, "done": done, "held": held})


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
    if state is not None and KERNEL in state.at:  # the solve had not begun; its kernel asks for it
        state = None
    lengths = {k: len(v) for k, v in state.vectors.items()} if state else {}
    lengths, at = world.all_gather([lengths, state.at if state else None])[0]
    if at is None:
        return None
    say(f"resuming after {at['at']} passes")
    kept = state.vectors if state else {k: torch.zeros(n, dtype=dtype) for k, n in lengths.items()}
    return State({k: world.broadcast_(v) for k, v in kept.items()}, at)


def kernel_key(*about: Tensor | object) -> str:
    """Of all that a kernel comes from."""
    digest = hashlib.sha256()
    for one in about:
        digest.update(_bytes(one) if isinstance(one, Tensor) else repr(one).encode())
    return digest.hexdigest()


def _digest(tensors: Mapping[str, Tensor], meta: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for name in sorted(tensors):
        t = tensors[name]
        digest.update(f"{name} {t.dtype} {tuple(t.shape)}".encode())
        digest.update(_bytes(t))
    return digest.hexdigest()


def _bytes(t: Tensor) -> memoryview:
    return t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
