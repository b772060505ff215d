"""Rows of the problem: views, batches, subsets, and the frozen prefix."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fits import CPU, convnet, opened, pictures
from lqf.data import Preprocess, normalize
from lqf.data.crops import random_crops
from lqf.data.rows import cut_on
from lqf.errors import LQFError
from lqf.linear.inputs import Inputs

FIVE = Preprocess(size=8, resize=10, views="five")
PLAIN = Preprocess()


class Counted(nn.Module):
    """A prefix that notes how many rows went through it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.rows = convnet()[0], 0

    def forward(self, x: Tensor) -> Tensor:
        """Count, then convolve."""
        self.rows += len(x)
        return self.inner(x)


def inputs(preprocess: Preprocess = FIVE, n: int = 6, dtype: torch.dtype = torch.float64, **options: object) -> Inputs:
    x, y = pictures(n)
    images = opened(x, y, preprocess)
    return Inputs(images, preprocess, device=CPU, dtype=dtype, **{"batch_size": 12, **options})


def test_row_i_v_is_view_v_of_sample_i() -> None:
    rows = inputs()
    assert (len(rows), rows.n_views) == (30, 5)
    for i, v in ((0, 0), (2, 3), (5, 4)):
        expected = normalize(rows.images.batch([i], v), FIVE, torch.float64)
        assert torch.equal(rows.fetch(torch.tensor([5 * i + v])), expected)


def test_any_mixture_of_rows_can_be_fetched() -> None:
    rows = inputs()
    whole = rows.fetch(torch.arange(30))
    index = torch.randperm(30)[:11]
    assert torch.equal(rows.fetch(index), whole[index])
    assert len(whole.flatten(1).unique(dim=0)) == 30


@pytest.mark.parametrize("batch_size", [1, 7, 12, 1000])
def test_batches_visit_every_row_once_and_keep_views_together(batch_size: int) -> None:
    rows = inputs(batch_size=batch_size)
    seen = []
    for index, x in rows.batches():
        assert torch.equal(x, rows.fetch(index))
        assert len(index) <= max(batch_size, 5)
        assert len(index) % 5 == 0
        seen += index.tolist()
    assert seen == list(range(30))


def test_batches_that_are_held_come_again_as_the_same_tensors() -> None:
    rows = inputs(batch_size=10)
    plain = list(rows.batches())
    rows.hold(plain[:2])
    assert rows.held_share == 20 / 30
    again = list(rows.batches())
    assert [a is b for (_, a), (_, b) in zip(again, plain, strict=True)] == [True, True, False]
    assert all(
        torch.equal(a, b) for a, b in zip(*(torch.cat([x for _, x in each]) for each in (again, plain)), strict=True)
    )
    part = rows.take(torch.tensor([4, 1, 3]))
    assert part.held_share == 0
    assert torch.equal(next(part.batches())[1], rows.fetch(torch.tensor([*range(20, 25), *range(5, 10)])))


def test_some_samples_and_some_of_those() -> None:
    rows = inputs()
    whole = rows.fetch(torch.arange(30)).view(6, 5, 3, 8, 8)
    part = rows.take(torch.tensor([4, 1, 3]))
    assert len(part) == 15
    assert torch.equal(part.fetch(torch.arange(15)), whole[[4, 1, 3]].flatten(0, 1))
    assert torch.equal(part.take(torch.tensor([2, 0])).fetch(torch.arange(10)), whole[[3, 4]].flatten(0, 1))
    assert len(rows) == 30


def test_an_example_is_no_longer_than_the_data() -> None:
    rows = inputs(Preprocess(size=8), n=4)
    assert torch.equal(rows.example(3), rows.fetch(torch.arange(3)))
    assert len(rows.example(100)) == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_are_only_cast(dtype: torch.dtype) -> None:
    x = np.random.default_rng(0).normal(size=(5, 7))
    rows = Inputs(opened(x, np.arange(5) % 2, PLAIN), PLAIN, device=CPU, dtype=dtype, batch_size=2)
    assert torch.equal(rows.fetch(torch.tensor([4, 0])), torch.tensor(x, dtype=dtype)[[4, 0]])


def test_a_frozen_prefix_is_applied_and_kept() -> None:
    plain, prefix = inputs(), Counted()
    rows = inputs(prefix=prefix)
    expected = prefix.inner(plain.fetch(torch.arange(30)))
    torch.testing.assert_close(rows.fetch(torch.arange(30)), expected)
    assert rows.cache_prefix()
    before = prefix.rows
    torch.testing.assert_close(rows.fetch(torch.arange(30)), expected)
    part = rows.take(torch.tensor([5, 2]))
    torch.testing.assert_close(
        part.fetch(torch.arange(10)), expected.view(6, 5, *expected.shape[1:])[[5, 2]].flatten(0, 1)
    )
    torch.testing.assert_close(torch.cat([x for _, x in rows.batches()]), expected)
    assert prefix.rows == before  # nothing was computed again
    assert not rows.fetch(torch.arange(2)).requires_grad


def test_the_prefix_is_kept_only_where_it_fits() -> None:
    rows = inputs(prefix=Counted())
    size = rows.example(1).numel() * 8 * 30
    assert not rows.cache_prefix(budget=size - 1)
    assert rows.cache_prefix(budget=size)
    assert not inputs().cache_prefix()  # there is no prefix


def test_the_prefix_of_some_samples_can_be_kept() -> None:
    part = inputs(prefix=Counted(), samples=torch.tensor([4, 1]))
    expected = part.fetch(torch.arange(10))
    assert part.cache_prefix()
    torch.testing.assert_close(part.fetch(torch.arange(10)), expected)


CROPS = Preprocess(size=8, resize=10, views="crops5", crop_area=0.1)


@pytest.mark.parametrize("at_once", [1, 11, 1024])
def test_drawn_crops_are_kept_where_they_fit(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lqf.linear.inputs._AT_ONCE", at_once)
    rows, size = inputs(CROPS), 30 * 3 * 8 * 8
    expected = rows.fetch(torch.arange(30))
    assert not rows.keep_on_device(size - 1)
    assert rows.keep_on_device(size)
    monkeypatch.setattr("lqf.linear.inputs.rows_on", lambda *_: pytest.fail("they were cut again"))
    assert torch.equal(rows.fetch(torch.arange(30)), expected)
    assert torch.equal(rows.take(torch.tensor([4, 1])).fetch(torch.tensor([7, 0])), expected[[7, 20]])


def test_only_drawn_crops_are_kept_on_a_cpu() -> None:
    assert not inputs().keep_on_device()
    assert inputs(Preprocess(size=8, resize=10, views="resized")).keep_on_device()


def test_views_cut_by_the_device_are_those_cut_by_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = inputs(CROPS).fetch(torch.arange(30))
    monkeypatch.setattr("lqf.linear.inputs.rows_on", cut_on)
    rows = inputs(CROPS)
    assert torch.equal(rows.fetch(torch.arange(30)), plain)
    assert rows.keep_on_device()
    assert torch.equal(rows.fetch(torch.arange(30)), plain)


@pytest.mark.gpu
@pytest.mark.parametrize("preprocess", [FIVE, CROPS, Preprocess(size=8)])
def test_rows_on_a_gpu(preprocess: Preprocess) -> None:
    here = inputs(preprocess)
    there = Inputs(here.images, preprocess, device=torch.device("cuda"), dtype=torch.float64, batch_size=12)
    every = torch.arange(len(here))
    cut = there.fetch(every)
    assert there.keep_on_device()
    assert torch.equal(there.fetch(every), cut)
    torch.testing.assert_close(cut.cpu(), here.fetch(every), rtol=1e-14, atol=1e-14)


def augmented(rows: Inputs, index: list[int], seed: int = 0) -> Tensor:
    return rows.augmented(torch.tensor(index), "crop", torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("prefix", [None, Counted])
def test_augmentation_is_of_the_rows_samples_and_from_the_generator(prefix: Callable[[], nn.Module] | None) -> None:
    rows = inputs(prefix=prefix and prefix())
    x = augmented(rows, [5 * i for i in (3, 0, 3)])
    assert torch.equal(x, augmented(rows, [5 * i + 2 for i in (3, 0, 3)]))  # whatever the view
    assert torch.equal(x, augmented(rows.take(torch.tensor([3, 0])), [0, 5, 4]))
    assert not torch.equal(x, augmented(rows, [15, 0, 15], seed=1))
    raw = random_crops(rows.images.whole([3, 0, 3]), "crop", rows.preprocess.size, torch.Generator().manual_seed(0))
    x0 = normalize(raw, FIVE, torch.float64)
    assert torch.equal(x, x0 if prefix is None else rows.prefix(x0))


def test_tensors_cannot_be_augmented() -> None:
    x = np.random.default_rng(0).normal(size=(5, 7))
    rows = Inputs(opened(x, np.arange(5) % 2, PLAIN), PLAIN, device=CPU, dtype=torch.float64, batch_size=2)
    with pytest.raises(LQFError, match="give pictures"):
        augmented(rows, [0])
