"""A fixed sequence of GPU kernels, recorded once and replayed: what is left of a pass when Python is taken out of it.

A pass through a network launches a thousand small kernels, and a fast GPU waits for most of them to be asked for. A
CUDA graph asks for all of them at once. Nothing is compiled: recording costs about three passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from lqf.runtime.precision import tf32

Passes = Callable[..., tuple[Tensor, ...]]
Bound = Callable[[], tuple[Tensor, ...]]
"""A function whose arguments are fixed tensors."""
Record = Callable[[Bound], Bound]
"""Makes of a bound function one that repeats it on what its tensors then hold."""


class Replayed:
    """``function`` of tensors of fixed shapes, recorded at its first call on a GPU; elsewhere it just runs.

    The tensors returned are overwritten by the next call: use or copy them before.

    Args:
        function: of tensors, giving a tuple of tensors; no branches on values, no transfers to the host.
        say: called with the reason where recording fails; the function then runs as it is.
        changes: other tensors that the function changes in place. It runs twice before it is recorded, and that leaves
            no trace, neither in them nor in the random numbers.
        record: what records; default: `cuda_graph` on a GPU.
    """

    def __init__(
        self,
        function: Passes,
        say: Callable[[str], None] = lambda _: None,
        *,
        changes: Sequence[Tensor] = (),
        record: Record | None = None,
    ):
        self.function, self.say, self.changes, self.record = function, say, changes, record
        self._recorded: dict[Any, _Recording | None] = {}  # by shapes and TF32, which a recording does not change

    def __call__(self, *args: Tensor) -> tuple[Tensor, ...]:
        """The function's value."""
        if self.record is None and not args[0].is_cuda:
            return self.function(*args)
        kind = (*(a.shape for a in args), *tf32())
        if kind not in self._recorded:
            self._recorded[kind] = self._record(args)
        recording = self._recorded[kind]
        return self.function(*args) if recording is None else recording(args)

    def _record(self, args: tuple[Tensor, ...]) -> _Recording | None:
        try:
            return _Recording(self.function, args, self.changes, self.record or cuda_graph)
        except RuntimeError as error:
            if args[0].is_cuda:
                torch.cuda.synchronize(args[0].device)
            reason = str(error).strip().split("\n")[0][:200]
            self.say(f"the passes cannot be recorded as a CUDA graph ({reason}); continuing without it")
            return None


class _Recording:
    def __init__(self, function: Passes, args: tuple[Tensor, ...], changes: Sequence[Tensor], record: Record):
        inputs = self.inputs = tuple(a.clone(memory_format=torch.preserve_format) for a in args)
        with unchanged(changes, args[0].device), aside(args[0].device):
            for _ in range(2):  # libraries choose kernels and allocate their workspaces outside of the recording
                function(*inputs)
        self.replay = record(lambda: function(*inputs))

    def __call__(self, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        for mine, given in zip(self.inputs, args, strict=True):
            mine.copy_(given)
        return self.replay()


def cuda_graph(function: Bound, pool: Any = None) -> Bound:
    """Record the kernels of one call, without running them; each replay fills the same outputs.

    ``pool`` is memory shared with other recordings, none of which runs at the same time.
    """
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph, pool=pool):
            outputs = function()
    except RuntimeError:
        torch.cuda.set_stream(stream)  # a recording that fails leaves its own stream behind
        raise

    def replay() -> tuple[Tensor, ...]:
        graph.replay()
        return outputs

    return replay


@contextmanager
def unchanged(tensors: Sequence[Tensor], device: torch.device) -> Iterator[None]:
    """Afterwards the tensors, in place, and the random numbers to come are what they were."""
    before = [t.detach().clone() for t in tensors]
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        with torch.no_grad():
            for t, old in zip(tensors, before, strict=True):
                t.copy_(old)


@contextmanager
def aside(device: torch.device) -> Iterator[None]:
    """On a stream of its own, where there are streams."""
    if device.type != "cuda":
        yield
        return
    side, own = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    side.wait_stream(own)
    try:
        with torch.cuda.stream(side):
            yield
    finally:
        own.wait_stream(side)
