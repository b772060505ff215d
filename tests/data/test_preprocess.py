"""Geometry of resize, crops and views; normalisation; the settings as JSON."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from lqf.data import IMAGENET_MEAN, IMAGENET_STD, Preprocess, load_samples, normalize, open_images
from lqf.data.preprocess import _without_far_ends
from lqf.errors import LQFError


def images_of(array: np.ndarray, preprocess: Preprocess):
    return open_images(load_samples(array), preprocess)


@pytest.fixture
def square() -> np.ndarray:
    """One 8 × 8 image in which every pixel is different, so that a crop shows where it came from."""
    return np.arange(192, dtype=np.uint8).reshape(1, 8, 8, 3)


def test_the_paper_is_the_default():
    p = Preprocess()
    assert (p.size, p.stored, p.keep_aspect, p.interpolation, p.n_views) == (224, 256, False, "bilinear", 1)
    assert Preprocess(128).stored == 146


def test_the_whole_image_is_resized_without_keep_aspect(picture):
    image = picture(1, (90, 40))
    out = Preprocess(24, 32).resized(image)
    expected = np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("size", [(90, 40), (40, 90)])
def test_keep_aspect_keeps_the_central_square(size):
    w, h = size
    stripes = np.zeros((h, w, 3), np.uint8)  # white in the middle, black where the square does not reach
    long, short = max(size), min(size)
    lo, hi = (long - short) // 2, (long + short) // 2
    stripes[(slice(None), slice(lo, hi)) if w > h else (slice(lo, hi), slice(None))] = 255
    out = Preprocess(40, 40, keep_aspect=True).resized(Image.fromarray(stripes))
    assert out.shape == (3, 40, 40)
    assert (out == 255).all()


def test_a_line_of_pixels_does_not_fill_the_memory():
    line = Image.fromarray(np.full((1, 20_000, 3), 77, np.uint8))
    assert _without_far_ends(line).size == (4, 1)
    assert _without_far_ends(line.transpose(Image.Transpose.TRANSPOSE)).size == (1, 4)
    assert (Preprocess(16, 16, keep_aspect=True).resized(line) == 77).all()


def test_cutting_the_far_ends_changes_nothing_in_the_middle():
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 200, 3), dtype=np.uint8))
    whole = image.resize((400, 40), Image.Resampling.BILINEAR).crop((180, 0, 220, 40))
    out = Preprocess(40, 40, keep_aspect=True).resized(image)
    np.testing.assert_array_equal(out, np.asarray(whole).transpose(2, 0, 1))


@pytest.mark.timm
@pytest.mark.parametrize("size", [(97, 60), (60, 97), (33, 33), (301, 200)])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_agrees_with_torchvision(picture, size, interpolation):
    from torchvision.transforms import v2

    image = picture(2, size)
    filter = v2.InterpolationMode(interpolation)
    for keep in (True, False):
        p = Preprocess(56, 64, keep_aspect=keep, interpolation=interpolation)
        resize = v2.Resize(64 if keep else (64, 64), interpolation=filter)
        reference = v2.Compose([resize, v2.CenterCrop(64), v2.CenterCrop(56), v2.PILToTensor()])(image)
        out = images_of(np.asarray(image)[None], p).batch([0])[0]
        assert torch.equal(out, reference)


CENTRE, TOP_LEFT, TOP_RIGHT, BOTTOM_LEFT, BOTTOM_RIGHT = (2, 2), (0, 0), (0, 4), (4, 0), (4, 4)
FIVE = [CENTRE, TOP_LEFT, TOP_RIGHT, BOTTOM_LEFT, BOTTOM_RIGHT]
VIEWS = {
    "none": [(CENTRE, False)],
    "flip": [(CENTRE, False), (CENTRE, True)],
    "five": [(c, False) for c in FIVE],
    "ten": [(c, False) for c in FIVE] + [(c, True) for c in FIVE],
}


@pytest.mark.parametrize("views", VIEWS)
def test_views(square, views):
    images = images_of(square, Preprocess(4, 8, views=views))
    assert images.n_views == len(VIEWS[views])
    for view, ((top, left), mirrored) in enumerate(VIEWS[views]):
        crop = square[0, top : top + 4, left : left + 4]
        crop = crop[:, ::-1] if mirrored else crop
        out = images.batch([0], view)
        assert out.is_contiguous()
        np.testing.assert_array_equal(out[0].permute(1, 2, 0), crop)


@pytest.mark.parametrize("view", [-1, 2])
def test_a_view_that_is_not_there(square, view):
    with pytest.raises(LQFError, match="there are 2"):
        images_of(square, Preprocess(4, 8, views="flip")).batch([0], view)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"size": 0}, "size is 0"),
        ({"size": 22.4}, "size is 22.4"),
        ({"size": True}, "size is True"),
        ({"resize": 100}, "less than size"),
        ({"resize": "256"}, "resize is '256'"),
        ({"interpolation": "nearest"}, "choose bilinear, bicubic"),
        ({"views": "all"}, "choose none, flip, five, ten, resized, or crops8"),
        ({"views": "crops2"}, "any number from 3 on"),
        ({"size": 64, "resize": 64, "views": "five"}, "would be the same"),
        ({"mean": (0.5, 0.5)}, "three numbers"),
        ({"mean": 0.5}, "three numbers"),
        ({"mean": (0.5, 0.5, float("nan"))}, "three numbers"),
        ({"std": (1, 1, 0)}, "positive"),
        ({"crop_area": 0}, "crop_area is 0; it must be a number above 0 and at most 1"),
        ({"crop_area": 1.5}, "crop_area is 1.5"),
        ({"crop_area": float("nan")}, "crop_area is nan"),
        ({"crop_area": "0.5"}, "crop_area is '0.5'"),
        ({"crop_ratio": 0.75}, "crop_ratio is 0.75; it must be a number, 1 or more"),
        ({"crop_ratio": float("inf")}, "crop_ratio is inf"),
        ({"crop_ratio": True}, "crop_ratio is True"),
    ],
)
def test_bad_settings(settings, sentence):
    with pytest.raises(LQFError, match=sentence):
        Preprocess(**settings)


def test_settings_survive_json():
    for p in (Preprocess(), Preprocess(np.int64(96), 100, True, "bicubic", (0.1, 0.2, 0.3), (1, 2, 3), "ten")):
        assert Preprocess.from_dict(json.loads(json.dumps(p.to_dict()))) == p
    for given in ({"crop_area": np.float32(0.5)}, {"crop_ratio": 1}, {"crop_area": 0.1, "crop_ratio": 5 / 3}):
        p = Preprocess(views="crops5", **given)
        values = json.loads(json.dumps(p.to_dict()))
        assert set(given) <= set(values)
        assert Preprocess.from_dict(values) == p != Preprocess(views="crops5")


def test_defaults_of_later_fields_are_left_out():
    """Keys of results and checkpoints are made from this."""
    names = ["size", "resize", "keep_aspect", "interpolation", "mean", "std", "views"]
    assert list(Preprocess(views="crops8").to_dict()) == names
    earlier = Preprocess.from_dict({"size": 64, "resize": None, "views": "crops8"})
    assert (earlier.crop_area, earlier.crop_ratio) == (0.25, 4 / 3)


def test_unknown_settings_are_refused():
    with pytest.raises(LQFError, match="colour"):
        Preprocess.from_dict({"size": 32, "colour": 1})


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_normalize(dtype):
    x = torch.randint(0, 256, (2, 3, 5, 4), dtype=torch.uint8)
    mean, std = (torch.tensor(v, dtype=torch.float64).view(3, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))
    reference = (x.double() / 255 - mean) / std
    out = normalize(x, Preprocess(), dtype)
    assert out.dtype == dtype
    torch.testing.assert_close(out, reference.to(dtype), rtol=0, atol=4 * torch.finfo(dtype).eps)


def test_normalize_does_not_touch_tensors_for_the_network():
    x = torch.randn(2, 7, dtype=torch.float64)
    assert torch.equal(normalize(x, Preprocess(), torch.float64), x)
    assert normalize(x, Preprocess(), torch.float32).dtype == torch.float32
