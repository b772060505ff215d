"""How informative every training image is, and what becomes of the test error without the most or least informative.

Three kinds of cells, so that none takes long: the ranking with the errors that follow it; errors of random images,
which need no ranking; and those of a ranking that is made again as images leave. Where the solution is exact the other
two cost nothing and are part of the first.
"""

from __future__ import annotations

from typing import Any

import torch

from lqf.analysis.elimination import STEPS
from lqf.data import Images, select_images
from lqf.settings import Settings
from lqf_paper.runner.held_out import held_out
from lqf_paper.runner.registry import defaults, work
from lqf_paper.runner.workspace import Task
from lqf_paper.studies.kfac_information import PROBES, kfac_information
from lqf_paper.studies.removal import FITTED, PROBED, ByKernels, random_orders, removal

VALIDATION = 0.25
"""Share of every class's training images on which information is measured; the model is not fitted on them."""
MOST_PAIRS = 4000
"""(Image, output) pairs up to which the kernel of all of them is made and everything is exact."""


def parted(task: Task, seed: int) -> tuple[Images, Images]:
    """Training images to fit on, and those held out of them."""
    apart = held_out(task.train.samples.labels, VALIDATION, seed)
    return select_images(task.train, ~apart), select_images(task.train, apart)


def solver_for(task: Task, seed: int = 0) -> str:
    """Exact ("dense") where there are few (image, output) pairs, else "pcg"; two classes have one output."""
    images, outputs = len(parted(task, seed)[0]), len(task.classes) if len(task.classes) > 2 else 1
    return "dense" if images * outputs <= MOST_PAIRS else "pcg"


@work("informativeness", version=3, validation=VALIDATION, **PROBED)
@defaults(Settings, **FITTED)
def informativeness(
    task: Task, *, solver: str, shares: list[float], draws: int, settings: dict[str, Any], seed: int = 0
) -> dict[str, Any]:
    """F-SI of every training image on held-out ones, and test errors without the most or the least informative.

    Images leave in the order of their information in the presence of all, as in the paper; `again`, where the solution
    is exact, measures information anew as images leave. With ``draws`` there are errors of random orders, too.
    """
    images, validation = parted(task, seed)
    model = removal(task, images, solver, {"seed": seed, **settings})
    information = model.information(validation)
    order, shares = information.values.argsort(stable=True), [0.0, *shares]
    orders = {"least": order, "most": order.flip(0)}
    again = None
    if isinstance(model, ByKernels):
        again = {w: model.errors(model.leaving(validation, most=w == "most"), shares) for w in orders}
    curves = {way: model.errors(o, shares) for way, o in orders.items()}
    return {
        "test_error": curves["least"][0],
        "n": len(images),
        "validation": len(validation),
        "level": information.level,
        "note": information.note,
        "ids": list(model.units.ids),
        "information": information.values.tolist(),
        "standard_error": _listed(information.standard_error),
        "shares": shares,
        **curves,
        "random": [model.errors(o, shares) for o in random_orders(len(images), draws, seed)],
        "again": again,
        **model.solve_report(),
    }


@work("removal at random", validation=VALIDATION)
@defaults(Settings, **FITTED)
def removal_at_random(
    task: Task, *, solver: str, shares: list[float], draws: int, settings: dict[str, Any], seed: int = 0
) -> dict[str, Any]:
    """Test errors without random training images, in ``draws`` orders; the model is that of `informativeness`."""
    images, _ = parted(task, seed)
    model, shares = removal(task, images, solver, {"seed": seed, **settings}), [0.0, *shares]
    random = [model.errors(order, shares) for order in random_orders(len(images), draws, seed)]
    return {"test_error": random[0][0], "n": len(images), "shares": shares, "random": random, **model.solve_report()}


@work("removal as measured again", validation=VALIDATION, steps=STEPS, **PROBED)
@defaults(Settings, **FITTED)
def removal_as_measured_again(
    task: Task, *, solver: str, shares: list[float], settings: dict[str, Any], seed: int = 0
) -> dict[str, Any]:
    """Test errors without the least and without the most informative images, measured again as they leave."""
    images, validation = parted(task, seed)
    model, shares = removal(task, images, solver, {"seed": seed, **settings}), [0.0, *shares]
    curves = {w: model.errors(model.leaving(validation, most=w == "most"), shares) for w in ("least", "most")}
    return {
        "test_error": curves["least"][0],
        "n": len(images),
        "shares": shares,
        "again": curves,
        **model.solve_report(),
    }


@work("removal as K-FAC estimates it", validation=VALIDATION, probes=PROBES)
@defaults(Settings, **FITTED)
def removal_as_kfac_estimates(
    task: Task, *, solver: str, shares: list[float], settings: dict[str, Any], seed: int = 0
) -> dict[str, Any]:
    """The paper's ranking: F-SI by K-FAC, once, and test errors without the least and the most informative images."""
    images, validation = parted(task, seed)
    model, shares = removal(task, images, solver, {"seed": seed, **settings}), [0.0, *shares]
    information = kfac_information(model, validation, seed)
    order = information.argsort(stable=True)
    curves = {"least": model.errors(order, shares), "most": model.errors(order.flip(0), shares)}
    return {
        "test_error": curves["least"][0],
        "n": len(images),
        "ids": list(model.units.ids),
        "information": information.tolist(),
        "shares": shares,
        **curves,
        **model.solve_report(),
    }


def _listed(values: torch.Tensor | None) -> list[float] | None:
    return None if values is None else values.tolist()
