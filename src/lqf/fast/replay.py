"""A fixed sequence of GPU kernels, recorded once and replayed: what is left of a pass when Python is taken out of it.

A pass through a network launches a thousand small kernels, and a fast GPU waits for most of them to be asked for. A
CUDA graph asks for all of them at once. Nothing is compiled: recording costs about three passes.
"""

from __future__ import annotations

from collections.abc import Callable

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
        self._recorded: dict[tuple[torch.Size, ...], _Recording | None] = {}

    def __call__(self, *args: Tensor) -> tuple[Tensor, ...]:
        """The function's value."""
        if not args[0].is_cuda:
            return self.function(*args)
        shapes = tuple(a.shape for a in args)
        if shapes not in self._recorded:
            self._recorded[shapes] = self._record(args)
        recording = self._recorded[shapes]
        return self.function(*args) if recording is None else recording(args)

    def _record(self, args: tuple[Tensor, ...]) -> _Recording | None:
        try:
            return _Recording(self.function, args)
        except RuntimeError as error:
            torch.cuda.synchronize()
            reason = str(error).strip().split("\n")[0][:200]
            self.say(f"the passes cannot be recorded as a CUDA graph ({reason}); continuing without it")
            return None


class _Recording:
    def __init__(self, function: Passes, args: tuple[Tensor, ...]):
        self.inputs = tuple(a.clone(memory_format=torch.preserve_format) for a in args)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries allocate their workspaces outside of the recording
            for _ in range(2):
                function(*self.inputs)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.outputs = function(*self.inputs)

    def __call__(self, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        for mine, given in zip(self.inputs, args, strict=True):
            mine.copy_(given)
        self.graph.replay()
        return self.outputs
