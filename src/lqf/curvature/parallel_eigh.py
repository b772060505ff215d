"""Several eigendecompositions at a time: one of them leaves most of a GPU idle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

AT_A_TIME = 8

Task = Callable[[], list[Tensor]]


def run_parallel(tasks: Sequence[Task], costs: Sequence[float], device: torch.device) -> list[list[Tensor]]:
    """The results of all tasks in their order; on a GPU from a few threads, the longest task first, each on a stream of
    its own.
    """
    if device.type != "cuda":
        return [task() for task in tasks]
    caller = torch.cuda.current_stream(device)
    ready = caller.record_event()

    def on_a_stream(task: Task) -> list[Tensor]:
        own = torch.cuda.Stream(device)
        own.wait_event(ready)
        with torch.cuda.stream(own):
            results = task()
        own.synchronize()
        for tensor in results:
            tensor.record_stream(caller)
        return results

    longest_first = sorted(range(len(tasks)), key=lambda i: -costs[i])
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        running = {i: threads.submit(on_a_stream, tasks[i]) for i in longest_first}
        return [running[i].result() for i in range(len(tasks))]
