"""Which backbone to take: every one's closed-form head on the same images, by its exact leave-one-out outputs.

Nothing is trained. A candidate costs one forward pass over the images and one factorisation; the cross-entropy of its
leave-one-out outputs, every sample at the temperature that the others chose, ranks it. The candidates are compared
sample by sample, so that the difference of two has a standard error of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from lqf.backbones import Backbone, available, load_backbone
from lqf.backbones.builtin import BUILTIN
from lqf.data import Images, Preprocess, Samples, check_trainable, load_samples, open_images
from lqf.errors import LQFError
from lqf.evaluation.paired import cross_fitted_losses
from lqf.fitting import Context, HeadFit, TrainingSet
from lqf.fitting.encoder import Encoder
from lqf.fitting.select_pooling import select_pooling
from lqf.linear.batch import usual_rows
from lqf.runtime.device import computing_on, resolve_device
from lqf.runtime.out_of_memory import in_smaller_batches
from lqf.selection.log_me import log_me
from lqf.selection.ranking import Candidate, Failed, Selection
from lqf.settings import PICTURES, Settings
from lqf.utils.default_progress import default_progress
from lqf.utils.progress import Progress

Named = str | nn.Module


def installed() -> tuple[str, ...]:
    """Built-in backbones whose weights are here."""
    return tuple(info.name for info in available() if info.available and info.name in BUILTIN)


def select(
    X: Any,
    y: Any = None,
    backbones: Sequence[Named] | None = None,
    *,
    sample_weight: Any = None,
    groups: Any = None,
    size: int | None = None,
    squash: bool = False,
    leaky: bool = True,
    pooling: str | None = None,
    limit_per_class: int | None = None,
    tensors: str = PICTURES,
    strict: bool = False,
    device: str = "auto",
    batch_size: int | None = None,
    dtype: str = Settings.dtype,
    seed: int = 0,
    progress: Progress | None = None,
) -> Selection:
    """Rank backbones by the exact leave-one-out of their closed-form heads on labelled images.

    Args:
        X: images, as `LQFClassifier.fit` takes them.
        y: labels, where X has none.
        backbones: names, NAME=FILE with a weights file, or networks of your own; default: the built-in ones whose
            weights are installed.
        sample_weight: (N,) weights of the samples.
        groups: (N,) samples of one group are left out together.
        size: side of all networks' input in pixels; default: each one's own.
        squash: resize to a square instead of cutting the middle out.
        leaky: replace ReLU by leaky ReLU, as a fit does.
        pooling: of all networks, as a fit takes it: "auto" compares averages and covariances; default: each one's own
            features, which is quicker.
        limit_per_class: use at most so many images of every class.
        tensors: what floating-point arrays hold; see `LQFClassifier`.
        strict: refuse images that cannot be read instead of leaving them out.
        device: where to compute.
        batch_size: images at a time.
        dtype: floating-point type of the features.
        seed: of random weights, and of the images that a limit keeps.
        progress: where to report.

    Raises:
        LQFError: where the images do not suffice, or no backbone could be tried.
    """
    progress = default_progress(1) if progress is None else progress
    wanted = _distinct(installed() if backbones is None else backbones)
    loaded = load_samples(
        X,
        y,
        sample_weight=sample_weight,
        groups=groups,
        limit_per_class=limit_per_class,
        seed=seed,
        tensors=tensors,
        strict=strict,
        progress=progress,
    )
    samples = loaded.select(loaded.weights > 0)  # weight zero is absent
    check_trainable(samples)
    settings = Settings(
        solver="head", views="none", pooling=pooling or "avg", batch_size=batch_size, dtype=dtype, seed=seed
    )
    context = Context(settings, resolve_device(device), progress=progress)
    trial = _Trial(samples, context, size, squash, leaky, pooling is None, strict)
    with computing_on(context.device):
        return trial.every(wanted)


def _distinct(backbones: Sequence[Named]) -> list[Named]:
    if isinstance(backbones, str | nn.Module):
        backbones = [backbones]
    names = [b for b in backbones if isinstance(b, str)]
    twice = next((b for b in names if names.count(b) > 1), None)
    if twice is not None:
        raise LQFError(f"the backbone `{twice}` is named twice; name each once")
    if not backbones:
        raise LQFError("no backbone was named, and none is installed; `lqf backbones` says how to get one")
    return list(backbones)


class _Refused(Exception):
    """A network is at fault, and not the images: the others can still be tried."""


@contextmanager
def _refusing() -> Iterator[None]:
    """What torch or a file of weights says against one network, as `_Refused`."""
    try:
        yield
    except (LQFError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise _Refused(reason) from error


@dataclass(frozen=True)
class _Trial:
    """Trying one backbone after the other on the same samples."""

    samples: Samples
    context: Context
    size: int | None
    squash: bool
    leaky: bool
    own_features: bool
    strict: bool

    def every(self, backbones: Sequence[Named]) -> Selection:
        """Those that fail are named."""
        tried: list[Candidate] = []
        failed: list[Failed] = []
        for given in backbones:
            name = given if isinstance(given, str) else f"module:{type(given).__qualname__}"
            try:
                tried.append(self.one(given))
            except _Refused as error:
                failed.append(Failed(name, str(error)))
        if not tried:
            raise LQFError("no backbone could be tried: " + "; ".join(f"`{f.name}`: {f.reason}" for f in failed))
        ranked = tuple(sorted(tried, key=lambda c: c.loss))
        return Selection(ranked, tuple(failed), self.samples.name, len(ranked[0].losses), self.samples.classes)

    def one(self, given: Named) -> Candidate:
        """Load, look, factorise; `_Refused` where the network is at fault, LQFError where the images are."""
        began, seed = time.perf_counter(), self.context.settings.seed
        name, weights = _parted(given)
        with _refusing():
            backbone = load_backbone(name, weights=weights, leaky=self.leaky, seed=seed)
        preprocess = backbone.preprocess(size=self.size, squash=self.squash)
        images = open_images(self.samples, preprocess, strict=self.strict, progress=self.context.progress)
        check_trainable(images.samples)
        data = TrainingSet.of(images, preprocess, self.context)
        if data.alone:
            raise LQFError(
                f"every class of {self.samples.name} has one image, or images of one group: leaving them out says "
                "nothing about a backbone; give more images of some classes"
            )
        with _refusing():
            head = self._head(backbone, images, preprocess)
        return _candidate(backbone, weights, head, time.perf_counter() - began)

    def _head(self, backbone: Backbone, images: Images, preprocess: Preprocess) -> HeadFit:
        """The closed-form head; in smaller batches where the memory does not suffice."""

        def compute(rows: int) -> HeadFit:
            context = self.context.with_settings(batch_size=rows)
            data = TrainingSet.of(images, preprocess, context)
            if not self.own_features:
                return select_pooling(data, backbone)
            encoder = Encoder(data, backbone)
            features = encoder.features()
            if not bool(torch.isfinite(features).all()):
                raise LQFError("its features are not finite")
            return HeadFit.of(encoder, "avg", features)

        rows = self.context.settings.batch_size or usual_rows(self.context.device)
        return in_smaller_batches(compute, rows, self.context.progress.say, f"`{backbone.name}`")


def _parted(given: Named) -> tuple[Named, str | None]:
    """A name, and the weights file after its equals sign."""
    if not isinstance(given, str):
        return given, None
    name, _, weights = given.partition("=")
    return name, weights or None


def _candidate(backbone: Backbone, weights: str | None, head: HeadFit, seconds: float) -> Candidate:
    data = head.data
    loo = data.left_out(data.judge.outputs(head.choice.e_loo), "exact")
    error, standard_error = loo.error, loo.standard_error
    return Candidate(
        name=backbone.name,
        weights=weights,
        outputs=loo.outputs,
        ridge=head.choice.mu,
        losses=cross_fitted_losses(loo.outputs, data.labels, data.sample_weights, data.folds),
        weighted=data.sample_weights,
        error=error,
        error_standard_error=standard_error,
        log_me=log_me(head.features, data.labels, len(data.classes)),
        seconds=seconds,
        parameters=sum(p.numel() for p in backbone.body.parameters()),
        size=data.preprocess.size,
        features=head.backbone.features,
    )
