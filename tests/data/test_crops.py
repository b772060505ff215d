"""Windows of drawn views: area and ratio as asked for, and for the defaults what they always were."""

import hashlib

import numpy as np
import pytest
import torch
from PIL import Image

from lqf.data import Preprocess, load_samples, open_images
from lqf.data.crops import fixed_windows, random_rectangles

HASHES = [f"{i:064x}" for i in range(500)]


def boxes_of(preprocess: Preprocess) -> torch.Tensor:
    """Of all drawn views and images, with whether they are mirrored: (n, 5)."""
    drawn = [fixed_windows(HASHES, v, preprocess) for v in range(2, preprocess.n_views)]
    return torch.cat([torch.cat([w.boxes, w.mirrored[:, None]], 1) for w in drawn])


def digest(boxes: torch.Tensor) -> str:
    return hashlib.sha256(boxes.numpy().astype("<i8").tobytes()).hexdigest()[:16]


def test_windows_of_saved_models_stay_where_they_are():
    """Recorded before the area and the ratio could be chosen."""
    assert digest(boxes_of(Preprocess(views="crops8"))) == "0966370ceac196d1"
    assert digest(boxes_of(Preprocess(views="resized"))) == "f57c6b835f56cda4"
    assert digest(random_rectangles(500, 256, torch.Generator().manual_seed(0)).boxes) == "bb02e0ef45b258eb"


@pytest.mark.parametrize(("area", "ratio"), [(0.25, 4 / 3), (0.05, 4 / 3), (0.5, 1.0), (0.1, 3.0), (0.9, 1.2)])
def test_crops_have_the_area_and_the_ratio_that_were_asked_for(area, ratio):
    boxes = boxes_of(Preprocess(views="crops8", crop_area=area, crop_ratio=ratio)).double().numpy()
    top, left, h, w, _ = boxes.T
    assert min(top.min(), left.min()) == 0
    assert max((top + h).max(), (left + w).max()) == 256
    shares, ratios = h * w / 256**2, w / h
    assert area - 0.01 < shares.min() < area + 0.02
    assert shares.max() > 0.97
    assert ratios.max() < ratio * 1.03
    assert ratios.min() > 1 / (ratio * 1.03)
    if area < 0.9:  # otherwise long ones do not fit into the image
        assert ratios.max() >= 1 + 0.9 * (ratio - 1)
        assert ratios.min() <= 1 / (1 + 0.9 * (ratio - 1))
        assert abs(np.log(ratios).mean()) < 0.03


def test_the_whole_image_and_its_mirror_image_where_nothing_may_be_cut_off():
    boxes = boxes_of(Preprocess(views="crops4", crop_area=1, crop_ratio=1))
    assert torch.equal(boxes[:, :4], torch.tensor([[0, 0, 256, 256]]).expand(1000, 4))
    assert 400 < boxes[:, 4].sum() < 600


def test_resized_crops_have_an_area_and_a_ratio_of_their_own():
    other = Preprocess(views="resized", crop_area=0.9, crop_ratio=1.0)
    assert torch.equal(boxes_of(other), boxes_of(Preprocess(views="resized")))


def test_more_views_begin_with_those_of_fewer():
    few, many = (boxes_of(Preprocess(views=views, crop_area=0.1)) for views in ("crops5", "crops30"))
    assert torch.equal(few, many[: len(few)])
    assert len(boxes_of(Preprocess(views="crops30")).unique(dim=0)) > 13000  # of 14,000


def test_images_are_cut_as_their_preprocessing_says():
    pixels = np.random.default_rng(0).integers(0, 256, (3, 12, 12, 3), dtype=np.uint8)
    p = Preprocess(8, 12, views="crops4", crop_area=1, crop_ratio=1)
    images = open_images(load_samples(pixels), p)
    mirrored = fixed_windows(images.hashes, 3, p).mirrored
    whole = [Preprocess(8, 8).resized(Image.fromarray(x)) for x in pixels]
    for i, expected in enumerate(map(torch.tensor, whole)):
        assert torch.equal(images.batch([i], 3)[0], expected.flip(-1) if mirrored[i] else expected)
