"""An ordinarily fine-tuned network, from the closed-form head on: where a task is far from what the network knows.

It is trained once without each fold, and its outputs on the fold judge it on the samples that judge every rung. It has
no closed form, so that it answers no question about its training samples; in a stack the other members do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lqf.data import has_pixels, select_images
from lqf.fitting.assemble import assemble_finetuned
from lqf.fitting.finetuned import EPOCHS, Tuned, finetuned
from lqf.fitting.fitted_model import FittedModel
from lqf.fitting.folds import JUDGED, folds_needed
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.rungs.heads import HEAD, MANY_VIEWS
from lqf.fitting.rungs.rung import Attempt, Ground, Known, NotNow
from lqf.fitting.select_shown import Shown, select_shown
from lqf.fitting.training_set import TrainingSet
from lqf.settings import Settings

FINETUNED = "fine-tuned"


@dataclass(frozen=True)
class FineTunedRung:
    """All weights by SGD."""

    name: str = FINETUNED
    effort: str = "standard"
    kind: str = "finetuned"

    def seconds(self, ground: Ground) -> float:
        folds, total = _folds(ground.data), int(ground.data.folds.max()) + 1
        runs = 1 + folds * (1 - 1 / total)
        return ground.pace.seconds(self.kind, round(EPOCHS * runs * len(ground.data)))

    def attempt(self, ground: Ground) -> Attempt:
        base = ground.attempts.get(HEAD)
        if ground.data.alone:
            raise NotNow("cannot be judged with one image per class")
        if base is None or base.head is None:
            raise NotNow("begins at a head, and there is none")
        if ground.context.world.size > 1:
            raise NotNow("runs in one process")
        head, views = base.head, _views(ground)
        data = _in_one_view(head.data)
        rows = _without_folds(data, head, views)
        return self._judged(ground, select_shown(rows, views, ground.context.settings, ground.losses))

    def again(self, ground: Ground, tried: Known) -> Attempt:
        return self._judged(ground, Shown(tried.about["shown"], tried.outputs))

    def _judged(self, ground: Ground, shown: Shown) -> Attempt:
        """Nothing but its outputs is needed for what comes after."""
        head = ground.attempts[HEAD].head
        assert head is not None
        data = _in_one_view(head.data)
        about = {
            "views": "random crops" if has_pixels(data.images) else "none",
            "shown": shown.views,
            "pooling": head.acting.pooling,
            "stage": "all",
            "solver": "sgd",
        }
        return Attempt(
            self.name,
            shown.outputs,
            lambda: _finished(data, head, shown),
            about,
            to_finish=self.seconds(ground) / (1 + 0.8 * _folds(ground.data)),
        )


def _views(ground: Ground) -> str:
    """Views of predictions at the most."""
    given, data = ground.context.settings.views, ground.data
    return MANY_VIEWS if given == "auto" and has_pixels(data.images) else data.preprocess.views


def _folds(data: TrainingSet) -> int:
    return folds_needed(data.folds[:: data.n_views], JUDGED)


def _in_one_view(data: TrainingSet) -> TrainingSet:
    """Crops are drawn anew for every step; what is fixed is the centre. Nothing is linearised."""
    data = replace(data, context=data.context.with_settings(linearize=Settings.linearize))
    return data.with_views("none") if data.n_views > 1 else data


def _without_folds(data: TrainingSet, head: HeadFit, views: str) -> Tensor:
    """(N, V, C) outputs of every view of the samples, by networks without their fold; NaN where none was trained."""
    rows: Tensor | None = None
    context, folds = data.context, _folds(data)
    with context.progress.stage("fine-tuning without a fold", total=folds, unit="folds") as stage:
        for k in range(folds):
            left_out = (data.folds == k).numpy()
            quiet = replace(data, context=context.quiet())
            found = _tuned(quiet.some(~left_out), head).rows(select_images(data.images, left_out), views)
            if rows is None:
                rows = found.new_full((len(data), *found.shape[1:]), torch.nan)
            rows[torch.from_numpy(left_out)] = found
            stage.advance(1)
    assert rows is not None
    return rows


def _tuned(data: TrainingSet, head: HeadFit) -> Tuned:
    return finetuned(data, head.acting.backbone, head.acting.pooling)


def _finished(data: TrainingSet, head: HeadFit, shown: Shown) -> FittedModel:
    loo = data.left_out(shown.outputs, "estimated", "by networks that were fine-tuned without each fold")
    return assemble_finetuned(_tuned(data, head), loo, shown.views)
