"""An ordinarily fine-tuned network, from the closed-form head on: where a task is far from what the network knows.

It is trained once without each fold, and its outputs on the fold judge it on the samples that judge every rung. It has
no closed form, so that it answers no question about its training samples; in a stack the other members do.

At the highest effort the model is the mean of the network of all samples and of those without a fold, which are there
anyway: it is better than what judges it. Another one is trained at a lower rate, with derivatives through all of the
head's features: tasks near to what the network knows want to change it less, and the stack takes of both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lqf.backbones import Backbone
from lqf.backbones.average_pool import acting_through_all
from lqf.data import has_pixels, select_images
from lqf.fitting.assemble import assemble_finetuned
from lqf.fitting.finetuned import EPOCHS, Tuned, averaged, finetuned
from lqf.fitting.fitted_model import FittedModel
from lqf.fitting.folds import JUDGED, folds_needed
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.rungs.heads import HEAD, MANY_VIEWS
from lqf.fitting.rungs.rung import Attempt, EarlierAttempt, Ground, NotNow
from lqf.fitting.select_shown import Shown, select_shown
from lqf.fitting.training_set import TrainingSet
from lqf.settings import Settings

FINETUNED, LOWER_RATE = "fine-tuned", "fine-tuned, lower rate"
"""Names of the rungs."""
LOWER = 1 / 3
"""Rate of the second, over that of the first (`benchmarks/results/recipes-*.json`)."""


@dataclass(frozen=True)
class FineTunedRung:
    """All weights by SGD.

    Attributes:
        name: of the rung.
        effort: the least that includes it.
        averaged: whether the networks without a fold are a part of the model.
        lower: whether it is the one at a lower rate.
    """

    name: str = FINETUNED
    effort: str = "standard"
    averaged: bool = False
    lower: bool = False

    @property
    def kind(self) -> str:
        """The root of a covariance takes time, there and back."""
        return "finetuned through" if self.lower else "finetuned"

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
        views, networks = _views(ground), list[Tuned]()
        rows = self._without_folds(base.head, views, networks)
        shown = select_shown(rows, views, ground.context.settings, ground.losses, ground.data.judging)
        return self._judged(ground, shown, networks)

    def again(self, ground: Ground, tried: EarlierAttempt) -> Attempt:
        return self._judged(ground, Shown(tried.about["shown"], tried.outputs), [])

    def _judged(self, ground: Ground, shown: Shown, networks: list[Tuned]) -> Attempt:
        """Nothing but its outputs is needed for what comes after; ``networks``: without a fold, where they are kept."""
        head = ground.attempts[HEAD].head
        assert head is not None
        data = _in_one_view(head.data)
        about = {
            "views": "random crops" if has_pixels(data.images) else "none",
            "shown": shown.views,
            "pooling": self._under(head)[1],
            "stage": "all",
            "solver": "sgd",
        }
        return Attempt(
            self.name,
            shown.outputs,
            lambda: self._finished(head, shown, networks),
            about,
            to_finish=self.seconds(ground) / (1 + 0.8 * _folds(ground.data)),
        )

    def _without_folds(self, head: HeadFit, views: str, networks: list[Tuned]) -> Tensor:
        """(N, V, C) outputs of every view of the samples, by networks without their fold; NaN where none was trained.

        ``networks``: these are added to it, where they become a part of the model.
        """
        rows: Tensor | None = None
        data = _in_one_view(head.data)
        context, folds = data.context, _folds(data)
        with context.progress.stage("fine-tuning without a fold", total=folds, unit="folds") as stage:
            for k in range(folds):
                left_out = (data.folds == k).numpy()
                quiet = replace(data, context=context.quiet())
                tuned = self._tuned(quiet.some(~left_out), head)
                found = tuned.rows(select_images(data.images, left_out), views)
                if rows is None:
                    rows = found.new_full((len(data), *found.shape[1:]), torch.nan)
                rows[torch.from_numpy(left_out)] = found
                if self.averaged:
                    networks.append(tuned.put_away(data))
                stage.advance(1)
        assert rows is not None
        return rows

    def _tuned(self, data: TrainingSet, head: HeadFit) -> Tuned:
        return finetuned(data, *self._under(head), LOWER if self.lower else 1.0)

    def _under(self, head: HeadFit) -> tuple[Backbone, str]:
        """The network, and the name of the features under which it is trained."""
        if self.lower:
            return acting_through_all(head.backbone), head.pooling
        return head.acting.backbone, head.acting.pooling

    def _finished(self, head: HeadFit, shown: Shown, networks: list[Tuned]) -> FittedModel:
        data = _in_one_view(head.data)
        loo = data.left_out(shown.outputs, "estimated", "by networks that were fine-tuned without each fold")
        tuned = self._tuned(data, head)
        return assemble_finetuned(averaged([*networks, tuned]) if networks else tuned, loo, shown.views)


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
