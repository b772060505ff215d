"""Using a fitted model: predictions, scores, features, leave-one-out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from lqf.analysis import Analysis
from lqf.data import Images, Samples, check_kind, load_samples, load_unlabelled, open_images
from lqf.data.labels import class_array
from lqf.errors import LQFError, not_fitted
from lqf.estimator.fit import report_skipped
from lqf.estimator.parameters import Parameters
from lqf.evaluation.calibration import probabilities
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import Context, Model
from lqf.fitting.finite import about_convergence, check_outputs
from lqf.fitting.fitted_model import check_not_a_sum
from lqf.linear.batch import usual_rows
from lqf.linear.targets import class_scores, decide
from lqf.reports.html.notebook import model_view, unfitted_view
from lqf.runtime.device import computing, resolve_device
from lqf.runtime.distributed import ALONE, World
from lqf.runtime.out_of_memory import in_smaller_batches
from lqf.utils import naming
from lqf.utils.default_progress import default_progress
from lqf.utils.notebook import Shown, view_of
from lqf.utils.progress import Progress


class Predictor(Shown, Parameters):
    """What a model can do once there is one, in ``fitted_``."""

    fitted_: Model

    def __repr__(self) -> str:
        own = f"{type(self).__name__}({self._changed()})"
        return own if not hasattr(self, "fitted_") else f"{own}\n  fitted: {self.fitted_.headline}"

    def decision_function(self, X: Any, *, progress: Progress | None = None) -> np.ndarray:
        """The model's outputs: (N,) for two classes (positive: the second), (N, n_classes) otherwise."""
        outputs = self._outputs_of(X, progress).numpy()
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    def predict(self, X: Any, *, progress: Progress | None = None) -> np.ndarray:
        """(N,) predicted classes.

        Args:
            X: one image (a path, a PIL image, an array or tensor (H, W, 3) or (3, H, W)) is one prediction; many are a
                folder, a manifest, a data frame with a column path, or what `fit` takes; see
                `lqf.data.load_unlabelled`.
            progress: where to report.
        """
        index = decide(self._outputs_of(X, progress)).numpy()
        return self.classes_[index]

    def predict_proba(self, X: Any, *, progress: Progress | None = None) -> np.ndarray:
        """(N, n_classes) probabilities, calibrated on the leave-one-out outputs."""
        return probabilities(self._outputs_of(X, progress), self._model().beta).numpy()

    def transform(self, X: Any, *, progress: Progress | None = None) -> np.ndarray:
        """(N, p) features: what the model's last layer sees, averaged over an image's views.

        With a stack they are those of its main member.
        """
        progress = self._shown(progress)
        return self.features(self._open(X, progress), progress=progress).numpy()

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """(p,) names of the columns of `transform`."""
        features = self._model().main.head.shape[1] - 1
        return np.array([f"{type(self).__name__.lower()}{k}" for k in range(features)], dtype=object)

    def scores(self, images: Images, *, progress: Progress | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Predicted index (N,), score and probability of every class (N, n_classes), of opened images in one pass."""
        outputs = self._outputs(images, self._shown(progress))
        fitted = self._model()
        scores = class_scores(outputs, fitted.alpha)
        return decide(outputs).numpy(), scores.numpy(), probabilities(outputs, fitted.beta).numpy()

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, *, progress: Progress | None = None) -> float:
        """Accuracy on labelled images."""
        model, progress = self._model(), self._shown(progress)
        samples = load_samples(
            X,
            y,
            sample_weight=sample_weight,
            classes=model.classes if y is None else self.classes_,
            tensors=self.tensors,
            strict=model.setup.strict,
            progress=progress,
        )
        images = self.open(samples, progress=progress)
        if not images.samples.weights.any():
            raise LQFError("all sample weights are zero; the accuracy needs at least one image that counts")
        right = decide(self._outputs(images, progress)).numpy() == images.samples.labels
        return float(np.average(right, weights=images.samples.weights))

    def leave_one_out(self) -> LeaveOneOut:
        """Out-of-sample outputs of the training samples, from the solved problem itself."""
        fitted = self._model()
        check_not_a_sum(fitted.report)
        if fitted.report.not_the_fit:
            raise LQFError(f"{fitted.report.not_the_fit}; leave-one-out is not known, use a labelled test set")
        if fitted.loo is None and fitted.report.error is None and len(fitted.train.ids) == len(fitted.classes):
            raise LQFError("leave-one-out is not known with one image per class; use a labelled test set")
        if fitted.report.error_unknown:
            raise LQFError(f"{fitted.report.error_unknown}; use a labelled test set")
        if fitted.loo is None:
            raise LQFError(
                f"leave-one-out is not known for this fit ({naming.given('loo', fitted.settings.loo)}); fit with "
                f"{naming.given('loo', 'folds')} or {naming.given('solver', 'head')}, or use a labelled test set"
            )
        return fitted.loo

    def open(
        self, samples: Samples, *, strict: bool = False, jobs: int | None = None, progress: Progress | None = None
    ) -> Images:
        """Decode images the way the model was fitted, on ``jobs`` threads (default: one per processor)."""
        progress = self._shown(progress)
        check_kind(samples.source, self.tensors)
        images = open_images(samples, self._model().preprocess, strict=strict, workers=jobs, progress=progress)
        report_skipped(images, progress)
        return images

    @computing
    def features(self, images: Images, *, progress: Progress | None = None) -> torch.Tensor:
        """(N, p) what the head sees of opened images, averaged over their views."""
        return self._in_fitting_batches(self._model().features, images, self._shown(progress), "features")

    def _adopt(self, fitted: Model) -> None:
        self.fitted_ = fitted
        self.analysis_: Analysis | None = None
        self.report_ = fitted.report.to_dict()
        self.classes_ = class_array(fitted.classes)

    def with_model(self, fitted: Model) -> Self:
        """Another estimator with the same arguments, around another model (`fitted_` of one)."""
        other = type(self)(**self.get_params(deep=False))
        other._adopt(fitted)
        return other

    def _model(self) -> Model:
        if not hasattr(self, "fitted_"):
            name = type(self).__name__
            raise not_fitted(f"this {name} is not fitted yet; call `fit` or `{name}.load` first")
        return self.fitted_

    def _shown(self, progress: Progress | None) -> Progress:
        """Where one call reports."""
        return default_progress(self.verbose) if progress is None else progress

    def _open(self, X: Any, progress: Progress) -> Images:
        """One image or many, of any source; labels, if it has any, are ignored."""
        return self.open(self._unlabelled(X, progress, each=True), strict=True, progress=progress)

    def _unlabelled(self, X: Any, progress: Progress, *, each: bool = False) -> Samples:
        fitted = self._model()
        shape = fitted.train.shape if fitted.setup.tensors == self.tensors else None
        return load_unlabelled(X, tensors=self.tensors, fitted=shape, each=each, progress=progress)

    def _reading(self, model: Model, train: Any) -> Model:
        """A model that reads arrays as ``tensors`` says now: those saved by earlier versions do not know it."""
        if train is None or isinstance(train, str | Path):
            return model
        return replace(model, setup=replace(model.setup, tensors=self.tensors))

    def _context(self, model: Model, progress: Progress, world: World = ALONE) -> Context:
        """The settings of a model's fit, on the device and in the batches of now."""
        settings = replace(model.settings, batch_size=self.batch_size)
        return Context(settings, world.device or resolve_device(self.device), world, progress)

    def _outputs_of(self, X: Any, progress: Progress | None) -> torch.Tensor:
        progress = self._shown(progress)
        return self._outputs(self._open(X, progress), progress)

    @computing
    def _outputs(self, images: Images, progress: Progress) -> torch.Tensor:
        fitted = self._model()
        for sentence in about_convergence(fitted):
            progress.say(sentence)
        outputs = self._in_fitting_batches(fitted.outputs, images, progress, "predictions")
        check_outputs(outputs, images.samples.ids)
        return outputs

    def _in_fitting_batches(
        self, compute: Callable[..., torch.Tensor], images: Images, progress: Progress, what: str
    ) -> torch.Tensor:
        """A pass over images, in smaller batches where the memory does not suffice."""
        device = resolve_device(self.device)
        rows = self.batch_size or usual_rows(device)
        return in_smaller_batches(
            lambda n: compute(images, device=device, batch_size=n, progress=progress), rows, progress.say, what
        )


@view_of(Predictor)
def _view(model: Predictor) -> str:
    """In a notebook."""
    name, arguments = type(model).__name__, f"{type(model).__name__}({model._changed()})"
    return model_view(model.fitted_, name, arguments) if hasattr(model, "fitted_") else unfitted_view(name, arguments)
