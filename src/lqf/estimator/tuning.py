"""Tuning a fitted model: its error against both weight decays, and the model at other ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from lqf.changes.tuning.path import TuningPath
from lqf.changes.tuning.tune import StrengthSearch
from lqf.data import load_samples
from lqf.data.labels import class_array
from lqf.estimator.predictor import Predictor
from lqf.fitting.training_data import open_training
from lqf.runtime.device import computing
from lqf.utils.progress import Progress


class Tuning(Predictor):
    """Other weight decays, without refitting the rest."""

    @computing
    def tune(
        self,
        validation: Any = None,
        y: Any = None,
        *,
        factors: Sequence[float] | None = None,
        descend: bool = True,
        train: Any = None,
        progress: Progress | None = None,
    ) -> TuningPath:
        """How the error of the model depends on its weight decays; the model itself stays as it is.

        Args:
            validation: labelled images that judge; None: the training samples, each left out.
            y: their labels, where they have none of their own.
            factors: of each weight decay, at which to look.
            descend: whether to go on from the best pair along the slope of the loss.
            train: the training data, where they have moved or were arrays; see `analyse`.
            progress: where to report.
        """
        opened = self._tuned(train, validation, y, progress)
        self._opened = self._model(), opened, train  # kernels serve `tuned`, too
        return opened.path(factors, descend=descend)

    @computing
    def tuned(
        self,
        weight_decay: float | TuningPath,
        body_weight_decay: float | None = None,
        *,
        train: Any = None,
        progress: Progress | None = None,
    ) -> Self:
        """The model with other weight decays, or at the best of a path; everything but head and body is shared.

        Args:
            weight_decay: λ of the head, per sample; or what `tune` found.
            body_weight_decay: λ of the body; default: the one it has.
            train: the training data, where they have moved or were arrays; see `analyse`.
            progress: where to report.
        """
        known = getattr(self, "_opened", None)
        opened = known[1] if known and known[0] is self._model() and train is known[2] else None
        opened = opened or self._tuned(train, None, None, progress)
        if isinstance(weight_decay, TuningPath):
            return self.with_model(opened.chosen(weight_decay))
        return self.with_model(opened.at(weight_decay, body_weight_decay))

    def _tuned(self, train: Any, validation: Any, y: Any, progress: Progress | None) -> StrengthSearch:
        fitted, progress = self._reading(self._model(), train), self._shown(progress)
        images = open_training(fitted, train, None, progress)
        judging = None
        if validation is not None:
            classes = fitted.classes if y is None else class_array(fitted.classes)
            samples = load_samples(validation, y, classes=classes, tensors=self.tensors, progress=progress)
            judging = self.open(samples, progress=progress)
        return StrengthSearch.of(fitted, images, self._context(fitted, progress), judging)
