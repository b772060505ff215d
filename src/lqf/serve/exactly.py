"""Corrections as an exact change of the model: what is excluded is forgotten, and what has another label is relabelled.

Linearisation point and ridge strengths stay those of the fit, so the new model is the one whose errors the page has
shown. Its training table is that of the manifest, where its images are found again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lqf.data import Samples, load_samples
from lqf.data.sources import FileSource
from lqf.errors import LQFError
from lqf.estimator import LQFClassifier
from lqf.fitting import Model
from lqf.serve.corrections import Correction
from lqf.serve.session import Session
from lqf.utils.progress import Progress


def changed_exactly(
    session: Session, samples: Samples, corrected: Mapping[int, Correction], manifest: Path, progress: Progress
) -> LQFClassifier | None:
    """The model of the corrected data; None where it cannot be changed but by a fit.

    Args:
        session: whose model is changed.
        samples: its training samples, with their own weights.
        corrected: by number.
        manifest: of the corrected data.
        progress: where to report.
    """
    fitted = session.model.fitted_
    if not all(member.solved for member in fitted.members):
        return None
    changed, excluded = session.model.with_model(fitted), [i for i, c in corrected.items() if c.label is None]
    labels = {samples.ids[i]: c.label for i, c in corrected.items() if c.label is not None}
    try:
        if excluded:
            changed.forget(excluded, train=session.train, progress=progress)
        if labels:
            changed.relabel(labels, train=session.train, progress=progress)
    except LQFError as reason:
        progress.say(f"fitted again, since {reason}")
        return None
    return changed.with_model(_of_manifest(changed, manifest))


def _of_manifest(changed: LQFClassifier, manifest: Path) -> Model:
    """With the ids that a manifest's images have."""
    fitted = changed.fitted_
    read = load_samples(str(manifest))
    assert isinstance(read.source, FileSource)
    if len(read) != len(fitted.train.ids):
        raise LQFError("the corrected data name a file twice, so their manifest is not what the model was made of")
    train = replace(fitted.train, ids=tuple(read.ids), source=str(manifest), added=(), origin=None)
    return replace(fitted, train=train)
