"""The baseline: it learns, by the schedule and the loss it was given, and the same seed gives the same network."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fits import CPU, SHORT, SMALL, convnet, data, fine_tuned, network, opened, pictures
from lqf.backbones import load_backbone
from lqf.data import Preprocess
from lqf.data.crops import Windows, cut, random_crops, resize
from lqf.errors import LQFError
from lqf.training.finetune import FineTuning
from lqf.training.random_views import RandomViews
from lqf.utils.schedule import rate


@pytest.mark.parametrize("options", [{}, {"loss": "mse", "alpha": 1.0}, {"bn": "eval"}, {"schedule": "steps"}], ids=str)
def test_fine_tuning_learns(options: dict[str, Any]) -> None:
    model = fine_tuned(n=60, epochs=20, **options)
    assert len(model.losses) == 20
    assert model.losses[-1] < 0.7 * model.losses[0]
    assert model.error(opened(*pictures(30, seed=1), SMALL)) < 0.2  # chance: 0.67


def test_fine_tuning_learns_from_tensors() -> None:
    backbone, recipe = load_backbone(network()), FineTuning(**SHORT | {"epochs": 20, "augment": "none"})
    model = recipe.fit(backbone, opened(*data(60, signal=2.0), SMALL), SMALL, device=CPU)
    assert model.error(opened(*data(60, signal=2.0, seed=1), SMALL)) < 0.2
    with pytest.raises(LQFError, match="needs pictures"):
        FineTuning(**SHORT).fit(backbone, opened(*data(), SMALL), SMALL, device=CPU)


def test_fine_tuning_learns_in_bf16() -> None:
    assert fine_tuned(n=60, epochs=20, precision="bf16").error(opened(*pictures(30, seed=1), SMALL)) < 0.2


def test_the_same_seed_gives_the_same_network_and_leaves_the_generator_alone() -> None:
    before = torch.get_rng_state()
    one, two, other = fine_tuned(), fine_tuned(), fine_tuned(seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert one.losses == two.losses
    test = opened(*pictures(10, seed=1), SMALL)
    assert torch.equal(one.outputs(test), two.outputs(test))
    assert one.losses != other.losses


@pytest.mark.parametrize("bn", ["train", "eval"])
def test_batch_normalisation_keeps_its_statistics_in_eval_mode_only(bn: str) -> None:
    body: Any = fine_tuned(bn=bn).network.body
    given: Any = load_backbone(convnet()).body
    kept = torch.equal(body.bn.running_mean, given.bn.running_mean.float())
    assert kept == (bn == "eval")
    assert not torch.equal(body.bn.weight, given.bn.weight.float())  # scale and shift are trained either way


@pytest.mark.parametrize("leaky", [False, True])
def test_the_backbone_keeps_its_activation_and_its_weights(leaky: bool) -> None:
    backbone = load_backbone(convnet(), leaky=leaky)
    before = {n: w.clone() for n, w in backbone.body.state_dict().items()}
    model = FineTuning(**SHORT).fit(backbone, opened(*pictures(), SMALL), SMALL, device=CPU)
    assert any(isinstance(m, nn.LeakyReLU) for m in model.network.modules()) == leaky
    assert all(torch.equal(w, before[n]) for n, w in backbone.body.state_dict().items())
    assert not any(w.requires_grad for w in backbone.body.parameters())
    assert not model.network.training


def test_every_epoch_is_counted_where_batches_cross_it() -> None:
    assert len(fine_tuned(n=20, batch_size=6, epochs=3).losses) == 3  # 10 steps of 6
    assert len(fine_tuned(n=9, batch_size=64, epochs=3).losses) == 3  # a batch is never larger than the data


def test_schedules() -> None:
    assert [rate("cosine", t) for t in (0.0, 0.5, 1.0)] == pytest.approx([1, 0.5, 0])
    assert [rate("steps", t) for t in (0.0, 0.6, 0.7, 0.99)] == [1, 1, 0.1, 0.1]
    assert [rate("constant", t) for t in (0.0, 0.7, 1.0)] == [1, 1, 1]


def test_losses() -> None:
    f, y = torch.tensor([[0.0, 2.0], [1.0, 1.0]]), torch.tensor([1, 0])
    expected = [math.log(1 + math.exp(-2)), math.log(2)]
    assert FineTuning().losses(f, y).tolist() == pytest.approx(expected)
    assert FineTuning(loss="mse", alpha=3.0).losses(f, y).tolist() == pytest.approx([0.5, 2.5])


def test_weight_two_counts_like_a_sample_given_twice() -> None:
    f, y = opened(*pictures(6), SMALL), {"augment": "none", "batch_size": 8, "epochs": 1, "bn": "eval"}
    x, labels = pictures(6)
    index = np.array([0, 0, 1, 2, 3, 4, 5])
    object.__setattr__(f.samples, "weights", np.array([2.0, 1, 1, 1, 1, 1]))
    backbone, recipe = load_backbone(convnet()), FineTuning(**SHORT | y)
    one = recipe.fit(backbone, f, SMALL, device=CPU)
    two = recipe.fit(backbone, opened(x[index], labels[index], SMALL), SMALL, device=CPU)
    for a, b in zip(one.network.parameters(), two.network.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(LQFError, match="schedule is 'linear'; choose cosine, steps, constant"):
        FineTuning(schedule="linear")  # type: ignore[arg-type]


def test_crops_on_the_device_are_those_of_the_data_module() -> None:
    x, _ = pictures(7, side=10)
    whole = torch.from_numpy(x.transpose(0, 3, 1, 2).copy())
    expected = random_crops(whole, "crop", 8, torch.Generator().manual_seed(3))
    views = RandomViews(
        opened(x, np.arange(7), Preprocess(size=8, resize=10)), Preprocess(size=8, resize=10), "crop", CPU
    )
    windows = views.draw(7, torch.Generator().manual_seed(3))
    assert torch.equal(views.batch(torch.arange(7), windows), expected)
    views._held = None  # as where the images do not fit on the device
    assert torch.equal(views.batch(torch.arange(7), windows), expected)


def test_resized_windows() -> None:
    x = torch.randint(0, 256, (3, 3, 12, 12), dtype=torch.uint8)
    boxes = torch.tensor([[2, 1, 8, 8], [0, 4, 8, 8], [0, 0, 12, 12]])
    windows = Windows(boxes, torch.tensor([False, True, True]))
    same = resize(x[:2], windows[:2], 8)  # a window of the target's size is only moved
    assert torch.equal(same, cut(x[:2], windows[:2], 8))
    halved = resize(x[2:], windows[2:], 6).float()
    mean = x[2:].flip(-1).float().unflatten(-1, (6, 2)).unflatten(-3, (6, 2)).mean((-1, -3))
    torch.testing.assert_close(halved, mean, rtol=0, atol=0.51)  # rounding
