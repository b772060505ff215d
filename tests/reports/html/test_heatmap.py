"""The picture of a whole confusion matrix: every pair that occurs, names that do not overlap, bounded in size."""

import re

import numpy as np
import pytest

from lqf.reports.html.heatmap import LINE, MOST_TIPS, heatmap


def _squares(picture):
    """(row, column) -> (right, opacity)."""
    found = {}
    for shade in picture["shades"]:
        for square in shade["squares"]:
            for x, y in re.findall(r"M(\d+) (\d+)h1v1h-1z", square["path"]):
                assert (int(y), int(x)) not in found
                found[int(y), int(x)] = (shade["right"], shade["opacity"])
    return found


def _confusion(n, images, seed=0):
    rng = np.random.default_rng(seed)
    return np.bincount(rng.integers(n * n, size=images), minlength=n * n).reshape(n, n)


@pytest.mark.parametrize(("n", "images"), [(15, 40), (60, 500), (200, 2000), (1000, 50_000)])
def test_every_pair_that_occurs_is_a_square(n, images):
    confusion = _confusion(n, images)
    picture = heatmap([f"class {k}" for k in range(n)], confusion)
    squares = _squares(picture)
    assert set(squares) == {tuple(place) for place in np.argwhere(confusion).tolist()}
    assert all(right == (a == b) for (a, b), (right, _) in squares.items())
    size = sum(len(q["path"]) + len(q["tip"]) for s in picture["shades"] for q in s["squares"])
    assert size < 1_200_000
    places = [row["at"] for row in picture["rows"]]
    assert min(np.diff(places)) >= LINE - 0.2
    assert max(places) < picture["height"]
    assert picture["left"] + n * picture["cell"] < picture["width"] < 1000


def test_the_shade_is_the_share_of_the_row_and_a_square_says_what_it_is():
    confusion = np.zeros((15, 15), int)
    confusion[2, 2], confusion[2, 5], confusion[3, 3] = 9, 1, 1
    picture = heatmap([f"c{k}" for k in range(15)], confusion)
    squares = _squares(picture)
    assert squares[2, 2] == squares[3, 3] == (True, 1.0)
    assert squares[2, 5] == (False, 0.3)
    tips = [q["tip"] for s in picture["shades"] for q in s["squares"]]
    assert sorted(tips) == ["c2 → c2: 9 of 10", "c2 → c5: 1 of 10", "c3 → c3: 1 of 1"]


def test_very_many_squares_have_no_tips():
    confusion = np.ones((100, 100), int)
    assert (confusion > 0).sum() > MOST_TIPS
    picture = heatmap([f"c{k}" for k in range(100)], confusion)
    assert {q["tip"] for s in picture["shades"] for q in s["squares"]} == {""}
    assert len(_squares(picture)) == 10_000
