"""From what a user gives to a fitted model: samples, network, preprocessing, and the climb or the one fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lqf.backbones import Backbone, load_backbone
from lqf.data import Images, Preprocess, Samples, check_trainable, open_shard
from lqf.errors import LQFError
from lqf.fitting import Context, Model, climb, fit
from lqf.fitting.checkpoint import Checkpoint
from lqf.fitting.class_weights import about_unequal, check_class_weight, class_weights, with_class_weights
from lqf.fitting.context import Clock
from lqf.fitting.earlier import check_same
from lqf.fitting.sound import check_weights
from lqf.fitting.within_time import within_time
from lqf.linear.batch import usual_rows
from lqf.runtime.distributed import World
from lqf.runtime.out_of_memory import in_smaller_batches
from lqf.settings import Settings, Setup
from lqf.utils import naming
from lqf.utils.progress import Progress
from lqf.utils.text import one_line


@dataclass(frozen=True)
class Kept:
    """What a fit keeps for later, and goes on from.

    Attributes:
        checkpoint: file in which a long solve keeps what it has reached; None: nowhere.
        resume: continue from that file.
        better: called with every better model.
        earlier: a model to climb on from.
        source: the folder or manifest of the training data; None: they were in memory.
    """

    checkpoint: Path | None = None
    resume: bool = False
    better: Callable[[Model], None] | None = None
    earlier: Model | None = None
    source: str | None = None


def fit_model(samples: Samples, setup: Setup, context: Context, kept: Kept) -> Model:
    """The model of labelled samples, by the settings of the context."""
    settings, world, progress = context.settings, context.world, context.progress
    samples = samples.select(np.flatnonzero(samples.weights > 0))  # weight zero is absent
    check_trainable(samples)
    check_class_weight(settings.class_weight, samples.classes)
    backbone = load_backbone(setup.backbone, weights=setup.weights, leaky=setup.leaky, seed=settings.seed)
    preprocess = _preprocess(backbone, settings, setup)
    world.same("data, settings and network", [samples.ids, settings.to_dict(), backbone.spec["state_sha256"]])
    given, pace = len(samples), None
    if kept.earlier is None:
        samples, pace = within_time(samples, preprocess, backbone, context)
    images = open_shard(samples, preprocess, world, strict=setup.strict, progress=progress)
    report_skipped(images, progress)
    for sentence in check_trainable(images.samples, strict=setup.strict):
        progress.say(sentence)
    if unequal := about_unequal(images.samples, settings):
        progress.say(unequal)
    of_classes = class_weights(settings.class_weight, images.samples)
    images = with_class_weights(images, of_classes)
    check_weights(images.samples)
    context = replace(context, clock=Clock())  # the time of the fit begins with the images
    context = _with_checkpoint(context, kept, images, backbone, preprocess)

    def named(model: Model) -> Model:
        part = given if len(samples) < given else None
        report = replace(model.report, class_weights=of_classes, images_given=part)
        train = replace(model.train, source=kept.source, shape=samples.source.shape)
        return replace(model, train=train, setup=setup, report=report)

    if not settings.climbs:
        return named(_fit_one(images, backbone, preprocess, context))
    better, earlier = kept.better, kept.earlier
    if earlier is not None:
        check_same(earlier, images, settings, backbone, preprocess)
    keep = better and (lambda model: better(named(model)))
    fitted = climb(images, backbone, preprocess, context, keep=keep, earlier=earlier, pace=pace)
    return fitted if fitted is earlier else named(fitted)


def _preprocess(backbone: Backbone, settings: Settings, setup: Setup) -> Preprocess:
    views: Any = "none" if settings.views == "auto" else settings.views
    return backbone.preprocess(
        size=setup.size,
        squash=setup.squash,
        views=views,
        crop_area=setup.crop_area,
        crop_ratio=setup.crop_ratio,
    )


def _with_checkpoint(
    context: Context, kept: Kept, images: Images, backbone: Backbone, preprocess: Preprocess
) -> Context:
    if kept.checkpoint is None:
        return context
    fingerprint = _fingerprint(images, context.settings, backbone.spec, preprocess)
    return replace(context, checkpoint=Checkpoint(kept.checkpoint, fingerprint, resume=kept.resume))


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


def check_solver(settings: Settings, world: World) -> None:
    """Refuse what cannot be shared by many processes."""
    if world.size > 1 and settings.finetune_first:
        raise LQFError(
            f"the fine-tuning of {naming.name('finetune_first')} runs in one process; start it without torchrun"
        )
    if world.size > 1 and settings.solver in ("sgd", "adam"):
        raise LQFError(
            f"solver `{settings.solver}` takes small batches from all images, one after the other, and runs in one "
            "process; use `pcg`, or start it without torchrun"
        )


def report_skipped(images: Images, progress: Progress) -> None:
    """Name the images that could not be read."""
    for sample, reason in images.skipped:
        progress.say(f"skipped `{one_line(sample)}`: {reason}")
