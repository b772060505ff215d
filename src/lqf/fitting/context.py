"""What everything in a fit shares: settings, device, processes, where to report and where to keep a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from lqf.fitting.checkpoint import Checkpoint
from lqf.runtime.deadline import Deadline
from lqf.runtime.distributed import ALONE, World
from lqf.runtime.memory import available_bytes
from lqf.settings import Settings
from lqf.utils.progress import SILENT, Progress


class Clock:
    """Seconds of every stage, added up by its name, and since it was made."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.perf_counter()

    def total(self) -> float:
        """Seconds since it was made."""
        return time.perf_counter() - self._began

    @contextmanager
    def stage(self, name: str, device: torch.device) -> Iterator[None]:
        """Time a stage until its device is done."""
        began = time.perf_counter()
        yield
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began


@dataclass(frozen=True)
class Context:
    """One argument instead of many.

    Attributes:
        settings: what to do.
        device: where to compute.
        world: the processes that share the images.
        progress: where to report.
        checkpoint: where to keep what a solve has reached; None: nowhere.
        clock: how long each stage took.
        deadline: when to be done.
    """

    settings: Settings
    device: torch.device
    world: World = ALONE
    progress: Progress = SILENT
    checkpoint: Checkpoint | None = None
    clock: Clock = field(default_factory=Clock, compare=False, repr=False)
    deadline: Deadline = field(default_factory=Deadline, compare=False)

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of all passes."""
        return self.settings.torch_dtype

    def timed(self, name: str) -> AbstractContextManager[None]:
        """A block that belongs to a stage of the report."""
        return self.clock.stage(name, self.device)

    def free_bytes(self) -> int:
        """Free on the device; processes on one machine share its main memory."""
        free = available_bytes(self.device)
        return free if self.device.type == "cuda" else free // self.world.local_size

    def quiet(self) -> Context:
        """The same without progress, checkpoint and clock, for fits inside a fit."""
        return Context(self.settings, self.device, self.world, deadline=self.deadline)

    def with_settings(self, **changed: Any) -> Context:
        """The same with some other settings."""
        return replace(self, settings=replace(self.settings, **changed))

    def tick(self) -> None:
        """Raise `OutOfTime` where the deadline is past; many processes, which must do the same, look between rungs."""
        if self.world.size == 1:
            self.deadline.check()
