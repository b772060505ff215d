"""Many processes: each holds a part of the samples, and sums over samples are added up over the processes.

`torchrun` starts the processes and tells each of them its number; `joined` makes a `World` of them. Everything between
processes is one operation, the sum of a tensor over all of them: what only one process has is a sum in which the others
are zero. All processes get the same bits, and what they compute from them is the same too as long as their processors
round alike; what decides how they go on (a plan, a ridge strength, whether to stop) is taken from the first process.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from lqf.errors import LQFError, ProcessLost

if TYPE_CHECKING:
    import torch
    from torch import Tensor

T = TypeVar("T")
PATIENCE = timedelta(minutes=30)
"""How long a process waits for the others, which may have larger images to decode."""
_REASON, _HEARD = "lqf/reason", "lqf/heard"
_LOOK_SECONDS, _ANSWER_SECONDS = 0.5, 2.0


@dataclass(frozen=True)
class World:
    """The processes of a fit; the default is one process, for which nothing here costs anything.

    Attributes:
        rank: the number of this process, from 0.
        size: how many there are.
        local_size: how many of them share this machine's memory.
        device: where this process computes; None: anywhere.
    """

    rank: int = 0
    size: int = 1
    local_size: int = 1
    device: torch.device | None = None
    _store: Any = field(default=None, repr=False, compare=False)

    def share(self, n: int) -> range:
        """This process's part of n things, consecutive ones."""
        return range(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def deal(self, costs: Sequence[float]) -> list[int]:
        """Which process does each of several jobs: the dearest first, each to the process with least to do."""
        owner, load = [0] * len(costs), [0.0] * self.size
        for job in sorted(range(len(costs)), key=lambda k: -costs[k]):
            owner[job] = load.index(min(load))
            load[owner[job]] += costs[job]
        return owner

    def all_reduce_(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, written into ``tensor``."""
        if self.size == 1:
            return tensor
        import torch.distributed as dist

        there = tensor.to(self.device).contiguous()
        try:
            self._wait(dist.all_reduce(there, async_op=True))
        except RuntimeError as error:  # the connection to a process that died, or the time limit
            raise self.lost() from error
        return tensor if there is tensor else tensor.copy_(there)

    def broadcast_(self, tensor: Tensor) -> Tensor:
        """The first process's values, written into ``tensor`` everywhere."""
        return self.all_reduce_(tensor if self.rank == 0 else tensor.zero_())

    def agree(self, x: float) -> float:
        """The first process's number."""
        if self.size == 1:
            return x
        import torch

        return float(self.broadcast_(torch.tensor([x], dtype=torch.float64)))

    def all_gather(self, value: Any) -> list[Any]:
        """What each process gave, a JSON value; known to all."""
        if self.size == 1:
            return [value]
        import torch

        text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self.rank] = len(text)
        ends = self.all_reduce_(lengths).cumsum(0).tolist()
        whole = torch.zeros(ends[-1], dtype=torch.uint8)
        whole[ends[self.rank] - len(text) : ends[self.rank]] = text
        content = self.all_reduce_(whole).numpy().tobytes()
        return [json.loads(content[a:b]) for a, b in zip([0, *ends], ends, strict=False)]

    def together(self, make: Callable[[], T]) -> T:
        """``make()`` on every process; where it refuses on one, all of them refuse with that sentence."""
        if self.size == 1:
            return make()
        value: T | None = None
        sentence = ""
        try:
            value = make()
        except LQFError as error:
            sentence = str(error)
        for said in self.all_gather(sentence):
            if said:
                raise LQFError(said)
        return value  # type: ignore[return-value]

    def first(self, make: Callable[[], Any]) -> Any:
        """``make()``, a JSON value, on the first process only; known to all. For what depends on a clock or a file."""
        if self.size == 1:
            return make()
        return self.all_gather(self.together(lambda: make() if self.rank == 0 else None))[0]

    def same(self, what: str, value: Any) -> None:
        """Refuse where the processes were given different things."""
        if self.size > 1:
            digest = hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
            if len(set(self.all_gather(digest))) > 1:
                raise LQFError(f"the {self.size} processes were not given the same {what}")

    def reason(self) -> str:
        """Why another process ended, if it said so."""
        if self._store is None:
            return ""
        try:
            return self._store.get(_REASON).decode() if self._store.check([_REASON]) else ""
        except RuntimeError:  # the store went with the process that kept it
            return ""

    def leave(self, error: BaseException) -> None:
        """Tell the others why this process ends before its time."""
        if self._store is None or isinstance(error, KeyboardInterrupt | ProcessLost):
            return
        try:
            what = str(error) if isinstance(error, LQFError) else f"{type(error).__name__}: {error}"
            self._store.set(_REASON, f"process {self.rank + 1} of {self.size} stopped ({what})")
        except RuntimeError:
            pass

    def _wait(self, work: Any) -> None:
        """Wait in Python, so that Ctrl-C and SIGTERM are heard, and look from time to time whether another gave up."""
        pause, looked = 1e-5, time.monotonic()
        while not work.is_completed():
            time.sleep(pause)
            pause = min(2 * pause, 1e-3)
            if time.monotonic() - looked > _LOOK_SECONDS:
                looked = time.monotonic()
                if self.reason():
                    raise self.lost()
        work.wait()

    def lost(self) -> ProcessLost:
        """The news of the end of another process, to be raised."""
        # the launcher ends the processes that are left; the sentence and the last checkpoint should come first
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        why = self.reason() or f"another of the {self.size} processes ended without a word"
        return ProcessLost(why, aloud=not self.first_speaks())

    def first_speaks(self) -> bool:
        """Whether the first process knows that this is the end and will say so; only the second process asks."""
        if self._store is None:
            return True
        try:
            if self.rank == 0:
                self._store.set(_HEARD, "")
            until = time.monotonic() + _ANSWER_SECONDS
            while self.rank == 1 and not self._store.check([_HEARD]):
                if time.monotonic() > until:
                    return False
                time.sleep(0.05)
        except RuntimeError:  # the store went with the process that kept it
            return False
        return True


ALONE = World()


def launched() -> tuple[int, int]:
    """This process's number and how many `torchrun` started; (0, 1) without it."""
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        return 0, 1
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


@contextmanager
def joined(device: str = "auto") -> Iterator[World]:
    """The world of the processes that `torchrun` started, NCCL between GPUs and gloo otherwise."""
    world = _join(device)
    try:
        yield world
    except BaseException as error:
        world.leave(error)
        if isinstance(error, KeyboardInterrupt) and (world.reason() or not world.first_speaks()):
            raise world.lost() from error  # the launcher's SIGTERM came before the news
        raise
    if world.size > 1:
        import torch.distributed as dist

        dist.destroy_process_group()


def _join(device: str) -> World:
    rank, size = launched()
    if size == 1:
        return ALONE
    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    place = own_device(device, size)
    store, _, _ = next(iter(rendezvous("env://", timeout=PATIENCE)))
    if place.type == "cuda":
        torch.cuda.set_device(place)
    backend = "nccl" if place.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
    return World(rank, size, int(os.environ.get("LOCAL_WORLD_SIZE", "1")), place, store)


def own_device(name: str, size: int) -> torch.device:
    """`cuda` is the GPU with this process's number on its machine."""
    import torch

    from lqf.runtime.device import resolve_device

    device = resolve_device(name)
    if device.type != "cuda":
        return device
    if ":" in name:
        raise LQFError(f"device `{name}` is one GPU and {size} processes were started; give `auto` or `cuda`")
    local, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if local >= gpus:
        raise LQFError(f"more processes than GPUs were started on a machine with {gpus}; give --nproc-per-node={gpus}")
    return torch.device("cuda", local)
