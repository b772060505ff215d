"""A model opened for a page: its training and test images, and what somebody would change about them.

Numbers of samples, never names of files, say which image is meant.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import torch

from lqf.analysis import Analysis, Queries
from lqf.analysis.audit.labels import suspects
from lqf.analysis.audit.rows import Suspect
from lqf.analysis.curve import Curve
from lqf.changes.tuning.path import TuningPath
from lqf.data import Samples, load_unlabelled
from lqf.errors import LQFError
from lqf.estimator import LQFClassifier
from lqf.evaluation.calibration import probabilities
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting.class_weights import as_they_come, own_weights
from lqf.reports.evaluation import Tested, tested
from lqf.selection.suggestions import Suggestions
from lqf.serve.corrections import Correction, Corrections
from lqf.serve.refused import Refused
from lqf.serve.thumbnails import Thumbnails
from lqf.serve.turns import Turns
from lqf.serve.uploads import Uploads
from lqf.serve.watched import Watched
from lqf.utils.progress import SILENT, Progress

MOST_SUGGESTED = 50
"""Images of a pool to label next."""
MOST_QUERIES = 32
"""Images whose kernel with the training data is kept."""


@dataclass(eq=False)
class Session:
    """What the page shows.

    Attributes:
        model: fitted.
        analysis: its training problem.
        loo: its leave-one-out.
        name: title.
        out: folder for the corrected model; what belongs to it lies beside.
        train: where its training data are now; None: where they were at the fit.
        test: predictions of a test set.
        pool: images without labels, of which some are to be labelled next.
        read_only: whether corrections are refused.
        progress: of what is computed for the page.
    """

    model: LQFClassifier
    analysis: Analysis
    loo: LeaveOneOut
    name: str
    out: Path
    train: Any = None
    test: Tested | None = None
    pool: Samples | None = None
    read_only: bool = False
    progress: Watched = field(default_factory=Watched)
    corrections: Corrections = field(default_factory=Corrections)
    uploads: Uploads = field(default_factory=Uploads)
    thumbnails: Thumbnails = field(default_factory=Thumbnails)
    turns: Turns = field(default_factory=Turns)
    _prepared: WeakSet[Queries] = field(default_factory=WeakSet, repr=False)
    _queries: OrderedDict[tuple[str, int], Queries] = field(default_factory=OrderedDict, repr=False)

    @classmethod
    def open(
        cls,
        model: LQFClassifier,
        name: str,
        out: Path,
        *,
        train: Any = None,
        test: Any = None,
        pool: Any = None,
        read_only: bool = False,
        progress: Progress = SILENT,
    ) -> Session:
        """Predict the test set, open the training problem."""
        watched = Watched(progress)
        unlabelled = None if pool is None else load_unlabelled(pool)
        seen = None if test is None else tested(model, test, progress=watched)
        analysis = model.analyse(train, progress=watched)
        loo = analysis.known_leave_one_out()
        watched.further = None
        return cls(model, analysis, loo, name, out, train, seen, unlabelled, read_only, watched)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names."""
        return self.analysis.classes

    @property
    def labels(self) -> np.ndarray:
        """(N,) of the training samples, as they were given."""
        return self.analysis.model.train.labels

    @cached_property
    def suspects(self) -> list[Suspect]:
        """Every training sample, the most suspicious label first."""
        return suspects(self.analysis.model, self.loo)

    @cached_property
    def probabilities(self) -> np.ndarray:
        """(N, n_classes) of the training samples, out of sample; NaN where not known."""
        return probabilities(self.loo.outputs, self.analysis.model.beta).double().cpu().numpy()

    @cached_property
    def information(self) -> np.ndarray:
        """(N,) of the training samples."""
        return self.analysis.information().samples().cpu().numpy()

    @cached_property
    def error(self) -> float:
        """By leave-one-out, as images come."""
        return as_they_come(self.analysis.model, self.loo).error

    @cached_property
    def path(self) -> TuningPath:
        """Errors at other weight decays."""
        return self.model.tune(descend=False, train=self.train, progress=self.progress)

    @cached_property
    def summary(self) -> Curve:
        """Test error when part of the training images is left out."""
        if self.test is None:
            raise Refused(404, "start with --test, labelled images, to see the error of parts of the training images")
        if self.analysis.level != "exact":
            raise Refused(
                409, "every part would be a fit of its own; `lqf summarize RUN --keep 0.5` chooses one to fit"
            )
        least, most = (self.analysis.leaving(most=most) for most in (False, True))
        return self.analysis.curve(self._test_queries, least=least, most=most)

    @cached_property
    def suggested(self) -> Suggestions:
        """Images of the pool to label next."""
        if self.pool is None:
            raise Refused(404, "start with --pool, a folder of images without labels, to see which to label next")
        most = min(MOST_SUGGESTED, len(self.pool))
        return self.model.suggest(self.pool, most, train=self.train, progress=self.progress)

    # --- images -------------------------------------------------------------------------------------------------------

    def samples(self, which: str, i: int) -> tuple[Samples, int]:
        """Where an image is: the samples it is one of, and its place among them."""
        if which == "train":
            found = self.analysis.images.samples
        elif which == "test" and self.test is not None:
            found = self.test.images.samples
        elif which == "pool":
            found = self.suggested.samples
        elif which == "own" and i in self.uploads.kept:
            return self.uploads.kept[i], 0
        else:
            raise Refused(404, "there is no such image; it may have been replaced by later ones")
        if not 0 <= i < len(found):
            raise Refused(404, f"there is no image number {i}")
        return found, i

    def queries(self, which: str, i: int) -> Queries:
        """One image, opened as for a prediction; with what is known of it already."""
        key = (which, i)
        if key not in self._queries:
            samples, row = self.samples(which, i)
            one = samples.select(np.array([row]))
            self._queries[key] = Queries.of(self.model.open(one, strict=True, progress=self.progress))
            while len(self._queries) > MOST_QUERIES:
                self._queries.popitem(last=False)
        self._queries.move_to_end(key)
        return self._queries[key]

    def prepare(self, queries: Queries) -> None:
        """Make the kernel of some images with the training data where answers come from it: once, instead of a pass
        over the training data for every change.
        """
        if self.analysis.level == "exact" and queries not in self._prepared:
            self.analysis.prepare(queries)
            self._prepared.add(queries)

    def picture(self, which: str, i: int, side: int) -> bytes:
        """A JPEG of an image."""
        samples, row = self.samples(which, i)
        return self.thumbnails.jpeg(f"{which} {i}" if which == "own" else which, samples, row, side)

    # --- changes ------------------------------------------------------------------------------------------------------

    def correct(self, sample: int, action: str, label: str | None) -> None:
        """Note what is to become of a training sample."""
        self.check_changes()
        self.samples("train", sample)
        if action == "keep":
            self.corrections.set(sample, None)
        elif action == "exclude":
            self.corrections.set(sample, Correction(None))
        elif action == "relabel" and label in self.classes:
            own = self.classes[self.labels[sample]]
            self.corrections.set(sample, None if label == own else Correction(label))
        else:
            raise Refused(400, "an image is kept, excluded, or relabelled with a class of the model")

    def check_changes(self) -> None:
        """Refuse them where they are not allowed."""
        if self.read_only:
            raise Refused(403, "this page was started with --read-only; nothing can be changed")

    def changed_error(self, change: dict[str, Any]) -> dict[str, Any]:
        """Leave-one-out error before and after a change: of all images that count, and of those that are not touched
        themselves.
        """
        try:
            after = self.analysis.changed_leave_one_out(**change)
        except LQFError as reason:
            return {"before": self.error, "after": None, "why": str(reason)}
        own = torch.tensor(own_weights(self.analysis.model))
        stays = own * (after.weights > 0)
        touched = [*change.get("without", ()), *change.get("relabel", ())]
        others = stays.clone()
        others[touched] = 0
        counted = bool(stays.any())
        return {
            "before": self.error,
            "after": replace(after, weights=stays).error if counted else None,
            "others_before": replace(self.loo, weights=others).error if others.any() else None,
            "others_after": replace(after, weights=others).error if others.any() else None,
            "level": after.level,
            "note": after.note,
        }

    @cached_property
    def _test_queries(self) -> Queries:
        assert self.test is not None
        return Queries.of(self.test.images)

    def prepare_test(self) -> None:
        """What the first question about errors would wait for: leave-one-out's own parts, and that kernel of the test
        images.
        """
        for changed in (self.changed_error, self.changed_test_error):
            changed({"without": [0]})

    @property
    def test_prepared(self) -> bool:
        """Whether that is done."""
        return self._test_queries in self._prepared

    def changed_test_error(self, change: dict[str, Any]) -> dict[str, Any] | None:
        """Of the test set, before and after; None: there is none."""
        if self.test is None:
            return None
        self.prepare(self._test_queries)
        found = self.analysis.what_if(self._test_queries, **change)
        right = found.probabilities.argmax(1).numpy() == self.test.labels
        weights = self.test.weights
        return {
            "before": self.test.evaluation.error.value,
            "after": float(1 - np.average(right, weights=weights)),
            "level": found.level,
        }
