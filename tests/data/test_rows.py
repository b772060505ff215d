"""Rows of views on a device: cut there, they are those that Pillow cuts."""

import numpy as np
import pytest
import torch
from torch import Tensor

from lqf.data import Images, Preprocess, load_samples, open_images, rows_on, select_images
from lqf.data.rows import cut_on
from lqf.data.shards import Shard

CPU = torch.device("cpu")
ALL = ["none", "flip", "five", "ten", "resized", "crops3", "crops9"]


def opened(preprocess: Preprocess, n: int = 5, side: int = 31, **options: object) -> Images:
    pixels = np.random.default_rng(0).integers(0, 256, (n, side, side, 3), dtype=np.uint8)
    return open_images(load_samples(pixels), preprocess, **options)


def everything(images: Images) -> tuple[Tensor, Tensor]:
    """Samples and views of all rows."""
    rows = torch.arange(len(images) * images.n_views)
    return rows // images.n_views, rows % images.n_views


@pytest.mark.parametrize("views", ALL)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_cut_by_tensors_or_by_pillow(views, interpolation):
    images = opened(Preprocess(20, 27, interpolation=interpolation, views=views, crop_area=0.1, crop_ratio=2))
    sample, view = everything(images)
    expected = torch.stack([images.batch([i], v)[0] for i, v in zip(sample.tolist(), view.tolist(), strict=True)])
    assert torch.equal(rows_on(CPU, images, sample, view), expected)
    assert torch.equal(cut_on(CPU, images, sample, view), expected)
    order = torch.randperm(len(sample), generator=torch.Generator().manual_seed(0))[:7].repeat(2)  # some, and again
    assert torch.equal(rows_on(CPU, images, sample[order], view[order]), expected[order])
    assert torch.equal(cut_on(CPU, images, sample[order], view[order]), expected[order])


@pytest.mark.parametrize("function", [rows_on, cut_on])
def test_no_rows(function):
    none = torch.zeros(0, dtype=torch.long)
    assert function(CPU, opened(Preprocess(8, views="crops4")), none, none).shape == (0, 3, 8, 8)


def test_parts_and_shards_have_rows_of_their_own_samples():
    images = opened(Preprocess(20, 27, views="crops4"), n=7)
    sample, view = everything(images)
    whole = rows_on(CPU, images, sample, view).unflatten(0, (7, 4))
    part = select_images(images, np.array([1, 2, 5]))
    assert torch.equal(cut_on(CPU, part, *everything(part)), whole[[1, 2, 5]].flatten(0, 1))
    shard = Shard(images.samples, images.hashes, (), range(2, 5), select_images(images, np.arange(2, 5)))
    mine = (sample >= 2) & (sample < 5)
    for function in (rows_on, cut_on):
        assert torch.equal(function(CPU, shard, sample[mine], view[mine]), whole[2:5].flatten(0, 1))
        with pytest.raises(IndexError, match=r"this process has the samples range\(2, 5\)"):
            function(CPU, shard, sample, view)


def test_every_image_is_decoded_once_for_all_of_its_views(monkeypatch):
    images, read = opened(Preprocess(20, 27, views="crops6"), memory_bytes=0), []
    again = type(images)._decoded_again
    monkeypatch.setattr(type(images), "_decoded_again", lambda self, i: read.append(i) or again(self, i))
    cut_on(CPU, images, *everything(images))
    assert sorted(read) == list(range(5))


def test_tensors_are_passed_on():
    x = torch.randn(4, 3, dtype=torch.float64)
    images = open_images(load_samples(x, tensors="normalized"), Preprocess())
    assert torch.equal(rows_on(CPU, images, torch.tensor([3, 1]), torch.tensor([0, 0])), x[[3, 1]])


@pytest.mark.gpu
@pytest.mark.parametrize("views", ALL)
def test_rows_on_a_gpu_are_those_on_a_cpu(views):
    images = opened(Preprocess(56, 64, views=views, crop_area=0.1), n=40, side=70)
    rows = everything(images)
    there = rows_on(torch.device("cuda"), images, *rows)
    assert there.is_cuda
    assert torch.equal(there.cpu(), rows_on(CPU, images, *rows))
