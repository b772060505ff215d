"""Resizing windows by tensors: what Pillow makes of them, to the bit."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from lqf.data import Preprocess
from lqf.data import resample as module
from lqf.data.crops import Windows, fixed_crops
from lqf.data.preprocess import RESAMPLING
from lqf.data.resample import resample, weights

FILTERS = ["bilinear", "bicubic"]


def noise(n: int, side: int, seed: int = 0) -> Tensor:
    """Images (n, 3, R, R), every second one in black and white alone, where a cubic filter leaves [0, 255]."""
    x = torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (n, 3, side, side), dtype=np.uint8))
    x[::2] = (x[::2] > 127) * 255
    return x


def windows(n: int, side: int, s: int, seed: int = 0) -> Windows:
    """Any boxes, among them those of side s in one direction or both, of one pixel, and the whole image."""
    rng = np.random.default_rng(seed)
    sides = rng.integers(1, side + 1, (n, 2))
    sides[:6] = [(s, s), (s, side), (side, s), (1, side), (side, 1), (side, side)]
    corners = (rng.random((n, 2)) * (side - sides + 1)).astype(int)
    return Windows(torch.from_numpy(np.concatenate([corners, sides], 1)), torch.from_numpy(rng.random(n) < 0.5))


@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize(
    ("s", "side", "n"), [(32, 37, 80), (33, 200, 60), (97, 111, 40), (128, 128, 30), (160, 183, 20), (224, 256, 16)]
)
def test_the_bits_are_those_of_pillow(interpolation, s, side, n):
    x, drawn = noise(n, side), windows(n, side, s)
    assert {True, False} == set(drawn.mirrored.tolist())
    out = resample(x, drawn, s, interpolation)
    assert out.dtype == torch.uint8
    assert torch.equal(out, fixed_crops(x.numpy(), drawn, Preprocess(s, side, interpolation=interpolation), 1))


@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize("version", [12, 13])
def test_the_order_of_the_passes_is_that_of_the_version_of_pillow(monkeypatch, interpolation, version):
    s, side, boxes = 32, 48, [(40, 35), (36, 34), (37, 34), (48, 20), (20, 48), (30, 20), (47, 40), (48, 40)]
    height_first = [version == 13 and h > s and h - s > 2 * (w - s) for h, w in boxes]
    assert height_first == [version == 13 and k in (0, 2, 3) for k in range(8)]
    monkeypatch.setattr(module, "_PILLOW", version)
    x, filter = noise(8, side), RESAMPLING[interpolation]
    drawn = Windows(torch.tensor([(0, 0, h, w) for h, w in boxes]), torch.zeros(8, dtype=torch.bool))
    out = resample(x, drawn, s, interpolation)
    for k, (h, w) in enumerate(boxes):
        picture = Image.fromarray(x[k, :, :h, :w].permute(1, 2, 0).contiguous().numpy())
        between = (w, s) if height_first[k] else (s, h)
        expected = np.array(picture.resize(between, filter).resize((s, s), filter))
        assert torch.equal(out[k], torch.from_numpy(expected).permute(2, 0, 1)), (h, w)


def test_the_order_of_the_passes_matters(monkeypatch):
    x, drawn = noise(1, 48), Windows(torch.tensor([[0, 0, 48, 20]]), torch.tensor([False]))
    outs = []
    for version in (12, 13):
        monkeypatch.setattr(module, "_PILLOW", version)
        outs.append(resample(x, drawn, 32, "bilinear"))
    assert not torch.equal(*outs)
    assert (outs[0].int() - outs[1].int()).abs().max() <= 1


@pytest.mark.parametrize("interpolation", FILTERS)
def test_weights_of_an_output_make_one_and_stay_in_the_window(interpolation):
    start, length = torch.tensor([0, 5, 9, 3]), torch.tensor([40, 3, 16, 30])
    k = weights(start, length, torch.arange(16).expand(4, 16), 16, 40, interpolation)
    assert torch.equal(k, k.round())
    assert (k.sum(-1) - 2**22).abs().max() <= 8  # as many halves as there are taps
    at = torch.arange(40)
    outside = (at < start[:, None]) | (at >= (start + length)[:, None])
    assert not k[outside[:, None].expand_as(k)].any()
    assert torch.equal(k[2, :, 9:25], 2**22 * torch.eye(16, dtype=torch.float64))  # as large as the view


def test_memory_is_bounded_by_chunks(monkeypatch):
    x, drawn = noise(9, 40), windows(9, 40, 32)
    whole, parts, resampled = resample(x, drawn, 32, "bicubic"), [], module.resample_together
    monkeypatch.setattr(module, "resample_together", lambda x, *given: parts.append(len(x)) or resampled(x, *given))
    monkeypatch.setattr(module, "_BYTES", 8 * 4 * (3 * 40 * 40 + 7 * 40 * 32 + 3 * 32 * 32))
    assert torch.equal(resample(x, drawn, 32, "bicubic"), whole)
    assert parts == [4, 4, 1]
    monkeypatch.setattr(module, "_BYTES", 1)
    assert torch.equal(resample(x, drawn, 32, "bicubic"), whole)


def test_no_images():
    none = Windows(torch.zeros(0, 4, dtype=torch.long), torch.zeros(0, dtype=torch.bool))
    assert resample(noise(0, 12), none, 8, "bilinear").shape == (0, 3, 8, 8)


@pytest.mark.gpu
@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize(("s", "side"), [(32, 37), (33, 200), (224, 256)])
def test_the_bits_on_a_gpu_are_those_of_pillow(interpolation, s, side):
    x, drawn, cuda = noise(200, side), windows(200, side, s), torch.device("cuda")
    out = resample(x.to(cuda), drawn.to(cuda), s, interpolation).cpu()
    assert torch.equal(out, fixed_crops(x.numpy(), drawn, Preprocess(s, side, interpolation=interpolation), 4))
