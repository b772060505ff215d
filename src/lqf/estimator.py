"""`LQFClassifier`: the scikit-learn face of the library."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from lqf import storage
from lqf.analysis import Analysis, Influence, Information, WhatIf
from lqf.analysis.audit.audit import Audit, audit
from lqf.backbones import Backbone, load_backbone
from lqf.data import (
    Images,
    Preprocess,
    Samples,
    check_trainable,
    load_samples,
    load_unlabelled,
    open_images,
    open_shard,
)
from lqf.data.labels import class_array
from lqf.errors import LQFError
from lqf.evaluation.calibration import probabilities
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import Context, Model, climb, fit
from lqf.fitting.checkpoint import Checkpoint
from lqf.fitting.earlier import check_same
from lqf.fitting.rungs.plan import time_for
from lqf.fitting.training_data import open_training
from lqf.fitting.within_time import within_time
from lqf.linear.batch import usual_rows
from lqf.linear.targets import class_scores, decide
from lqf.runtime.deadline import Deadline
from lqf.runtime.device import computing, resolve_device
from lqf.runtime.distributed import ALONE, World
from lqf.runtime.out_of_memory import in_smaller_batches
from lqf.settings import Settings, Setup, described
from lqf.utils.progress import SILENT, Progress


class LQFClassifier:
    """Fine-tunes a pretrained network by solving one linear-quadratic problem.

    Nothing has to be tuned; every argument has a default that is chosen from the data where that is possible. A fitted
    model keeps the settings it was fitted by: changing arguments afterwards changes the next fit alone. Only ``device``
    and ``batch_size`` say how it is used, too.

    Example:
        >>> model = LQFClassifier("efficientnet_lite0").fit("photos/train")  # doctest: +SKIP
        >>> model.score("photos/test"), model.leave_one_out().error  # doctest: +SKIP

    Args:
    {arguments}

    Attributes:
        classes_: (n_classes,) class names or labels.
        report_: what the fit did: solver, weight decay, residual, leave-one-out error, times.
        fitted_: the model itself (`lqf.fitting.FittedModel`, or a `Stack` of several).
        analysis_: what `analyse` opened last; None: nothing yet.
    """

    def __init__(
        self,
        backbone: str | nn.Module = Setup.backbone,
        *,
        effort: str = Settings.effort,
        time_limit: str | float | None = Settings.time_limit,
        weights: str | Path | None = Setup.weights,
        leaky: bool = Setup.leaky,
        size: int | None = Setup.size,
        squash: bool = Setup.squash,
        views: str = Settings.views,
        crop_area: float = Setup.crop_area,
        crop_ratio: float = Setup.crop_ratio,
        device: str = Setup.device,
        strict: bool = Setup.strict,
        limit_per_class: int | None = Setup.limit_per_class,
        solver: str = Settings.solver,
        predict_views: str = Settings.predict_views,
        pooling: str = Settings.pooling,
        pool_channels: int = Settings.pool_channels,
        linearize_reduction: bool = Settings.linearize_reduction,
        weight_decay: float | str = Settings.weight_decay,
        body_weight_decay: float | str = Settings.body_weight_decay,
        strengths: str = Settings.strengths,
        head: str = Settings.head,
        form: str = Settings.form,
        linearize: str = Settings.linearize,
        relinearize: int = Settings.relinearize,
        finetune_first: int = Settings.finetune_first,
        alpha: float = Settings.alpha,
        augment: str = Settings.augment,
        preconditioner: str = Settings.preconditioner,
        loo: str = Settings.loo,
        tol: float = Settings.tol,
        max_passes: int = Settings.max_passes,
        epochs: int = Settings.epochs,
        learning_rate: float | None = Settings.learning_rate,
        minibatch: int = Settings.minibatch,
        draws: int | None = Settings.draws,
        keep_for_questions: str = Settings.keep_for_questions,
        batch_size: int | None = Settings.batch_size,
        dtype: str = Settings.dtype,
        precision: str = Settings.precision,
        compile: str = Settings.compile,
        seed: int = Settings.seed,
    ):
        self.backbone = backbone
        self.effort = effort
        self.time_limit = time_limit
        self.weights = weights
        self.leaky = leaky
        self.size = size
        self.squash = squash
        self.views = views
        self.crop_area = crop_area
        self.crop_ratio = crop_ratio
        self.device = device
        self.strict = strict
        self.limit_per_class = limit_per_class
        self.solver = solver
        self.predict_views = predict_views
        self.pooling = pooling
        self.pool_channels = pool_channels
        self.linearize_reduction = linearize_reduction
        self.weight_decay = weight_decay
        self.body_weight_decay = body_weight_decay
        self.strengths = strengths
        self.head = head
        self.form = form
        self.linearize = linearize
        self.relinearize = relinearize
        self.finetune_first = finetune_first
        self.alpha = alpha
        self.augment = augment
        self.preconditioner = preconditioner
        self.loo = loo
        self.tol = tol
        self.max_passes = max_passes
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.minibatch = minibatch
        self.draws = draws
        self.keep_for_questions = keep_for_questions
        self.batch_size = batch_size
        self.dtype = dtype
        self.precision = precision
        self.compile = compile
        self.seed = seed

    # --- scikit-learn's conventions -----------------------------------------------------------------------------------

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [n for n in inspect.signature(cls.__init__).parameters if n != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All constructor arguments."""
        return {n: getattr(self, n) for n in self._parameter_names()}

    def set_params(self, **params: Any) -> LQFClassifier:
        """Change constructor arguments, for the next fit."""
        known = self._parameter_names()
        for name, value in params.items():
            if name not in known:
                raise LQFError(f"LQFClassifier has no parameter `{name}`; it has {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        """Declare a classifier to scikit-learn, which is installed if it asks."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        tags = Tags(
            estimator_type="classifier", target_tags=TargetTags(required=False), input_tags=InputTags(two_d_array=False)
        )
        tags.classifier_tags = ClassifierTags()
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        """Whether `fit` or `load` has been called."""
        return hasattr(self, "fitted_")

    def __repr__(self) -> str:
        signature = inspect.signature(type(self).__init__).parameters
        changed = [
            f"{n}={v!r}"
            for n, v in self.get_params().items()
            if v is not signature[n].default and v != signature[n].default
        ]
        return f"LQFClassifier({', '.join(changed)})"

    # --- fitting ------------------------------------------------------------------------------------------------------

    @computing
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
        keep: Callable[[Model], None] | None = None,
        earlier: Model | None = None,
        began: float | None = None,
        progress: Progress = SILENT,
        world: World = ALONE,
    ) -> LQFClassifier:
        """Fit the best model that effort and time allow, or the one that the settings name.

        Args:
            X: a folder CLASS/*.jpg, a CSV manifest, a torch Dataset, or images or tensors as one array.
            y: labels, where X has none.
            sample_weight: (N,) weights of the samples.
            groups: (N,) samples of one group are left out together.
            checkpoint: file in which a long solve keeps what it has reached; it stays until you delete it, so that a
                model that could not be saved is not lost.
            resume: continue from that file.
            keep: called with the best model so far, e.g. to save it, whenever there is a better one.
            earlier: a model of the same data and settings to climb on from, `fitted_` of another one.
            began: moment of `time.monotonic` from which on ``time_limit`` counts; default: now.
            progress: where to report, e.g. `lqf.utils.progress.terminal_progress()`.
            world: the processes that share the work, all of which call this with the same arguments
                (`lqf.runtime.distributed.joined`); default: this one alone.
        """
        settings, setup = self._of(Settings), self._of(Setup)
        device = world.device or resolve_device(self.device)
        deadline = Deadline.after(time_for(settings, device.type == "cuda") if settings.climbs else None, began)
        _check_solver(settings, world)
        samples = load_samples(
            X,
            y,
            sample_weight=sample_weight,
            groups=groups,
            limit_per_class=setup.limit_per_class,
            seed=settings.seed,
            progress=progress,
        )
        samples = samples.select(np.flatnonzero(samples.weights > 0))  # weight zero is absent
        check_trainable(samples)
        backbone = load_backbone(setup.backbone, weights=setup.weights, leaky=setup.leaky, seed=settings.seed)
        views: Any = "none" if settings.views == "auto" else settings.views
        preprocess = backbone.preprocess(
            size=setup.size,
            squash=setup.squash,
            views=views,
            crop_area=setup.crop_area,
            crop_ratio=setup.crop_ratio,
        )
        world.same("data, settings and network", [samples.ids, settings.to_dict(), backbone.spec["state_sha256"]])
        context = Context(settings, device, world, progress, deadline=deadline)
        given, pace = len(samples), None
        if earlier is None:
            samples, pace = within_time(samples, preprocess, backbone, context)
        images = open_shard(samples, preprocess, world, strict=setup.strict, progress=progress)
        _report_skipped(images, progress)
        for sentence in check_trainable(images.samples):
            progress.say(sentence)
        if checkpoint is not None:
            fingerprint = _fingerprint(images, settings, backbone.spec, preprocess)
            context = replace(context, checkpoint=Checkpoint(Path(checkpoint), fingerprint, resume=resume))
        source = str(X) if isinstance(X, str | Path) else None

        def named(model: Model) -> Model:
            report = model.report if len(samples) == given else replace(model.report, images_given=given)
            return replace(model, train=replace(model.train, source=source), setup=setup, report=report)

        if settings.climbs:
            better = keep and (lambda model: keep(named(model)))
            if earlier is not None:
                check_same(earlier, images, settings, backbone, preprocess)
            fitted = climb(images, backbone, preprocess, context, keep=better, earlier=earlier, pace=pace)
        else:
            fitted = _fit_one(images, backbone, preprocess, context)
        self._adopt(fitted if fitted is earlier else named(fitted))
        return self

    def _of(self, kind: type[Any]) -> Any:
        """The arguments that are fields of `Settings` or `Setup`."""
        return kind(**{f.name: getattr(self, f.name) for f in fields(kind)})

    def _adopt(self, fitted: Model) -> None:
        self.fitted_ = fitted
        self.analysis_: Analysis | None = None
        self.report_ = fitted.report.to_dict()
        self.classes_ = class_array(fitted.classes)

    # --- using --------------------------------------------------------------------------------------------------------

    def decision_function(self, X: Any, *, progress: Progress = SILENT) -> np.ndarray:
        """The model's outputs: (N,) for two classes (positive: the second), (N, n_classes) otherwise."""
        outputs = self._outputs(self._open(X, progress), progress).numpy()
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    def predict(self, X: Any, *, progress: Progress = SILENT) -> np.ndarray:
        """(N,) predicted classes."""
        index = decide(self._outputs(self._open(X, progress), progress)).numpy()
        return self.classes_[index]

    def predict_proba(self, X: Any, *, progress: Progress = SILENT) -> np.ndarray:
        """(N, n_classes) probabilities, calibrated on the leave-one-out outputs."""
        return probabilities(self._outputs(self._open(X, progress), progress), self._model().beta).numpy()

    def scores(self, images: Images, *, progress: Progress = SILENT) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Predicted index (N,), score and probability of every class (N, n_classes), of opened images in one pass."""
        outputs = self._outputs(images, progress)
        fitted = self._model()
        scores = class_scores(outputs, fitted.alpha)
        return decide(outputs).numpy(), scores.numpy(), probabilities(outputs, fitted.beta).numpy()

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, *, progress: Progress = SILENT) -> float:
        """Accuracy on labelled images."""
        samples = load_samples(X, y, sample_weight=sample_weight, classes=self._labels_as_given(y))
        images = self.open(samples, progress=progress)
        if not images.samples.weights.any():
            raise LQFError("all sample weights are zero; the accuracy needs at least one image that counts")
        right = decide(self._outputs(images, progress)).numpy() == images.samples.labels
        return float(np.average(right, weights=images.samples.weights))

    def leave_one_out(self) -> LeaveOneOut:
        """Out-of-sample outputs of the training samples, from the solved problem itself."""
        fitted = self._model()
        if fitted.loo is None and fitted.report.error is None and len(fitted.train.ids) == len(fitted.classes):
            raise LQFError("leave-one-out is not known with one image per class; use a labelled test set")
        if fitted.loo is None:
            raise LQFError(
                f"leave-one-out is not known for this fit (loo={fitted.settings.loo!r}); "
                "fit with loo='folds' or solver='head', or use a labelled test set"
            )
        return fitted.loo

    @computing
    def analyse(
        self,
        train: Any = None,
        y: Any = None,
        *,
        method: str = "auto",
        progress: Progress = SILENT,
    ) -> Analysis:
        """Open the training problem again, to ask what every sample does; it is kept for later questions.

        Args:
            train: the training data, where they have moved or were arrays; None: where they were at the fit. Labels,
                weights and groups are those of the fit.
            y: labels of ``train``, to be compared with those of the fit; they may be left out.
            method: "auto": as the model was fitted; "dense": exact, by the kernel of all (sample, output) pairs;
                "pcg": by iterative solves; "kfac": the paper's approximation.
            progress: where to report, for this analysis and all its answers.
        """
        fitted = self._model()
        images = open_training(fitted, train, y, progress)
        settings = replace(fitted.settings, batch_size=self.batch_size)
        context = Context(settings, resolve_device(self.device), progress=progress)
        self.analysis_ = Analysis.of(fitted, images, context, method)
        return self.analysis_

    def influence(self, images: Any, y: Any = None, **options: Any) -> Influence:
        """Effect of leaving out every training sample (or group) on these predictions; see `Analysis.influence`."""
        return self._analysis().influence(images, y, **options)

    def information(self, validation: Any = None, y: Any = None, **options: Any) -> Information:
        """How much every training sample says about these images; see `Analysis.information`."""
        return self._analysis().information(validation, y, **options)

    def what_if(self, images: Any, **change: Any) -> WhatIf:
        """Predictions of a model fitted on changed data; see `Analysis.what_if`."""
        return self._analysis().what_if(images, **change)

    def audit(self, train: Any = None, y: Any = None, *, similar: float = 0.9, progress: Progress = SILENT) -> Audit:
        """What the model says about its training data: wrong labels, near-duplicates, informative samples.

        Args:
            train: the training data, where they have moved or were arrays; see `analyse`.
            y: their labels.
            similar: least cosine of near-duplicates.
            progress: where to report.
        """
        self._model()
        fresh = self.analysis_ is None or train is not None
        return audit(self.analyse(train, y, progress=progress) if fresh else self._analysis(), similar=similar)

    def _analysis(self) -> Analysis:
        self._model()
        return self.analysis_ or self.analyse()

    def open(self, samples: Samples, *, strict: bool = False, progress: Progress = SILENT) -> Images:
        """Decode images the way the model was fitted."""
        images = open_images(samples, self._model().preprocess, strict=strict, progress=progress)
        _report_skipped(images, progress)
        return images

    @computing
    def features(self, images: Images, *, progress: Progress = SILENT) -> torch.Tensor:
        """(N, p) what the head sees of opened images, averaged over their views."""
        return self._in_fitting_batches(self._model().features, images, progress, "features")

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the model as a folder of safetensors, JSON and CSV."""
        storage.save(self._model(), path, overwrite=overwrite)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        backbone: nn.Module | None = None,
        weights: str | Path | None = None,
        device: str = "auto",
    ) -> LQFClassifier:
        """Read a saved model and verify all of its hashes.

        Args:
            path: the folder.
            backbone: the network, where it was given as a Python object.
            weights: the backbone's weights file, where it has moved.
            device: where to predict.
        """
        fitted = storage.load(path, backbone=backbone, weights=weights)
        params = {f.name: getattr(of, f.name) for of in (fitted.setup, fitted.settings) for f in fields(of)}
        model = cls(**params | {"device": device})
        model._adopt(fitted)
        return model

    def _model(self) -> Model:
        if not hasattr(self, "fitted_"):
            raise LQFError("this LQFClassifier is not fitted yet; call `fit` or `LQFClassifier.load` first")
        return self.fitted_

    def _labels_as_given(self, y: Any) -> Any:
        classes = self._model().classes
        return classes if y is None else self.classes_

    def _open(self, X: Any, progress: Progress) -> Images:
        """Images of any source; labels, if it has any, are ignored."""
        self._model()
        if isinstance(X, str | Path) and Path(X).suffix.lower() != ".csv":
            samples = load_unlabelled(X)
        else:
            samples = load_samples(X)
        return self.open(samples, strict=True, progress=progress)

    @computing
    def _outputs(self, images: Images, progress: Progress) -> torch.Tensor:
        return self._in_fitting_batches(self._model().outputs, images, progress, "predictions")

    def _in_fitting_batches(
        self, compute: Callable[..., torch.Tensor], images: Images, progress: Progress, what: str
    ) -> torch.Tensor:
        """A pass over images, in smaller batches where the memory does not suffice."""
        device = resolve_device(self.device)
        rows = self.batch_size or usual_rows(device)
        return in_smaller_batches(
            lambda n: compute(images, device=device, batch_size=n, progress=progress), rows, progress.say, what
        )


assert LQFClassifier.__doc__ is not None
LQFClassifier.__doc__ = LQFClassifier.__doc__.replace("    {arguments}", described(Setup, Settings))


def _fit_one(images: Images, backbone: Backbone, preprocess: Preprocess, context: Context) -> Model:
    """The one model that the settings name; in smaller batches where the memory does not suffice."""
    rows = context.settings.batch_size or usual_rows(context.device)

    def compute(n: int) -> Model:
        return fit(images, backbone, preprocess, context if n == rows else context.with_settings(batch_size=n))

    return in_smaller_batches(compute, rows, context.progress.say, "the fit")


def _fingerprint(images: Images, settings: Settings, spec: dict[str, Any], preprocess: Preprocess) -> dict[str, Any]:
    """What decides the problem that a checkpoint belongs to."""
    samples = images.samples
    return {
        "settings": settings.of_problem(),
        "backbone": spec.get("state_sha256"),
        "preprocess": preprocess.to_dict(),
        "hashes": list(images.hashes),
        "labels": samples.labels.tolist(),
        "weights": samples.weights.tolist(),
        "groups": samples.groups and list(samples.groups),
    }


def _check_solver(settings: Settings, world: World) -> None:
    if world.size > 1 and settings.finetune_first:
        raise LQFError("the fine-tuning of finetune_first runs in one process; start it without torchrun")
    if world.size > 1 and settings.solver in ("sgd", "adam"):
        raise LQFError(
            f"solver `{settings.solver}` takes small batches from all images, one after the other, and runs in one "
            "process; use `pcg`, or start it without torchrun"
        )


def _report_skipped(images: Images, progress: Progress) -> None:
    for sample, reason in images.skipped:
        progress.say(f"skipped `{sample}`: {reason}")
