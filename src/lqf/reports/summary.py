"""A summary of a training set: the samples without which the model would change most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lqf.analysis import Analysis, Information
from lqf.analysis.audit import labels
from lqf.data import Samples
from lqf.data.manifests import manifest_text, sample_row
from lqf.errors import LQFError
from lqf.fitting import Model


@dataclass(frozen=True)
class Summary:
    """Which samples to keep.

    Attributes:
        kept: numbers of the samples, in their order.
        ids: of those.
        information: (N,) F-SI of every sample.
        per_class: class -> {"n", "kept"}.
        level, note: how exact the information is.
        contradicted: numbers of the samples whose label leave-one-out contradicts; None: the fit knows of none.
        suspicious: of those, the ones whose label is taken to be wrong (`lqf.analysis.audit.labels.SURE`).
    """

    kept: np.ndarray
    ids: tuple[str, ...]
    information: np.ndarray
    per_class: dict[str, dict[str, int]]
    level: str
    note: str
    contradicted: np.ndarray | None = None
    suspicious: np.ndarray | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        total = float(self.information.sum())
        found = {"contradicted": self.contradicted, "suspicious": self.suspicious}
        return {
            "n": len(self.information),
            "kept": len(self.kept),
            "information_share": float(self.information[self.kept].sum()) / total if total else 1.0,
            "ids": list(self.ids),
            "per_class": self.per_class,
            "level": self.level,
            "note": self.note,
            **{name: None if which is None else len(which) for name, which in found.items()},
            **{
                f"{name}_kept": None if which is None else len(np.intersect1d(which, self.kept))
                for name, which in found.items()
            },
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
    kept = _two_of_each(analysis, information, analysis.keep(keep, validation)).numpy()
    train, classes = analysis.model.train, analysis.model.classes
    n, of = (np.bincount(y, minlength=len(classes)) for y in (train.labels, train.labels[kept]))
    return Summary(
        kept=kept,
        ids=tuple(train.ids[i] for i in kept),
        information=information.samples().numpy(),
        per_class={name: {"n": int(n[k]), "kept": int(of[k])} for k, name in enumerate(classes)},
        level=information.level,
        note=information.note,
        **_doubts(analysis.model),
    )


def _doubts(model: Model) -> dict[str, np.ndarray]:
    """Which labels the fit's own leave-one-out contradicts, and which of them strongly; nothing where it has none."""
    if model.loo is None:
        return {}
    found = {"contradicted": labels.contradicted(model.loo), "suspicious": labels.suspicious(model, model.loo)}
    return {name: mask.nonzero()[:, 0].cpu().numpy() for name, mask in found.items()}


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
    """The kept samples as a CSV that `lqf fit` reads, with their information."""
    rows = [sample_row(samples, i) | {"information": float(summary.information[i])} for i in summary.kept.tolist()]
    return manifest_text(samples, rows, ["information"])
