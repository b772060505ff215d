"""`LQFClassifier`: the scikit-learn face of the library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from torch import nn

from lqf import storage
from lqf.changes.privacy.private_fit import budget_of, check_fit, fit_without_choice, private_settings
from lqf.data import load_samples
from lqf.estimator.arithmetic import Arithmetic
from lqf.estimator.asking import Asking
from lqf.estimator.changing import Changing
from lqf.estimator.constraining import Constraining
from lqf.estimator.exporting import Exporting
from lqf.estimator.fit import Kept, check_solver, fit_model
from lqf.estimator.suggesting import Suggesting
from lqf.estimator.to_file import ToFile
from lqf.estimator.tuning import Tuning
from lqf.estimator.unsure import Unsure
from lqf.fitting import Context, Model
from lqf.fitting.rungs.plan import time_for
from lqf.runtime.deadline import Deadline
from lqf.runtime.device import computing, resolve_device
from lqf.runtime.distributed import ALONE, World
from lqf.settings import Settings, Setup, described
from lqf.utils.progress import SILENT, Progress


class LQFClassifier(Tuning, Arithmetic, Unsure, Asking, Changing, Exporting, Constraining, Suggesting, ToFile):
    """Fine-tunes a pretrained network by solving one linear-quadratic problem.

    Nothing has to be tuned; every argument has a default that is chosen from the data where that is possible. A fitted
    model keeps the settings it was fitted by: changing arguments afterwards changes the next fit alone. Only
    ``device``, ``batch_size``, ``tensors`` and ``verbose`` say how it is used, too.

    Example:
        >>> model = LQFClassifier("efficientnet_lite0").fit("photos/train")  # doctest: +SKIP
        >>> model.score("photos/test"), model.leave_one_out().error  # doctest: +SKIP

    Args:
    {arguments}
        constraints: linear conditions on the outputs (`lqf.EqualMeans`, `Agree`, `KeepRight`, `Bound`), under which the
            fit ends at the optimum; see `constrain`. Where they contradict each other, `fit` says so and leaves the
            model without them.
        epsilon, delta: a budget of differential privacy: the fit ends at a model that may be released, with noise, of
            the head or, with the solver dense, of the whole; see `privatise`. What is left to ``auto`` is then not
            chosen by the images. ``report_["privacy"]`` names what is not private.

    Attributes:
        classes_: (n_classes,) class names or labels.
        report_: what the fit did: solver, weight decay, residual, leave-one-out error, times.
        fitted_: the model itself (`lqf.fitting.FittedModel`, or a `Stack` of several).
        analysis_: what `analyse` opened last; None: nothing yet.
    """

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
        progress: Progress | None = None,
        world: World = ALONE,
    ) -> Self:
        """Fit the best model that effort and time allow, or the one that the settings name.

        Args:
            X: a folder ``CLASS/*.jpg``, a CSV manifest, a data frame with the columns path and label, a map-style data
                set, images as one array or tensor along the first axis, or a list of paths or pictures; see
                `lqf.data.load_samples`.
            y: labels, where X has none.
            sample_weight: (N,) weights of the samples.
            groups: (N,) samples of one group are left out together.
            checkpoint: file in which a long solve keeps what it has reached; it stays until you delete it, so that a
                model that could not be saved is not lost.
            resume: continue from that file.
            keep: called with the best model so far, e.g. to save it, whenever there is a better one.
            earlier: a model of the same data and settings to climb on from, `fitted_` of another one.
            began: moment of `time.monotonic` from which on ``time_limit`` counts; default: now.
            progress: where to report, e.g. `lqf.utils.progress.terminal_progress()`; default: as ``verbose`` says.
            world: the processes that share the work, all of which call this with the same arguments
                (`lqf.runtime.distributed.joined`); default: this one alone.
        """
        progress = self._shown(progress if world.rank == 0 else SILENT)
        self._begin_again()
        settings, setup = self._of(Settings), self._of(Setup)
        budget = budget_of(self.epsilon, self.delta, settings)
        if budget is not None:
            settings = private_settings(settings, budget)
        device = world.device or resolve_device(self.device)
        deadline = Deadline.after(time_for(settings, device.type == "cuda") if settings.climbs else None, began)
        check_solver(settings, world)
        samples = load_samples(
            X,
            y,
            sample_weight=sample_weight,
            groups=groups,
            limit_per_class=setup.limit_per_class,
            seed=settings.seed,
            tensors=setup.tensors,
            strict=setup.strict,
            progress=progress,
        )
        if budget is not None:
            check_fit(budget, settings, samples, world, constrained=bool(self.constraints))
        source = str(X) if isinstance(X, str | Path) else None
        file = None if checkpoint is None else Path(checkpoint)
        context = Context(settings, device, world, progress, deadline=deadline)
        kept = Kept(checkpoint=file, resume=resume, better=keep, earlier=earlier, source=source)

        def fitted(settings: Settings) -> Model:
            return fit_model(samples, setup, replace(context, settings=settings), kept)

        if budget is None:
            self._adopt(fitted(settings))
        else:
            self._adopt(self._released(fit_without_choice(fitted, settings), budget, X, y, progress))
        return self.constrain(self.constraints, train=X, y=y, progress=progress) if self.constraints else self

    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> np.ndarray:
        """Fit, then `transform` the same images."""
        return self.fit(X, y, **options).transform(X)

    # --- on disk ------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the model as a folder of safetensors, JSON and CSV.

        A network of your own is code, which is not saved; `load` wants it again, and saving says so.
        """
        storage.save(self._model(), path, overwrite=overwrite)
        self._without_traces(path)
        sentence = storage.about_loading(self._model(), path)
        if sentence is not None:
            self._shown(None).say(sentence)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        backbone: nn.Module | None = None,
        weights: str | Path | None = None,
        device: str = Setup.device,
        verbose: int = Setup.verbose,
    ) -> Self:
        """Read a saved model and verify all of its hashes.

        Args:
            path: the folder.
            backbone: the network, where it was given as a Python object.
            weights: the backbone's weights file, where it has moved.
            device: where to predict.
            verbose: 0: silent.
        """
        fitted = storage.load(path, backbone=backbone, weights=weights)
        params = {f.name: getattr(of, f.name) for of in (fitted.setup, fitted.settings) for f in fields(of)}
        params |= {name: (fitted.report.privacy or {}).get(name) for name in ("epsilon", "delta")}
        model = cls(**params | {"device": device, "verbose": verbose})
        model._adopt(fitted)
        model._folders = frozenset({Path(path).resolve()})
        return model


assert LQFClassifier.__doc__ is not None
LQFClassifier.__doc__ = LQFClassifier.__doc__.replace("    {arguments}", described(Setup, Settings))
