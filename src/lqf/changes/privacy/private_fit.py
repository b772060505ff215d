"""A private model straight from a fit: what is chosen by itself is chosen without the images, or not at all.

The fit that comes first makes features and nothing that is released; `lqf.changes.privacy.release` then solves the
bounded problem and adds the noise. The model without noise is never handed out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lqf.changes.privacy.gaussian import check_budget
from lqf.changes.privacy.release import Budget, check_linear, check_weights
from lqf.data import Samples
from lqf.errors import LQFError
from lqf.fitting import Model
from lqf.fitting.select_pooling import NoAveragePool
from lqf.runtime.distributed import World
from lqf.settings import Settings
from lqf.utils import naming

SOLVERS = {"auto": "head", "head": "head", "dense": "dense"}
"""That a private fit can have; without a choice, that of the head, which needs the fewest images."""


def budget_of(epsilon: float | None, delta: float | None, settings: Settings) -> Budget | None:
    """What a fit may give away; None where it is not to be private. The dense solver's release is the whole model."""
    if epsilon is None and delta is None:
        return None
    if epsilon is None or delta is None:
        given, missing = ("epsilon", "delta") if delta is None else ("delta", "epsilon")
        raise LQFError(f"{naming.name(given)} was given without {naming.name(missing)}; a private fit needs both")
    check_budget(epsilon, delta)
    return Budget(epsilon, delta, "all" if settings.solver == "dense" else "head")


def private_settings(settings: Settings, budget: Budget) -> Settings:
    """Settings of the fit before the noise: where they leave a choice to the images, one that does not ask them."""
    if settings.solver not in SOLVERS or settings.moves:
        raise LQFError(
            f"a private fit has {naming.name('solver')} `head` or `dense` and leaves the network as it is: only these "
            "have a proof"
        )
    if settings.climbs and (settings.effort != "auto" or settings.time_limit is not None):
        raise LQFError(
            f"a private fit solves one problem; leave out {naming.name('effort')} and {naming.name('time_limit')}"
        )
    if budget.part == "all":
        settings = replace(settings, dtype="float64")  # as the proof needs it
        check_linear("dense", settings)
    return replace(
        settings,
        solver=SOLVERS[settings.solver],
        views="none" if settings.views == "auto" else settings.views,
    )


def fit_without_choice(fit: Callable[[Settings], Model], settings: Settings) -> Model:
    """A fit in which no image chooses the pooling."""
    if settings.pooling != "auto":
        return fit(settings)
    try:
        return fit(replace(settings, pooling="avg"))
    except NoAveragePool:
        return fit(settings)  # there is nothing to choose from


def check_fit(budget: Budget, settings: Settings, samples: Samples, world: World, *, constrained: bool) -> None:
    """Refuse what the proof does not cover, before anything is fitted."""
    if world.size > 1:
        raise LQFError("a private fit runs in one process; start it without torchrun")
    if constrained:
        raise LQFError("constraints read the images without privacy; give them or a budget of privacy, not both")
    check_weights(samples.weights[samples.weights > 0], settings, budget)
