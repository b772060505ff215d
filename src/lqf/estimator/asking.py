"""Asking a fitted model about its training data: why a prediction, what every sample does, which labels are wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lqf.analysis import Analysis, Influence, Information, WhatIf
from lqf.analysis.audit.audit import Audit, audit
from lqf.estimator.predictor import Predictor
from lqf.fitting.training_data import open_training
from lqf.reports.explanations import Explanations, explain
from lqf.runtime.device import computing
from lqf.runtime.distributed import ALONE, World
from lqf.utils.progress import SILENT, Progress


class Asking(Predictor):
    """Questions about the training samples of a model; its problem is opened at the first one and kept, and reports
    where that one said.
    """

    @computing
    def analyse(
        self,
        train: Any = None,
        y: Any = None,
        *,
        method: str = "auto",
        progress: Progress | None = None,
        world: World = ALONE,
    ) -> Analysis:
        """Open the training problem again, to ask what every sample does; it is kept for later questions.

        Args:
            train: the training data, where they have moved or were arrays; None: where they were at the fit. Labels,
                weights and groups are those of the fit.
            y: labels of ``train``, to be compared with those of the fit; they may be left out.
            method: "auto": as the model was fitted; "dense": exact, by the kernel of all (sample, output) pairs;
                "pcg": by iterative solves; "kfac": the paper's approximation.
            progress: where to report, for this analysis and all its answers.
            world: the processes that share the training samples, all of which call this, and then ask, with the same
                arguments (`lqf.runtime.distributed.joined`); all get the same answers.
        """
        fitted, progress = self._reading(self._model(), train), self._shown(progress if world.rank == 0 else SILENT)
        images = open_training(fitted, train, y, progress, world)
        self.analysis_ = Analysis.of(fitted, images, self._context(fitted, progress, world), method)
        return self.analysis_

    def influence(
        self,
        images: Any,
        y: Any = None,
        *,
        units: Iterable[str | int] | None = None,
        train: Any = None,
        progress: Progress | None = None,
    ) -> Influence:
        """Effect of leaving out every training sample (or group) on every output of every image.

        Args:
            images: what `predict` takes, or `Queries`.
            y: labels of the images, where these have none.
            units: samples (or groups) to leave out, by id or number; None: every one.
            train: the training data, where they have moved or were arrays; see `analyse`.
            progress: where to report.
        """
        return self._analysis(train, progress=progress).influence(images, y, units=units)

    def information(
        self, validation: Any = None, y: Any = None, *, train: Any = None, progress: Progress | None = None
    ) -> Information:
        """How much every training sample (or group) informs the model.

        Args:
            validation: images on which that is measured; None: the other training samples.
            y: their labels, where these have none.
            train: the training data, where they have moved or were arrays; see `analyse`.
            progress: where to report.
        """
        return self._analysis(train, progress=progress).information(validation, y)

    def what_if(
        self,
        images: Any,
        *,
        without: Iterable[str | int] = (),
        relabel: Mapping[Any, Any] | None = None,
        weights: Mapping[Any, float] | None = None,
        train: Any = None,
        progress: Progress | None = None,
    ) -> WhatIf:
        """Predictions had some training samples been absent, labelled otherwise, or counted ``weights`` times.

        Args:
            images: what `predict` takes, or `Queries`.
            without: ids or numbers of samples to leave out (alone, whatever their group).
            relabel: id or number -> class.
            weights: id or number -> factor; 2 counts a sample twice.
            train: the training data, where they have moved or were arrays; see `analyse`.
            progress: where to report.
        """
        analysis = self._analysis(train, progress=progress)
        return analysis.what_if(images, without=without, relabel=relabel, weights=weights)

    def audit(
        self, train: Any = None, y: Any = None, *, similar: float = 0.9, progress: Progress | None = None
    ) -> Audit:
        """What the model says about its training data: wrong labels, near-duplicates, informative samples.

        Args:
            train: the training data, where they have moved or were arrays; see `analyse`.
            y: their labels.
            similar: least cosine of near-duplicates.
            progress: where to report.
        """
        return audit(self._analysis(train, y, progress), similar=similar)

    def explain(
        self,
        images: Any,
        *,
        top: int = 6,
        without: Iterable[str | int] = (),
        of: str | None = None,
        quick: bool | None = None,
        train: Any = None,
        progress: Progress | None = None,
    ) -> Explanations:
        """The training images behind predictions: those that pushed each one there, and those that pushed away.

        What is explained is how one class stands against another: the predicted one against the runner-up.

        Args:
            images: what `predict` takes, or `Queries`; labels are shown where they are known.
            top: training images of each kind, at most.
            without: training samples, ids or numbers, without which the images are predicted once more.
            of: the class to explain, against the best of the others; None: the predicted one of every image.
            quick: True: an estimate, by at most three passes over the training images. False: as exact as the model
                allows, whatever it takes. None: as exact, where that takes seconds.
            train: the training data, where they have moved or were arrays; see `analyse`.
            progress: where to report.
        """
        analysis = self._analysis(train, progress=progress)
        return explain(analysis, analysis.queries(images), most=top, without=without, of=of, quick=quick)

    def _analysis(self, train: Any = None, y: Any = None, progress: Progress | None = None) -> Analysis:
        """The one that is open, or a new one."""
        self._model()
        if self.analysis_ is None or train is not None:
            return self.analyse(train, y, progress=progress)
        return self.analysis_
