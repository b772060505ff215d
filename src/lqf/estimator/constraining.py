"""Changing a fitted model so that its outputs satisfy constraints, or so that it can be released with privacy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch

from lqf import storage
from lqf.changes.constraints.conditions import Constraint
from lqf.changes.constraints.constrained import constrain
from lqf.changes.privacy.models import check_model, privatise
from lqf.changes.privacy.release import Budget, Part, about
from lqf.data import Images, load_samples, open_images, with_views
from lqf.data.labels import class_array
from lqf.errors import LQFError
from lqf.estimator.predictor import Predictor
from lqf.fitting import Context, Model
from lqf.fitting.training_data import open_training
from lqf.linear.batch import usual_rows
from lqf.runtime.device import computing
from lqf.utils.progress import Progress


class Constraining(Predictor):
    """Changes of a model under which it stays the optimum of a stated problem."""

    @computing
    def constrain(
        self,
        constraints: Sequence[Constraint],
        *,
        train: Any = None,
        y: Any = None,
        progress: Progress | None = None,
    ) -> Self:
        """Change the model to the optimum of its problem under linear constraints on its outputs.

        ``report_["constraints"]`` says how far each was violated before, and what it costs. Nothing changes where the
        constraints contradict each other. Leave-one-out of the model before does not hold afterwards and is dropped.

        Args:
            constraints: all at once: `lqf.EqualMeans`, `Agree`, `KeepRight`, `Bound`.
            train: the training data, where they have moved or were arrays.
            y: their labels.
            progress: where to report.
        """
        if not constraints:
            raise LQFError("there is no constraint; give at least one, e.g. constrain([EqualMeans(groups)])")
        fitted, progress = self._model(), self._shown(progress)
        images, context = self._training(train, y, progress, fitted)
        opening = _Opening(self, images, context)
        rows = [c.rows(opening) for c in constraints]
        self._adopt(constrain(fitted, constraints, rows, images, context))
        return self

    @computing
    def privatise(
        self,
        *,
        epsilon: float,
        delta: float,
        part: Part = "head",
        clip: float | None = None,
        weight_decay: float | None = None,
        seed: int | None = None,
        train: Any = None,
        y: Any = None,
        progress: Progress | None = None,
    ) -> Self:
        """Change the model to one that is (epsilon, delta)-differentially private in every single training image.

        It is solved anew with rows of bounded length, and noise is added. ``report_["privacy"]`` says by which numbers
        the guarantee stands, and what it does not cover. Every call spends a budget of its own: budgets add up.

        Args:
            epsilon: 1 is strong, 8 is weak; larger ones say little.
            delta: far below 1 over the number of images.
            part: "head": a head on the pretrained features; "all": with the change of the network (dense fits in
                float64, of form centred).
            clip: length to which rows are cut; None: all are scaled to length one, so that no number has to be known.
            weight_decay: per image, for rows of that length; None: by the budget and the number of images.
            seed: of the noise, for experiments; whoever knows it can take the noise off again.
            train: the training data, where they have moved or were arrays.
            y: their labels.
            progress: where to report.
        """
        budget = Budget(epsilon, delta, part, clip, weight_decay, seed)
        self._adopt(self._released(self._model(), budget, train, y, self._shown(progress)))
        return self

    def _released(self, fitted: Model, budget: Budget, train: Any, y: Any, progress: Progress) -> Model:
        """A private model in the place of a fitted one."""
        check_model(fitted, budget)
        images, context = self._training(train, y, progress, fitted)
        released = privatise(fitted, budget, images, context)
        progress.note(about(released.report.privacy or {}))
        return released

    def _training(self, train: Any, y: Any, progress: Progress, fitted: Model) -> tuple[Images, Context]:
        """The training images of a model, and where to compute."""
        return open_training(self._reading(fitted, train), train, y, progress), self._context(fitted, progress)


@dataclass(frozen=True)
class _Opening:
    """What constraints see of a model."""

    estimator: Predictor
    train: Images
    context: Context
    seen: dict[tuple[int, int, bool], Images] = field(default_factory=dict)

    @property
    def model(self) -> Model:
        return self.estimator._model()

    def training(self) -> Images:
        """One object, however many constraints speak of it: its passes are shared."""
        key = (id(self.train), 0, False)
        if key not in self.seen:
            self.seen[key] = with_views(self.train, self.model.preprocess)
        return self.seen[key]

    def open(self, X: Any, y: Any = None, *, labelled: bool = False) -> Images:
        key = (id(X), id(y), labelled)
        if key not in self.seen:
            self.seen[key] = self._open(X, y, labelled)
        return self.seen[key]

    def _open(self, X: Any, y: Any, labelled: bool) -> Images:
        tensors, progress = self.estimator.tensors, self.context.progress
        if labelled:
            classes = self.model.classes if y is None else class_array(self.model.classes)
            samples = load_samples(X, y, classes=classes, tensors=tensors, strict=True, progress=progress)
        else:
            samples = self.estimator._unlabelled(X, progress, each=True)
        return open_images(samples, self.model.preprocess, strict=True, progress=progress)

    def outputs_of(self, old: Any, images: Images) -> tuple[Model, torch.Tensor]:
        model = storage.load(old) if isinstance(old, str | Path) else getattr(old, "fitted_", old)
        rows = self.context.settings.batch_size or usual_rows(self.context.device)
        own = open_images(images.samples, model.preprocess, strict=True, progress=self.context.progress)
        return model, model.outputs(own, device=self.context.device, batch_size=rows, progress=self.context.progress)
