"""The greedy choice is the best next one by the definition, and its scores add up to what all labels take away."""

import pytest
import torch
from torch import Tensor

from lqf.selection.greedy import Covariance, most_informative

Q, NOISE = 9, 0.3


def drawn(c: int, rank: int = 2 * Q) -> tuple[Tensor, Tensor]:
    """Σ and its factor."""
    half = torch.randn(Q * c, rank, dtype=torch.float64, generator=torch.Generator().manual_seed(c)) / Q**0.5
    return half @ half.T, half


def variance(sigma: Tensor, c: int, images: list[int], weights: Tensor) -> float:
    """Of all outputs, weighted, given labels of some images; from the dense inverse."""
    rows = [i * c + k for i in images for k in range(c)]
    block = sigma[rows][:, rows] + NOISE * torch.eye(len(rows)).double()
    given = sigma - sigma[:, rows] @ torch.linalg.inv(block) @ sigma[rows]
    return float(weights.repeat_interleave(c) @ given.diagonal())


@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rank", [4, 2 * Q])
def test_every_choice_is_the_best_next_one(c, weighted, rank):
    sigma, half = drawn(c, rank)
    weights = torch.rand(Q, generator=torch.Generator().manual_seed(7)).double() if weighted else torch.ones(Q).double()
    before = total = variance(sigma, c, [], weights)
    for covariance in (Covariance(sigma, None, c), Covariance(half, half, c)):
        taken = most_informative(covariance, NOISE, 6, weights if weighted else None)
        chosen: list[int] = []
        before = total
        for image, score in zip(taken.images.tolist(), taken.scores.tolist(), strict=True):
            every = {i: variance(sigma, c, [*chosen, i], weights) for i in range(Q) if i not in chosen}
            assert image == min(every, key=every.__getitem__)
            assert score == pytest.approx((before - every[image]) / total, abs=1e-10)
            before = every[image]
            chosen.append(image)
        assert float(taken.scores.sum()) == pytest.approx(1 - before / total, abs=1e-10)


def test_all_can_be_taken():
    taken = most_informative(Covariance(drawn(1)[0]), NOISE, Q)
    assert sorted(taken.images.tolist()) == list(range(Q))


def test_neither_a_copy_of_what_was_taken_nor_an_outlier_comes_next():
    x = torch.tensor([[2.0, 0, 0], [2.0, 0, 0], [0, 1.0, 0], [0, 1.0, 0], [0, 0, 1.2]]).double()
    assert most_informative(Covariance(x, x), 1e-3, 5).images.tolist()[:3] == [0, 2, 4]


def test_images_that_do_not_count_are_not_aimed_at():
    x = torch.eye(3).double()
    taken = most_informative(Covariance(x, x), 0.1, 1, torch.tensor([0.0, 1.0, 0.5]))
    assert taken.images.tolist() == [1]
