"""Floating-point pixels: told by their range, refused where they are no pixels."""

import numpy as np
import pytest
import torch

from lqf.data import Preprocess, load_samples, open_images
from lqf.errors import LQFError

SMALL = Preprocess(8, 8)


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (6, 8, 9, 3), dtype=np.uint8)


def whole(source, **options) -> torch.Tensor:
    return open_images(load_samples(source, **options), SMALL).whole(range(len(source)))


@pytest.mark.parametrize("white", [1, 255])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ">f4"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW", "list", "reversed"])
def test_numpy_floats_are_the_pictures_they_were_made_of(pixels, white, dtype, layout):
    x = (pixels / 255 * white).astype(dtype)
    if layout == "NCHW":
        x = x.transpose(0, 3, 1, 2)
    if layout == "reversed":
        x = x[::-1].copy()[::-1]
    given = list(x) if layout == "list" else x
    assert torch.equal(whole(given), whole(pixels))


@pytest.mark.parametrize("white", [1, 255])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_torch_floats_likewise(pixels, white, dtype):
    x = (torch.from_numpy(pixels).double() / 255 * white).to(dtype)
    assert torch.equal(whole(x), whole(pixels))
    assert torch.equal(whole(x.permute(0, 3, 1, 2)), whole(pixels))
    assert torch.equal(whole(list(x.permute(0, 3, 1, 2).requires_grad_())), whole(pixels))


def test_more_rows_than_are_converted_at_once():
    x = np.random.default_rng(0).random((600, 4, 4))
    uint8 = np.rint(x * 255).astype(np.uint8)
    assert torch.equal(whole(x), whole(uint8))


def test_the_brightest_of_all_decides_for_the_dark_ones(pixels):
    """A picture of 0 to 255 that is nearly black is not taken for one of 0 to 1 among others."""
    dark = pixels.copy()
    dark[2] = dark[2] > 128
    assert torch.equal(whole(dark.astype(np.float32)), whole(dark))
    assert torch.equal(whole(list(dark.astype(np.float32))), whole(dark))


def test_grey_floats(pixels):
    grey = pixels[..., 0]
    assert torch.equal(whole(grey / 255.0), whole(grey))


@pytest.mark.parametrize(
    ("values", "shown"),
    [((-2.1, 2.6), "-2.1 to 2.6"), ((-1, 1), "-1 to 1"), ((0, 2), "0 to 2"), ((0, 65535), "0 to 6.55e\\+04"),
     ((-100, 255), "-100 to 255")],
)  # fmt: skip
def test_what_are_no_pixels_is_refused(values, shown):
    x = np.linspace(*values, 2 * 4 * 4 * 3).reshape(2, 4, 4, 3)
    for given in (x, x.astype(np.float32).transpose(0, 3, 1, 2), torch.from_numpy(x), list(x)):
        with pytest.raises(LQFError, match=f"values from {shown}; pixels are 0 to 1 or 0 to 255.*tensors='normalized'"):
            load_samples(given)


def test_resampling_may_round_a_little_beyond(pixels):
    x = pixels / 255.0
    x[0, 0, 0] = [-1e-4, 1 + 1e-4, 0]
    expected = pixels.copy()
    expected[0, 0, 0] = [0, 255, 0]
    assert torch.equal(whole(x), whole(expected))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_are_refused(pixels, bad):
    x = pixels / 255.0
    x[3, 1, 1] = bad
    with pytest.raises(LQFError, match="NaN or infinite values in the samples `3`"):
        load_samples(x)
    with pytest.raises(LQFError, match="item 3 of the list of images has NaN or infinite values"):
        load_samples(list(x))


@pytest.mark.parametrize("shape", [(5, 12), (5, 8, 8, 2), (5, 3, 4, 4, 4)])
def test_what_is_no_picture_by_its_shape_is_refused(shape):
    with pytest.raises(LQFError, match=r"expected \(H, W\).*tensors='normalized'"):
        load_samples(np.zeros(shape))


def test_normalized_tensors_go_through_unchanged(pixels):
    x = torch.from_numpy(pixels / 255.0).permute(0, 3, 1, 2)
    images = open_images(load_samples(x, tensors="normalized"), SMALL)
    assert torch.equal(images.batch(range(6)), x)


@pytest.mark.parametrize("kind", ["uint8", "pil", "paths", "folder"])
def test_pictures_are_not_normalized_tensors(flowers, pixels, kind):
    source = {"uint8": pixels, "pil": list(pixels), "paths": sorted(flowers.rglob("*.png")), "folder": flowers}[kind]
    with pytest.raises(LQFError, match="tensors='normalized'"):
        load_samples(source, tensors="normalized")


@pytest.mark.timm
def test_to_tensor_and_normalize_of_torchvision(pixels):
    from torchvision import transforms

    class Data(torch.utils.data.Dataset):
        def __init__(self, transform):
            self.transform = transform

        def __len__(self):
            return 6

        def __getitem__(self, i):
            return self.transform(pixels[i]), i % 2

    assert torch.equal(whole(Data(transforms.ToTensor())), whole(pixels))
    normalized = transforms.Compose([transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.2] * 3)])
    with pytest.raises(LQFError, match="undo a Normalize"):
        load_samples(Data(normalized))
    assert load_samples(Data(normalized), tensors="normalized").source.shape == (3, 8, 9)
