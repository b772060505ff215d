"""How many batches of a problem have their activations kept: as many as fit into a share of the GPU's memory."""

from __future__ import annotations

from lqf.fast.linearization import FastLinearization
from lqf.objective import Problem

KEPT_SHARE = 0.4
"""Of the memory that is free before; passes in float32 and the solver's vectors need the rest."""


def keep_activations(problem: Problem, budget: int) -> int:
    """Keep the activations of the first batches within ``budget`` bytes; on a CPU, whose memory is small, of none.

    Returns:
        The number of rows whose products are free of the primal from here on.
    """
    body, inputs = problem.model.body, problem.inputs
    if not (isinstance(body, FastLinearization) and problem.targets.is_cuda):
        return 0
    held, spent = [], 0
    for rows, x in inputs.batches():
        used = body.keep(x)
        if used == 0:
            break
        held.append((rows, x))
        spent += used
        if spent + used > budget:
            break
    inputs.hold(held)
    return sum(len(rows) for rows, _ in held)


def release_activations(problem: Problem) -> None:
    """Give up what is kept."""
    if isinstance(problem.model.body, FastLinearization):
        problem.model.body.forget()
    problem.inputs.hold([])
