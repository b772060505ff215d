"""How informative every training image is, and what becomes of the test error without the most or least informative."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from lqf.analysis import Analysis, Queries
from lqf.analysis.by_kernel import ByKernel
from lqf.data import select_images, with_views
from lqf.paper.exact import Ours
from lqf.paper.lab import Task
from lqf.paper.works import defaults, work
from lqf.settings import Settings

VALIDATION = 0.25
"""Share of every class's training images on which information is measured; the model is not fitted on them."""


def held_out(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """A mask of ``share`` of every class, at random; a class of one image keeps it."""
    rng, out = np.random.default_rng(seed), np.zeros(len(labels), bool)
    for y in np.unique(labels):
        rows = np.flatnonzero(labels == y)
        most = max(0, len(rows) - 2)
        out[rng.permutation(rows)[: min(most, max(1, round(share * len(rows))))]] = True
    return out


@work("informativeness", validation=VALIDATION)
@defaults(Settings, views="none", loo="none")
def informativeness(
    task: Task, *, shares: list[float], repeats: int, settings: dict[str, Any], seed: int = 0
) -> dict[str, Any]:
    """F-SI of every training image on held-out ones, and test errors by refits without shares of the images.

    `curve` drops images in the order of their information in the presence of all, as the paper does; `again`, where the
    kernel makes it cheap, measures information anew as images leave.
    """
    lab = task.lab
    apart = held_out(task.train.samples.labels, VALIDATION, seed)
    part, validation = task.some(np.flatnonzero(~apart)), select_images(task.train, apart)
    given = {"seed": seed, "views": "none", "loo": "none", **settings}
    net = copy.deepcopy(lab.network(leaky=True))
    model = Ours.fit(net, part.train, lab.preprocess, device=lab.device, progress=lab.progress, **given)
    analysis = Analysis.of(model.fitted, part.train, Settings(**given), lab.device, progress=lab.progress)
    seen, test = (Queries.of(with_views(i, model.fitted.preprocess)) for i in (validation, task.test))
    information = analysis.information(seen)
    order = information.values.argsort(stable=True)
    curve = analysis.curve(test, least=order, most=order.flip(0), shares=shares, repeats=repeats, seed=seed)
    again = None
    if isinstance(analysis.method, ByKernel):
        least, most = (analysis.leaving(seen, most=m) for m in (False, True))
        again = analysis.curve(test, least=least, most=most, shares=shares, repeats=1, seed=seed).to_dict()
    return {
        "test_error": curve.least[0],
        "n": len(part.train),
        "validation": len(validation),
        "level": information.level,
        "note": information.note,
        "ids": list(analysis.ids),
        "information": information.values.tolist(),
        "standard_error": _listed(information.standard_error),
        "curve": curve.to_dict(),
        "again": again,
    }


def _listed(values: torch.Tensor | None) -> list[float] | None:
    return None if values is None else values.tolist()
