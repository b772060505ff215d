"""Changing a fitted model without fitting it again: samples are added, forgotten, or get other labels."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from lqf.analysis.counterfactual import Change
from lqf.changes.samples.add import add
from lqf.changes.samples.certificate import DeletionCertificate, hashed
from lqf.changes.samples.chosen import chosen
from lqf.changes.samples.dependence import depends_on
from lqf.changes.samples.forget import forget
from lqf.changes.samples.members import After, Now, change_model, check_trained
from lqf.changes.samples.newcomers import Addition, check_new, everyone, grown, placed
from lqf.changes.samples.outcome import REFITTED, Changed, Outcome
from lqf.changes.samples.relabel import Relabelling, relabel
from lqf.changes.samples.traces import erase_beside
from lqf.changes.samples.verify import difference_to_refit
from lqf.data import Images, load_samples, open_images, select_images, with_labels
from lqf.errors import LQFError
from lqf.estimator.fit import Kept, fit_model, report_skipped
from lqf.estimator.predictor import Predictor
from lqf.fitting import Context, FittedModel, Model, TrainingTable
from lqf.fitting.class_weights import own_weights
from lqf.fitting.training_data import open_training
from lqf.runtime.device import computing, resolve_device
from lqf.utils import naming
from lqf.utils.progress import Progress
from lqf.utils.text import listed


class Changing(Predictor):
    """A model that samples are added to, that forgets samples, and whose labels are corrected.

    Each time it is the optimum of what there is then.

    The linearisation point and the ridge strengths of the fit are kept.
    """

    @computing
    def add(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        train: Any = None,
        retrain: bool = False,
        progress: Progress | None = None,
    ) -> Addition:
        """Further training samples, of new classes too: the optimum of a fit on all of them with the same strengths.

        Args:
            X: what `fit` takes.
            y: labels, where X has none.
            sample_weight: (N,) weights of the new samples.
            groups: (N,) of the new samples.
            train: the training data so far, where they have moved or were in memory; None: where they were.
            retrain: train a stack's fine-tuned networks again, which are dropped otherwise.
            progress: where to report.
        """
        began, model, progress = time.perf_counter(), self._model(), self._shown(progress)
        check_trained(model, retrain)
        images = self._new_images(model, X, y, sample_weight, groups, progress)
        source = str(X) if isinstance(X, str) or hasattr(X, "__fspath__") else None
        table = grown(model.train, model.classes, images, source)
        old = self._all_images(model, train, progress)
        context = self._context(model, progress)
        kept = np.concatenate([np.arange(len(old)), np.full(len(images), -1)])
        now = Now(lambda: everyone(old, images), table, kept)

        def change(member: FittedModel, name: str) -> Changed:
            return add(member, table, lambda: old, images, context, name)

        after = change_model(model, change, now, context, retrain=retrain)
        self._adopt(after.model)
        self._kept_images = everyone(old, images) if _in_memory(table) else None
        more = tuple(name for name in after.model.classes if name not in model.classes)
        seconds = time.perf_counter() - began
        addition = Addition(len(images), len(table.ids), more, after.outcomes, seconds)
        progress.note(addition.sentence)
        return addition

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, **options: Any) -> Self:
        """Fit, or `add` to what was fitted: the on-line protocol is one call after the other."""
        if not hasattr(self, "fitted_"):
            self.fit(X, y, sample_weight)  # type: ignore[attr-defined]
            fitted = self._model()
            self._kept_images = open_training(fitted, X, None, self._shown(None)) if _in_memory(fitted.train) else None
            return self
        self.add(X, y, sample_weight, **options)
        return self

    @computing
    def forget(
        self,
        ids: Iterable[str | int] | None = None,
        *,
        group: str | None = None,
        where: tuple[str, Any] | None = None,
        strict: bool = False,
        verify: bool = False,
        retrain: bool = False,
        train: Any = None,
        progress: Progress | None = None,
    ) -> DeletionCertificate:
        """The optimum without some samples, with a certificate of it. Their images may be gone already.

        Where it is then saved onto a folder that it was loaded from or saved to before, checkpoints and copies beside
        that folder go, too, which a fit or a killed process has left there and which know them.

        Args:
            ids: of the samples, or their numbers.
            group: in place of ids: all samples of it.
            where: in place of ids: a column and the value looked for in it, e.g. ("label", "rose"); see
                `lqf.changes.samples.chosen.chosen`.
            strict: make everything again that has seen them, the choices of the fit included: a fit on what is left.
            verify: solve what is left once more from nothing, and compare predictions.
            retrain: train a stack's fine-tuned networks again, which are dropped otherwise.
            train: the training data, where they have moved or were in memory.
            progress: where to report.
        """
        began, model, progress = time.perf_counter(), self._model(), self._shown(progress)
        if strict and (verify or retrain):
            other = naming.name("verify" if verify else "retrain")
            raise LQFError(f"{naming.name('strict')} fits everything again, which {other} has nothing to add to")
        if not strict:
            check_trained(model, retrain)
        gone = chosen(model, ids, group, where)
        remaining = self._remaining(model, gone, train, progress)
        if strict:
            after = self._fitted_again(model, remaining, progress)
        else:
            after = self._forgotten(model, gone, remaining, retrain, train, progress)
        difference, scale = None, None
        if verify:
            difference, scale = difference_to_refit(after, remaining, self._context(model, progress))
        certificate = DeletionCertificate(
            forgotten=hashed([model.train.ids[i] for i in np.flatnonzero(gone)]),
            remaining=int((~gone).sum()),
            strict=strict,
            members=after.outcomes,
            depends_on=() if strict else depends_on(after.model, model),
            difference=difference,
            scale=scale,
            seconds=time.perf_counter() - began,
        )
        self._adopt(after.model)
        self._forgot = True
        self._kept_images = remaining if _in_memory(after.model.train) else None
        progress.note(certificate.sentence)
        return certificate

    @computing
    def relabel(self, labels: Mapping[Any, str], *, train: Any = None, progress: Progress | None = None) -> Relabelling:
        """The optimum with other labels of some samples, in the model's classes.

        Whoever asks for the training images later must give them with the new labels.

        Args:
            labels: by id or number of the sample.
            train: the training data with the labels of before, where they have moved or were in memory.
            progress: where to report.
        """
        began, model, progress = time.perf_counter(), self._model(), self._shown(progress)
        check_trained(model, retrain=False)
        change = Change.of(model.train.ids, model.classes, relabel=labels)
        new = change.relabelled(torch.tensor(model.train.labels)).numpy()
        images, context = self._all_images(model, train, progress), self._context(model, progress)
        table = replace(model.train, labels=new)

        def relabelled(member: FittedModel, name: str) -> Changed:
            return relabel(member, new, lambda: images, context, name)

        after = change_model(model, relabelled, Now(lambda: images, table, np.arange(len(new))), context)
        self._adopt(after.model)
        self._kept_images = with_labels(images, new) if _in_memory(table) else None
        moved = int((new != model.train.labels).sum())
        relabelling = Relabelling(moved, len(new), after.outcomes, time.perf_counter() - began)
        progress.note(relabelling.sentence)
        return relabelling

    # --- steps --------------------------------------------------------------------------------------------------------

    _kept_images: Images | None = None
    """Training images in memory, for the next change; a folder is opened again."""
    _forgot = False
    """Whether a model before this one knew samples that it does not know."""
    _folders: frozenset[Path] = frozenset()
    """Where this model, or one before its changes, was read or written."""

    def _begin_again(self) -> None:
        """Before a fit: what comes knows nothing of what was."""
        if self._forgot or self._folders:
            self._forgot, self._folders = False, frozenset()

    def _without_traces(self, path: str | Path) -> None:
        """After saving: what lies beside one of its folders and knows forgotten samples."""
        path = Path(path)
        own = path.resolve()
        if self._forgot and own in self._folders:
            erased = erase_beside(path)
            if erased:
                self._shown(None).say(f"deleted beside `{path}`, since it knows what was forgotten: {listed(erased)}")
        self._folders |= {own}

    def _forgotten(
        self, model: Model, gone: np.ndarray, remaining: Images, retrain: bool, train: Any, progress: Progress
    ) -> After:
        context = self._context(model, progress)
        table = model.train.select(np.flatnonzero(~gone))

        def everything() -> Images:
            return self._all_images(model, train, progress)

        def leaving() -> Images | None:
            try:
                return self._remaining(model, ~gone, train, progress)
            except LQFError:
                progress.say("the forgotten images are not there any more; without them it takes a product more")
                return None

        def change(member: FittedModel, name: str) -> Changed:
            return forget(member, ~gone, remaining, context, everything, leaving, name)

        now = Now(lambda: remaining, table, np.flatnonzero(~gone))
        return change_model(model, change, now, context, retrain=retrain)

    def _fitted_again(self, model: Model, remaining: Images, progress: Progress) -> After:
        """A fit on what is left, in which nothing knows of the others."""
        place = {name: i for i, name in enumerate(model.train.ids)}
        rows = np.array([place[name] for name in remaining.samples.ids])
        samples = replace(remaining.samples, weights=own_weights(model)[rows])
        context = Context(model.settings, resolve_device(self.device), progress=progress)
        again = fit_model(samples, model.setup, context, Kept(source=model.train.source))
        known = model.train.select(np.array([place[name] for name in again.train.ids]))
        train = replace(again.train, added=known.added, origin=known.origin, shape=known.shape)
        return After(replace(again, train=train), (Outcome("model", REFITTED),), (None,))

    def _remaining(self, model: Model, gone: np.ndarray, train: Any, progress: Progress) -> Images:
        """The images of samples that are not in a mask; the others need not be there any more."""
        stays = np.flatnonzero(~gone)
        if train is None and self._has_images(model):
            assert self._kept_images is not None
            return select_images(self._kept_images, stays)
        left = replace(self._reading(model, train), train=model.train.select(stays))
        return open_training(left, train, None, progress)

    def _all_images(self, model: Model, train: Any, progress: Progress) -> Images:
        """All training images so far."""
        if train is None and self._has_images(model):
            assert self._kept_images is not None
            return self._kept_images
        return open_training(self._reading(model, train), train, None, progress)

    def _has_images(self, model: Model) -> bool:
        return self._kept_images is not None and self._kept_images.hashes == model.train.hashes

    def _new_images(self, model: Model, X: Any, y: Any, weights: Any, groups: Any, progress: Progress) -> Images:
        setup, options = model.setup, dict[str, Any](tensors=self.tensors, progress=progress)
        shape = model.train.shape
        if shape is not None and tuple(getattr(X, "shape", ())) == (1, *shape):
            X = [X[0]]  # one image: by its shape alone an array of one cannot be told from an image
        samples = load_samples(X, y, sample_weight=weights, groups=groups, **options)
        samples = samples.select(np.flatnonzero(samples.weights > 0))
        images = open_images(placed(model, samples), model.trained_on, strict=setup.strict, progress=progress)
        report_skipped(images, progress)
        check_new(model.train, images, files=isinstance(X, str) or hasattr(X, "__fspath__"))
        return images


def _in_memory(table: TrainingTable) -> bool:
    """Whether images are not to be found again by the model alone."""
    return None in (table.source, *table.added)
