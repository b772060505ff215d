"""Errors of a model: on the central views, and averaged over their mirror images."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fits import opened, pictures
from lqf.data import Images, Preprocess
from lqf_paper.methods.mirrored import Mirrored
from lqf_paper.methods.models import Predicted, error
from lqf_paper.runner.predictions import unpacked

SMALL = Preprocess(size=8, resize=9)


class Sided:
    """Scores that prefer class 0 by how much brighter the left half is."""

    seconds = 0.0

    def __init__(self, bias: float, losses: tuple[float, ...] = ()):
        self.bias, self.losses = bias, losses

    def outputs(self, images: Images) -> Tensor:
        x = images.batch(torch.arange(len(images))).double().mean((1, 2))
        left = x[:, :4].mean(1) - x[:, 4:].mean(1)
        return torch.stack([left + self.bias, torch.zeros_like(left)], 1)


def test_mirror_images_are_those_of_the_same_window() -> None:
    images = opened(*pictures(5, side=9), SMALL)
    mirrored = Mirrored.of(images)
    rows = torch.arange(5)
    assert torch.equal(mirrored.batch(rows), images.batch(rows).flip(-1))
    assert (len(mirrored), mirrored.n_views, mirrored.own) == (5, 1, range(5))


def test_scores_are_averaged_over_an_image_and_its_mirror_image() -> None:
    x, _ = pictures(20, side=9)
    images = opened(x, np.zeros(20, int), SMALL)
    central = Sided(0.0).outputs(images)[:, 0] > 0
    assert 0 < int(central.sum()) < 20
    both = Predicted.of(Sided(1e-6), images, mirrored=True).result(images)
    assert both["test_error"] == float((~central).double().mean())
    assert both["test_error_mirrored"] == 0.0  # what one side has the other lacks, and the bias is left
    assert unpacked(both["predictions"]).tolist() == (~central).int().tolist()
    assert unpacked(both["predictions_mirrored"]).tolist() == [0] * 20
    alone = Predicted.of(Sided(1e-6), images, mirrored=False).result(images)
    assert (alone["test_error_mirrored"], "predictions_mirrored" in alone) == (None, False)


def test_a_run_that_diverged_has_no_error_with_or_without_mirror_images() -> None:
    images = opened(*pictures(4, side=9), SMALL)
    lost = Predicted.of(Sided(0.0, (1.0, float("nan"))), images, mirrored=True)
    assert lost.result(images) == {"test_error": None, "test_error_mirrored": None}
    assert error(Sided(float("inf")), images) is None
