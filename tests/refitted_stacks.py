"""Small stacks for the tests: members that were fitted each by itself, and their real refits added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fits import CPU, FIXED, classifier, convnet, pictures
from lqf import LQFClassifier
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import FittedModel, Stack
from lqf.linear.inputs import Inputs
from real_refits import Refitted

N = 12
X, Y = pictures(N, side=12)
NEW = pictures(4, side=12, seed=5)[0]
WEIGHTS = (0.25, 0.45, 0.3)
MEMBERS: tuple[dict[str, Any], ...] = (
    {"solver": "dense", "views": "none", **FIXED},
    {"solver": "head", "views": "flip", "weight_decay": 0.1},
    {"solver": "dense", "views": "flip", "linearize": "deep", **FIXED},
)
"""A network in one view, a head in two, and its last stage in two."""


def fitted_members(sample_weight: Any = None, groups: Any = None) -> list[LQFClassifier]:
    """Each fitted by itself."""
    every = ({"backbone": convnet(), "size": 8, "pooling": "avg", **params} for params in MEMBERS)
    return [classifier(**params).fit(X, Y, sample_weight, groups=groups) for params in every]


def stack_of(members: Sequence[FittedModel], weights: Sequence[float] = WEIGHTS) -> Stack:
    """Added up; its out-of-sample outputs are those of the members, likewise."""
    main = members[0]
    loos = [m.loo for m in members if m.loo is not None]
    outputs = torch.stack([w * loo.outputs for w, loo in zip(weights, loos, strict=True)]).sum(0)
    loo = LeaveOneOut(outputs, "estimated", "added up", labels=loos[0].labels, weights=loos[0].weights)
    return Stack(
        members=tuple(members),
        weights=tuple(weights),
        names=tuple(f"rung {k}" for k in range(len(members))),
        shares=tuple(weights),
        beta=loo.temperature(),
        train=main.train,
        loo=loo,
        report=main.report,
        settings=main.settings,
        setup=main.setup,
        tried={"rung 0": outputs, "rung 1, é": 2 * outputs},
    )


def adopting(members: Sequence[LQFClassifier]) -> LQFClassifier:
    """A classifier whose model is a stack of theirs."""
    model = classifier(backbone=convnet(), size=8)
    model._adopt(stack_of([m.fitted_ for m in members]))
    return model


class RefittedStack:
    """Every member solved again and again by dense matrices; what they say is added up."""

    def __init__(self, members: Sequence[LQFClassifier], new: np.ndarray = NEW):
        self.refits, self.views = [], []
        for member in members:
            images = member.analyse(X).queries(new).images
            rows = Inputs(images, images.preprocess, device=CPU, dtype=torch.float64, batch_size=8)
            self.refits.append(Refitted(member, X, rows.fetch(torch.arange(len(rows)))))
            self.views.append(images.n_views)

    def outputs(self, factors: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        """f of the new images after a fit with the samples' weights multiplied and other labels."""
        return self._sum([r.outputs(factors, labels) for r in self.refits])

    def without(self, samples: list[int]) -> Tensor:
        """f after a fit without some samples."""
        return self.outputs(self.refits[0].all_but(samples))

    def out_of_sample(self, together: Tensor) -> Tensor:
        """(N, C) of every training sample by fits without all that leaves with it."""
        found = []
        for refit in self.refits:
            targets, out = refit.problem.targets, torch.zeros_like(refit.problem.targets)
            for g in together.unique():
                gone = together == g
                rows = gone.repeat_interleave(refit.n_views)
                out[rows] = (targets - refit.residuals(refit.all_but(gone.nonzero()[:, 0].tolist())))[rows]
            found.append(out)
        return self._sum(found)

    def _sum(self, rows: list[Tensor]) -> Tensor:
        means = [f.view(-1, v, f.shape[1]).mean(1) for f, v in zip(rows, self.views, strict=True)]
        return torch.stack([w * f for w, f in zip(WEIGHTS, means, strict=True)]).sum(0)
