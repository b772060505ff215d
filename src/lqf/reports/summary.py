"""A summary of a training set: the samples without which the model would change most."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lqf.analysis import Analysis, Information, Queries
from lqf.data import Samples
from lqf.data.sources import FileSource
from lqf.errors import LQFError
from lqf.utils import naming


@dataclass(frozen=True)
class Summary:
    """Which samples to keep.

    Attributes:
        kept: numbers of the samples, in their order.
        ids: of those.
        information: (N,) F-SI of every sample.
        per_class: class -> {"n", "kept"}.
        level, note: how exact the information is.
    """

    kept: np.ndarray
    ids: tuple[str, ...]
    information: np.ndarray
    per_class: dict[str, dict[str, int]]
    level: str
    note: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        total = float(self.information.sum())
        return {
            "n": len(self.information),
            "kept": len(self.kept),
            "information_share": float(self.information[self.kept].sum()) / total if total else 1.0,
            "ids": list(self.ids),
            "per_class": self.per_class,
            "level": self.level,
            "note": self.note,
        }


def summarize(analysis: Analysis, keep: float, validation: Any = None) -> Summary:
    """The most informative share of the training samples.

    Args:
        analysis: a model's training problem, opened again.
        keep: share of the samples, above 0 and at most 1; groups stay together, and every class keeps two samples,
            without which there is no fitting again.
        validation: images whose predictions should change least; None: the training images.
    """
    if not 0 < keep <= 1:
        raise LQFError(f"keep is {keep}; give a share above 0 and at most 1, e.g. 0.5")
    if validation is not None:
        validation = analysis.queries(validation)
    information = analysis.information(validation)
    kept = _two_of_each(analysis, information, _kept(analysis, information, keep, validation)).numpy()
    train, classes = analysis.model.train, analysis.model.classes
    n, of = (np.bincount(y, minlength=len(classes)) for y in (train.labels, train.labels[kept]))
    return Summary(
        kept=kept,
        ids=tuple(train.ids[i] for i in kept),
        information=information.samples().numpy(),
        per_class={name: {"n": int(n[k]), "kept": int(of[k])} for k, name in enumerate(classes)},
        level=information.level,
        note=information.note,
    )


def _kept(analysis: Analysis, information: Information, keep: float, validation: Queries | None) -> Tensor:
    """Numbers of the samples to keep: those that leave last when information is measured again as samples leave.

    Ranked once, images that stand in for each other would go together: worse than a random half.
    """
    place = torch.empty(len(analysis.units), dtype=torch.float64)
    order = analysis.leaving(validation).cpu()
    place[order] = torch.arange(len(order), dtype=torch.float64)
    return replace(information, value=place).keep(keep)


def _two_of_each(analysis: Analysis, information: Information, kept: Tensor) -> Tensor:
    """The kept samples, and of every class that would lose all or all but one its most informative, whole groups."""
    labels, member = analysis.labels.cpu(), analysis.units.member.cpu()
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    chosen[kept] = True
    for i in information.samples().argsort(descending=True, stable=True).tolist():
        if int((chosen & (labels == labels[i])).sum()) < 2:
            chosen |= member == member[i]
    return chosen.nonzero()[:, 0]


def manifest(summary: Summary, samples: Samples) -> str:
    """The kept samples as a CSV that `lqf fit` reads, with absolute paths, so that it may lie anywhere."""
    if not isinstance(samples.source, FileSource):
        raise LQFError(
            f"{samples.name} has no image files, which a manifest needs; take the ids from "
            f"{naming.either('Python or --json', 'the summary')}"
        )
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    grouped = samples.groups is not None
    writer.writerow(["path", "label", "weight", *(["group"] if grouped else []), "information"])
    for i in summary.kept.tolist():
        group = [samples.groups[i]] if samples.groups is not None else []
        path, label = os.path.abspath(samples.source.paths[i]), samples.classes[samples.labels[i]]
        writer.writerow([path, label, repr(float(samples.weights[i])), *group, repr(float(summary.information[i]))])
    return text.getvalue()
