"""A fixed sequence of GPU kernels, recorded once and replayed: what is left of a pass when Python is taken out of it.

A pass through a network launches a thousand small kernels, and a fast GPU waits for most of them to be asked for. A
CUDA graph asks for all of them at once. Nothing is compiled: recording costs about three passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Passes = Callable[..., tuple[Tensor, ...]]


class Replayed:
    """``function`` of tensors of fixed shapes, recorded at its first call on a GPU; elsewhere it just runs.

    The tensors returned are overwritten by the next call: use or copy them before.

    Args:
        function: of tensors, giving a tuple of tensors; no branches on values, no transfers to the host.
        say: told why, where recording fails; the function then runs as it is.
    """

    def __init__(self, function: Passes, say: Callable[[str], None] = lambda _: None):
        self.function, self.say = function, say
        self._recorded: dict[tuple[torch.Size, ...], Recording | None] = {}

    def __call__(self, *args: Tensor) -> tuple[Tensor, ...]:
        """The function's value."""
        if not args[0].is_cuda:
            return self.function(*args)
        shapes = tuple(a.shape for a in args)
        if shapes not in self._recorded:
            self._recorded[shapes] = self._record(args)
        recording = self._recorded[shapes]
        return self.function(*args) if recording is None else recording(args)

    def _record(self, args: tuple[Tensor, ...]) -> Recording | None:
        try:
            return Recording(self.function, tuple(a.clone(memory_format=torch.preserve_format) for a in args))
        except RuntimeError as error:
            torch.cuda.synchronize()
            reason = str(error).strip().split("\n")[0][:200]
            self.say(f"the passes cannot be recorded as a CUDA graph ({reason}); continuing without it")
            return None


class Recording:
    """``function(*inputs)`` as a CUDA graph; a call copies new values into these very ``inputs`` and replays it.

    Args:
        function: as in `Replayed`.
        inputs: whose memory the graph reads.
        pool: memory that is shared with other graphs, none of which runs beside this one.
        warm_up: passes before the recording, in which libraries allocate their workspaces.
    """

    def __init__(self, function: Passes, inputs: tuple[Tensor, ...], *, pool: Any = None, warm_up: int = 2):
        self.inputs = inputs
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(warm_up):
                function(*self.inputs)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.outputs = function(*self.inputs)

    def __call__(self, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The function's value at ``args``, until the next call."""
        for mine, given in zip(self.inputs, args, strict=True):
            mine.copy_(given)
        self.graph.replay()
        return self.outputs
