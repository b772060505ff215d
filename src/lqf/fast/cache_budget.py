"""How many batches of a problem have their activations kept: as many as fit into a share of the GPU's memory."""

from __future__ import annotations

from torch import Tensor

from lqf.fast.linearization import FastLinearization
from lqf.linear.batch import COPIES, saved_bytes
from lqf.linear.problem import QuadraticProblem
from lqf.runtime.memory import available_bytes

KEPT_SHARE = 0.6
"""At most this share of the memory that was free before."""


def room_for(free: int, pass_bytes: int) -> int:
    """Bytes for activations when so many are free and an exact pass over a batch saves ``pass_bytes``."""
    return max(0, min(int(KEPT_SHARE * free), free - COPIES * pass_bytes))


def keep_activations(problem: QuadraticProblem, exact: QuadraticProblem) -> int:
    """Keep the activations of the first batches; on a CPU, whose memory is small, of none.

    Args:
        problem: with the body that products are made with.
        exact: the one for true residuals, whose passes must still find room.

    Returns:
        The number of rows whose products are free of the primal from here on.
    """
    if not problem.targets.is_cuda:
        return 0
    saved = saved_bytes(exact.model.body, exact.inputs.example(1)) * exact.inputs.batch_size
    return keep_within(problem, room_for(available_bytes(problem.targets.device), saved))


def keep_within(problem: QuadraticProblem, budget: int) -> int:
    """The same within so many bytes, on any device."""
    body, inputs = problem.model.body, problem.inputs
    held: list[tuple[Tensor, Tensor]] = []
    spent = used = 0
    if isinstance(body, FastLinearization) and budget > 0:
        for rows, x in inputs.batches():
            if spent + used > budget:  # the next takes as much as the one before
                break
            used = body.keep(x)
            if used == 0:
                break
            if used > budget:  # the first one shows what each takes
                body.forget()
                break
            held.append((rows, x))
            spent += used
    inputs.hold(held)
    return sum(len(rows) for rows, _ in held)


def release_activations(problem: QuadraticProblem) -> None:
    """Give up what is kept."""
    if isinstance(problem.model.body, FastLinearization):
        problem.model.body.forget()
    problem.inputs.hold([])
