"""The fine-tuned rung: judged by networks that were trained without the fold, each from a head of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from finetuned_models import CROPPED, short, training, tuned
from fits import CPU, convnet, data, network, pictures
from lqf.backbones import Backbone, load_backbone
from lqf.backbones.average_pool import acting_through_all
from lqf.data import load_samples, open_images, select_images
from lqf.fitting import FittedModel, TrainingSet
from lqf.fitting.finetuned import EPOCHS, Tuned, finetuned
from lqf.fitting.fitted_model import FINETUNING
from lqf.fitting.rungs.finetuned import FINETUNED, LOWER, LOWER_RATE, FineTunedRung, _in_one_view
from lqf.fitting.rungs.heads import HEAD, HeadRung
from lqf.fitting.rungs.pace import WORK, Pace
from lqf.fitting.rungs.rung import EarlierAttempt, Ground, NotNow
from lqf.runtime.deadline import OutOfTime
from lqf.runtime.distributed import World

N = 30
X, Y = pictures(N)
PACE = Pace(row=0.01, flops=1e12, device="cpu")
GIVEN: dict[str, Any] = {"weight_decay": 0.1, "pooling": "avg", "views": "auto", "predict_views": "same"}


@pytest.fixture(autouse=True)
def few_epochs() -> Iterator[None]:
    with short(2):
        yield


def ground(x: np.ndarray = X, y: np.ndarray = Y, *, head: bool = True, net: Any = None, **settings: Any) -> Ground:
    """With a head, where there is to be one."""
    start = Ground(training(x, y, **{**GIVEN, **settings}), load_backbone(net or convnet()), PACE)
    return replace(start.with_attempt(HeadRung().attempt(start)), best=HEAD) if head else start


def by_hand(there: Ground, k: int, views: str) -> torch.Tensor:
    """Outputs of a fold, by the network that was fine-tuned on all others."""
    gone = (there.data.folds == k).numpy()
    alone = tuned(there.data.some(~gone), there.backbone, epochs=2)
    return alone.rows(select_images(there.data.images, gone), views).mean(1)


# --- out of sample ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("views", ["auto", "flip", "none"])
def test_a_fold_s_outputs_are_those_of_a_network_that_was_trained_on_the_others(views: str) -> None:
    there = ground(views=views)
    one_view = replace(there, data=there.data.with_views("none"))
    attempt = FineTunedRung().attempt(there)
    shown = "crops8" if views == "auto" else views
    assert attempt.about["shown"] == shown
    assert attempt.outputs.shape == (N, 3)
    for k in range(5):
        here = one_view.data.folds == k
        assert torch.equal(attempt.outputs[here], by_hand(one_view, k, shown))


def test_labels_of_a_fold_do_not_reach_its_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    fold = ground(head=False).data.folds
    turned = np.where(fold == 2, (Y + 1) % 3, Y)
    monkeypatch.setattr(TrainingSet, "folds", fold)  # which are stratified by the labels
    a, b = (FineTunedRung().attempt(ground(X, y)).outputs for y in (Y, turned))
    assert torch.equal(a[fold == 2], b[fold == 2])
    for k in (0, 1, 3, 4):
        assert not torch.allclose(a[fold == k], b[fold == k], atol=1e-3)


def test_as_many_folds_are_left_out_as_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    there = ground()
    whole = FineTunedRung().attempt(there).outputs
    monkeypatch.setattr("lqf.fitting.rungs.finetuned.JUDGED", 7)  # two folds of six
    part = FineTunedRung().attempt(there).outputs
    known = there.data.folds < 2
    assert torch.equal(part.isnan().any(1), ~known)
    assert torch.equal(part[known], whole[known])


def test_views_of_predictions_are_those_with_the_lowest_loss() -> None:
    there = ground(predict_views="auto")
    attempt = FineTunedRung().attempt(there)
    every = {v: FineTunedRung().attempt(ground(predict_views=v)) for v in ("same", "flip", "none")}
    losses = {a.about["shown"]: float(there.losses(a.outputs).nanmean()) for a in every.values()}
    assert set(losses) == {"crops8", "flip", "none"}
    assert attempt.about["shown"] == min(losses, key=losses.__getitem__)
    assert float(there.losses(attempt.outputs).nanmean()) == min(losses.values())


# --- the model --------------------------------------------------------------------------------------------------------


def test_the_finished_model_is_the_network_of_all_samples() -> None:
    there = ground()
    attempt = FineTunedRung().attempt(there)
    model = attempt.finish()
    assert isinstance(model, FittedModel)
    expected = tuned(there.data, there.backbone, epochs=2)
    assert torch.equal(model.head, expected.head)
    assert (model.preprocess.views, model.trained_views, model.trained_on.views) == ("crops8", "none", "none")
    assert (model.report.solver, model.report.level, model.solved) == (FINETUNING, "estimated", False)
    assert model.loo is not None
    assert torch.equal(model.loo.outputs, attempt.outputs)
    assert model.report.loo_error == model.loo.error
    assert model.beta == model.loo.temperature()
    weights = sum(w.numel() for w in there.backbone.body.parameters())
    assert model.report.unknowns == weights + 3 * 6


def test_outputs_that_an_earlier_climb_has_found_are_taken_as_they_are() -> None:
    there = ground()
    first = FineTunedRung().attempt(there)
    again = FineTunedRung().again(there, EarlierAttempt(first.outputs + 1, {"shown": "flip"}))
    assert torch.equal(again.outputs, first.outputs + 1)
    model = again.finish()
    assert isinstance(model, FittedModel)
    assert torch.equal(model.head, first.finish().head)  # type: ignore[union-attr]
    assert model.preprocess.views == again.about["shown"] == "flip"


def test_tensors_have_one_view() -> None:
    there = ground(*data(24), net=network(), pooling="auto")
    attempt = FineTunedRung().attempt(there)
    assert (attempt.about["views"], attempt.about["shown"]) == ("none", "none")
    assert torch.equal(attempt.outputs[there.data.folds == 1], by_hand(there, 1, "none"))
    assert attempt.finish().preprocess.views == "none"


@pytest.mark.parametrize(("pooling", "name"), [("avg", "avg"), ("both", "avg"), ("bilinear", "bilinear")])
def test_the_features_are_those_that_the_network_s_weights_act_through(pooling: str, name: str) -> None:
    there = ground(pooling=pooling, pool_channels=3)
    head = there.attempts[HEAD].head
    assert head is not None
    with short(8):
        attempt = FineTunedRung().attempt(there)
        model = attempt.finish()
    assert isinstance(model, FittedModel)
    assert model.head.shape[1] - 1 == head.acting.features.shape[1] == (6 if pooling == "bilinear" else 5)
    assert model.report.pooling == attempt.about["pooling"] == name


# --- at the highest effort --------------------------------------------------------------------------------------------


def test_the_mean_with_the_networks_without_a_fold() -> None:
    there = ground(views="flip")
    alone, averaged = FineTunedRung().attempt(there), FineTunedRung(averaged=True).attempt(there)
    assert torch.equal(averaged.outputs, alone.outputs)
    new = open_images(load_samples(pictures(4, seed=9)[0]), replace(CROPPED, views="flip"))
    one_view = replace(there, data=there.data.with_views("none"))
    expected = [tuned(one_view.data, there.backbone, epochs=2).rows(new, "flip").mean(1)]
    for k in range(5):
        part = one_view.data.some((one_view.data.folds != k).numpy())
        expected.append(tuned(part, there.backbone, epochs=2).rows(new, "flip").mean(1))
    model = averaged.finish()
    found = model.outputs(new, device=CPU, batch_size=3)
    torch.testing.assert_close(found, torch.stack(expected).mean(0), rtol=1e-9, atol=1e-9)
    assert float((found - expected[0]).abs().max()) > 1e-3
    assert model.train.ids == there.data.images.samples.ids
    assert (model.report.n, model.report.moved["networks"]) == (N, 6)  # type: ignore[index]
    assert model.loo is not None
    assert torch.equal(model.loo.outputs, alone.outputs)


def test_what_an_earlier_climb_has_judged_is_not_trained_again_for_a_mean() -> None:
    there = ground()
    first = FineTunedRung().attempt(there)
    model = FineTunedRung(averaged=True).again(there, EarlierAttempt(first.outputs, first.about)).finish()
    assert torch.equal(model.head, first.finish().head)  # type: ignore[union-attr]


@pytest.mark.parametrize("pooling", ["avg", "both", "bilinear"])
def test_the_lower_rate_under_all_of_the_head_s_features(pooling: str) -> None:
    there = ground(pooling=pooling, pool_channels=3)
    head = there.attempts[HEAD].head
    assert head is not None
    rung = FineTunedRung(LOWER_RATE, "best", averaged=True, lower=True)
    with short(8):
        attempt = rung.attempt(there)
        model = attempt.finish()
    assert isinstance(model, FittedModel)
    assert attempt.about["pooling"] == model.report.pooling == pooling
    assert model.head.shape[1] - 1 == 6 * head.features.shape[1]
    one_view = _in_one_view(head.data)
    by_hand = at_the_lower_rate(one_view, acting_through_all(head.backbone), pooling)
    assert model.report.moved is not None
    assert model.report.moved["rate"] == by_hand.rate
    assert rung.seconds(there) > FineTunedRung().seconds(there)


def at_the_lower_rate(data: TrainingSet, backbone: Backbone, pooling: str) -> Tuned:
    with short(8):
        return finetuned(data, backbone, pooling, LOWER)


# --- where it cannot be -----------------------------------------------------------------------------------------------


def test_one_image_per_class_says_nothing_about_it() -> None:
    with pytest.raises(NotNow, match="one image per class"):
        FineTunedRung().attempt(ground(X[:3], Y[:3]))


def test_it_begins_at_a_head() -> None:
    with pytest.raises(NotNow, match="begins at a head"):
        FineTunedRung().attempt(ground(head=False))
    without = ground()
    attempts = {HEAD: replace(without.attempts[HEAD], head=None)}
    with pytest.raises(NotNow, match="begins at a head"):
        FineTunedRung().attempt(replace(without, attempts=attempts))


def test_it_runs_in_one_process() -> None:
    there = ground()
    many = replace(there.data, context=replace(there.context, world=World(0, 2)))
    with pytest.raises(NotNow, match="one process"):
        FineTunedRung().attempt(replace(there, data=many))


def test_it_is_given_up_when_the_time_is_up() -> None:
    there = ground()
    there.context.deadline.arm()
    there.context.deadline.at = 0.0
    with pytest.raises(OutOfTime):
        FineTunedRung().attempt(there)


# --- its time ---------------------------------------------------------------------------------------------------------


def test_its_time_grows_with_the_images_and_with_the_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = ground(head=False), ground(*pictures(4 * N), head=False)
    fixed = WORK["finetuned"]["cpu"][1]
    times = [FineTunedRung().seconds(g) - fixed for g in (few, many)]
    assert times[1] == pytest.approx(4 * times[0])
    passes = EPOCHS * (1 + 5 * 4 / 5)  # epochs, with all samples and without each of five folds
    assert times[0] == pytest.approx(WORK["finetuned"]["cpu"][0] * passes * N * PACE.row)
    monkeypatch.setattr("lqf.fitting.rungs.finetuned.JUDGED", 1)
    assert FineTunedRung().seconds(few) - fixed == pytest.approx(times[0] * (1 + 4 / 5) / 5)
    assert FineTunedRung().attempt(ground()).name == FINETUNED
