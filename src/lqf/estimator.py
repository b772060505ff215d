"""`LQFClassifier`: the scikit-learn face of the library."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from lqf import storage
from lqf.analysis import Analysis, Influence, Information, WhatIf, open_training
from lqf.backbones import load_backbone
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
from lqf.errors import LQFError
from lqf.evaluation.calibration import probabilities
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting.checkpoint import Checkpoint
from lqf.fitting.fitted_model import Fitted
from lqf.fitting.pipeline import Fit
from lqf.linear.batch import usual_rows
from lqf.linear.targets import class_scores, decide
from lqf.runtime.device import computing, resolve_device
from lqf.runtime.distributed import ALONE, World
from lqf.settings import Settings
from lqf.utils.progress import SILENT, Progress

if TYPE_CHECKING:
    from lqf.analysis.audit import Audit


class LQFClassifier:
    """Fine-tunes a pretrained network by solving one linear-quadratic problem.

    Nothing has to be tuned; every argument has a default that is chosen from the data where that is possible.

    Example:
        >>> model = LQFClassifier("efficientnet_lite0").fit("photos/train")  # doctest: +SKIP
        >>> model.score("photos/test"), model.leave_one_out().error  # doctest: +SKIP

    Args:
        backbone: a name (`lqf.backbones.available()`), "timm:NAME", "torchvision:NAME", or any nn.Module that ends in a
            linear layer.
        weights: the backbone's weights file, where it is not a package's; "random" for random weights.
        leaky: swap ReLU for leaky ReLU before linearising.
        size: side of the input in pixels; None: what the backbone was trained with.
        squash: resize images to a square, as the paper does, instead of keeping their aspect and cutting the middle.
        views: fixed views of every image: "none", "flip", "five", "ten" or "resized"; "auto": "flip" where
            leave-one-out says that it helps, else "none".
        device: "auto", "cpu", "cuda", "cuda:1", …
        strict: refuse damaged images instead of skipping them.
        limit_per_class: use at most this many images of every class.
        solver, pooling, pool_channels, linearize_reduction, weight_decay, body_weight_decay, head, form, linearize,
            relinearize, finetune_first, alpha, augment, preconditioner, loo, tol, max_passes, epochs, learning_rate,
            minibatch, draws, batch_size, dtype, precision, compile, seed: see `lqf.settings.Settings`.

    Attributes:
        classes_: (n_classes,) class names or labels.
        report_: what the fit did: solver, weight decay, residual, leave-one-out error, times.
        fitted_: the model itself (`lqf.fitting.fitted_model.Fitted`).
        analysis_: what `analyse` opened last; None: nothing yet.
    """

    def __init__(
        self,
        backbone: str | nn.Module = "efficientnet_lite0",
        *,
        weights: str | Path | None = None,
        leaky: bool = True,
        size: int | None = None,
        squash: bool = False,
        views: str = "auto",
        device: str = "auto",
        strict: bool = False,
        limit_per_class: int | None = None,
        solver: str = "auto",
        pooling: str = "auto",
        pool_channels: int = 256,
        linearize_reduction: bool = False,
        weight_decay: float | str = "auto",
        body_weight_decay: float | str = "auto",
        head: str = "crossfit",
        form: str = "centred",
        linearize: str = "all",
        relinearize: int = 0,
        finetune_first: int = 0,
        alpha: float = 15.0,
        augment: str = "none",
        preconditioner: str = "kfac",
        loo: str = "auto",
        tol: float = 2e-2,
        max_passes: int = 40,
        epochs: int = 30,
        learning_rate: float | None = None,
        minibatch: int = 28,
        draws: int | None = 4,
        batch_size: int | None = None,
        dtype: str = "float32",
        precision: str = "auto",
        compile: str = "auto",
        seed: int = 0,
    ):
        self.backbone = backbone
        self.weights = weights
        self.leaky = leaky
        self.size = size
        self.squash = squash
        self.views = views
        self.device = device
        self.strict = strict
        self.limit_per_class = limit_per_class
        self.solver = solver
        self.pooling = pooling
        self.pool_channels = pool_channels
        self.linearize_reduction = linearize_reduction
        self.weight_decay = weight_decay
        self.body_weight_decay = body_weight_decay
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
        """Change constructor arguments."""
        known = self._parameter_names()
        for name, value in params.items():
            if name not in known:
                raise LQFError(f"LQFClassifier has no parameter `{name}`; it has {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn (if it is asking, it is installed) that this is a classifier."""
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
        progress: Progress = SILENT,
        world: World = ALONE,
    ) -> LQFClassifier:
        """Find the optimum.

        Args:
            X: a folder CLASS/*.jpg, a CSV manifest, a torch Dataset, or images or tensors as one array.
            y: labels, where X has none.
            sample_weight: (N,) weights of the samples.
            groups: (N,) samples of one group are left out together.
            checkpoint: file in which a long solve keeps what it has reached; it stays until you delete it, so that a
                model that could not be saved is not lost.
            resume: continue from that file.
            progress: where to report, e.g. `lqf.utils.progress.terminal_progress()`.
            world: the processes that share the work, all of which call this with the same arguments
                (`lqf.runtime.distributed.joined`); default: this one alone.
        """
        settings, device = self._settings(), world.device or resolve_device(self.device)
        _check_solver(settings, world)
        samples = load_samples(
            X,
            y,
            sample_weight=sample_weight,
            groups=groups,
            limit_per_class=self.limit_per_class,
            seed=self.seed,
            progress=progress,
        )
        samples = samples.select(np.flatnonzero(samples.weights > 0))  # weight zero is absent
        check_trainable(samples)
        backbone = load_backbone(self.backbone, weights=self.weights, leaky=self.leaky, seed=self.seed)
        preprocess = Preprocess(
            size=backbone.size if self.size is None else self.size,
            interpolation=backbone.interpolation,
            mean=backbone.mean,
            std=backbone.std,
            keep_aspect=not self.squash,
            views="none" if settings.views == "auto" else settings.views,  # type: ignore[arg-type]
        )
        world.same("data, settings and network", [samples.ids, settings.to_dict(), backbone.spec["state_sha256"]])
        images = open_shard(samples, preprocess, world, strict=self.strict, progress=progress)
        _report_skipped(images, progress)
        check_trainable(images.samples)
        keep = None
        if checkpoint is not None:
            keep = Checkpoint(Path(checkpoint), self._fingerprint(images, backbone.spec, preprocess))
        fitted = Fit(settings, backbone, images, preprocess, device, keep, resume, progress, world).run()
        fitted.train.source = str(X) if isinstance(X, str | Path) else None
        self._adopt(fitted)
        return self

    def _settings(self) -> Settings:
        own = self.get_params()
        return Settings(**{n: own[n] for n in Settings.__dataclass_fields__})

    def _fingerprint(self, images: Images, spec: dict[str, Any], preprocess: Preprocess) -> dict[str, Any]:
        samples = images.samples
        settings = self._settings().to_dict()
        for irrelevant in ("tol", "max_passes", "batch_size", "precision", "compile", "loo"):
            settings.pop(irrelevant)
        return {
            "settings": settings,
            "backbone": spec.get("state_sha256"),
            "preprocess": preprocess.to_dict(),
            "hashes": list(images.hashes),
            "labels": samples.labels.tolist(),
            "weights": samples.weights.tolist(),
            "groups": samples.groups and list(samples.groups),
        }

    def _adopt(self, fitted: Fitted) -> None:
        self.fitted_ = fitted
        self.analysis_: Analysis | None = None
        self.report_ = fitted.report
        self.classes_ = _class_array(fitted.classes)

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
        loo = self._model().loo
        if loo is None:
            raise LQFError(
                f"leave-one-out is not known for this fit (loo={self.loo!r}); "
                "fit with loo='folds' or solver='head', or use a labelled test set"
            )
        return loo

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
        self.analysis_ = Analysis.of(fitted, images, self._settings(), resolve_device(self.device), method, progress)
        return self.analysis_

    def influence(self, images: Any, y: Any = None, **options: Any) -> Influence:
        """Effect of leaving out every training sample (or group) on these predictions; see `Analysis.influence`."""
        return self._analysis().influence(images, y, **options)

    def information(self, validation: Any = None, y: Any = None, **options: Any) -> Information:
        """How much every training sample tells about these images; see `Analysis.information`."""
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
        from lqf.analysis.audit import audit

        self._model()
        fresh = self.analysis_ is None or train is not None
        return audit(self, self.analyse(train, y, progress=progress) if fresh else self._analysis(), similar=similar)

    def _analysis(self) -> Analysis:
        self._model()
        return self.analysis_ or self.analyse()

    def open(self, samples: Samples, *, strict: bool = False, progress: Progress = SILENT) -> Images:
        """Decode images the way the model was fitted."""
        images = open_images(samples, self._model().preprocess, strict=strict, progress=progress)
        _report_skipped(images, progress)
        return images

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the model as a folder of safetensors, JSON and CSV."""
        plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in self.get_params().items()}
        params = {k: v if isinstance(v, str | int | float | bool | None) else str(v) for k, v in plain.items()}
        storage.save(self._model(), path, settings=params, overwrite=overwrite)

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
        fitted, params = storage.load(path, backbone=backbone, weights=weights)
        if backbone is not None:
            params["backbone"] = backbone
        if weights is not None:
            params["weights"] = str(weights)
        known = cls._parameter_names()
        model = cls(**{k: v for k, v in params.items() if k in known and k != "device"}, device=device)
        model._adopt(fitted)
        return model

    def _model(self) -> Fitted:
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
        device = resolve_device(self.device)
        return self._model().outputs(
            images,
            device=device,
            batch_size=self.batch_size or usual_rows(device),
            dtype=torch.float64 if self.dtype == "float64" else torch.float32,
            progress=progress,
        )


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


def _class_array(classes: tuple[str, ...]) -> np.ndarray:
    """Class names, as integers where they all are integers (arrays were fitted with integer labels)."""
    if all(re.fullmatch("0|-?[1-9][0-9]*", c) for c in classes):
        return np.array([int(c) for c in classes])
    return np.array(classes)
