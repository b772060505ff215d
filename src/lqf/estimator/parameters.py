"""The arguments of `LQFClassifier`, by scikit-learn's conventions: read, changed and cloned by their names."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

from torch import nn

from lqf.changes.constraints.conditions import Constraint
from lqf.errors import LQFError
from lqf.settings import Settings, Setup


class Parameters:
    """What can be chosen; each argument is an attribute of the same name, and nothing is checked before `fit`."""

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
        tensors: str = Setup.tensors,
        device: str = Setup.device,
        verbose: int = Setup.verbose,
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
        class_weight: str | dict[Any, float] | None = Settings.class_weight,
        choose_by: str = Settings.choose_by,
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
        unconverged: str = Settings.unconverged,
        epochs: int = Settings.epochs,
        learning_rate: float | None = Settings.learning_rate,
        minibatch: int = Settings.minibatch,
        damping: float | None = Settings.damping,
        draws: int | None = Settings.draws,
        keep_for_questions: str = Settings.keep_for_questions,
        batch_size: int | None = Settings.batch_size,
        dtype: str = Settings.dtype,
        precision: str = Settings.precision,
        compile: str = Settings.compile,
        seed: int = Settings.seed,
        constraints: Sequence[Constraint] | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
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
        self.tensors = tensors
        self.device = device
        self.verbose = verbose
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
        self.class_weight = class_weight
        self.choose_by = choose_by
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
        self.unconverged = unconverged
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.minibatch = minibatch
        self.damping = damping
        self.draws = draws
        self.keep_for_questions = keep_for_questions
        self.batch_size = batch_size
        self.dtype = dtype
        self.precision = precision
        self.compile = compile
        self.seed = seed
        self.constraints = constraints
        self.epsilon = epsilon
        self.delta = delta

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [n for n in inspect.signature(cls.__init__).parameters if n != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All constructor arguments."""
        return {n: getattr(self, n) for n in self._parameter_names()}

    def set_params(self, **params: Any) -> Self:
        """Change constructor arguments, for the next fit."""
        known = self._parameter_names()
        for name, value in params.items():
            if name not in known:
                raise LQFError(f"{type(self).__name__} has no parameter `{name}`; it has {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        """Declare a classifier to scikit-learn, which is installed if it asks."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(two_d_array=False),
        )

    def __sklearn_is_fitted__(self) -> bool:
        """Whether `fit` or `load` has been called."""
        return hasattr(self, "fitted_")

    def _of(self, kind: type[Any]) -> Any:
        """The arguments that are fields of `Settings` or `Setup`."""
        return kind(**{f.name: getattr(self, f.name) for f in fields(kind)})

    def _changed(self) -> str:
        """The arguments that are not the defaults, as they are written."""
        known = inspect.signature(type(self).__init__).parameters
        return ", ".join(
            f"{n}={_brief(v)}"
            for n, v in self.get_params().items()
            if v is not known[n].default and not _same(v, known[n].default)
        )


def _same(value: Any, default: Any) -> bool:
    """Whether they are equal; an array, which has no one answer, is no default."""
    try:
        return bool(value == default)
    except ValueError:
        return False


def _brief(value: Any) -> str:
    """A network by its class: all of its layers would fill the screen."""
    return f"{type(value).__name__}(…)" if isinstance(value, nn.Module) else repr(value)
