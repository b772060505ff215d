"""What is left of a model's state without some of its samples; the problem that is opened on it is that of the others.

    features, fold   lose their rows
    q, lam           K₋ = Q₋ Λ Q₋ᵀ, the block of the kernel over the rows that stay, factorised again: no entry of the
                     kernel is computed from the images a second time; the kernel averaged over the outputs likewise
    heads            stay: the linearisation point is kept
    residuals        lose their rows; until the problem is solved again they are those of the solution before,
                     as are its gap and its ratio

Of the forgotten samples nothing else is carried on than what the point and the choices of the fit owe them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lqf.data import Images
from lqf.fitting import Context, FittedModel
from lqf.fitting.knowledge import STRENGTH, Knowledge, Tensors, fits
from lqf.fitting.reopen import reopen


def informed(model: FittedModel, everything: Callable[[], Images], context: Context) -> FittedModel:
    """The model with its features and its point in memory.

    Where they were not kept, they are made again of all of its training images, ``everything``.
    """
    known = None if model.known is None else model.known.read(context.progress.say)
    rows = len(model.train.ids) * model.trained_on.n_views
    if known is not None and fits(known, rows):
        return replace(model, known=Knowledge(known))
    if model.head_alone or model.kept_point is not None:
        return replace(model, known=None)
    problem = reopen(replace(model, known=None), everything(), context)
    point = problem.point
    found = {"features": problem.features, "heads": point.heads, "fold": point.fold}
    return replace(model, known=Knowledge({name: t.detach().cpu() for name, t in found.items()}), kept_point=point)


def without(model: FittedModel, stays: np.ndarray) -> FittedModel:
    """The model, not solved again yet, with the samples of a mask (N,) alone; `informed` before."""
    rows = torch.from_numpy(stays).repeat_interleave(model.trained_on.n_views)
    tensors = model.known.tensors if isinstance(model.known, Knowledge) else None
    point = model.kept_point
    return replace(
        model,
        train=model.train.select(np.flatnonzero(stays)),
        known=None if tensors is None else Knowledge(_cut(tensors, rows, head_alone=model.head_alone)),
        kept_point=None if point is None else replace(point, fold=point.fold.cpu()[rows]),
        loo=None,
        tried={},
    )


def _cut(known: Tensors, rows: Tensor, *, head_alone: bool) -> Tensors:
    out = {"features": known["features"][rows]}
    if head_alone:
        return out  # factorised again from the features
    out |= {"heads": known["heads"], "fold": known["fold"][rows]}
    if "residuals" in known:
        out |= {"residuals": known["residuals"][rows]}
    out |= {name: known[name] for name in known if name in ("ratio", "gap") or name.startswith(STRENGTH)}
    for of in ("", "averaged_"):
        if f"{of}q" in known:
            q = known[f"{of}q"].unflatten(0, (len(rows), -1))[rows].flatten(0, 1)
            lam, vectors = torch.linalg.eigh((q * known[f"{of}lam"]) @ q.T)
            out |= {f"{of}q": vectors, f"{of}lam": lam.clamp_min(0)}
    return out
