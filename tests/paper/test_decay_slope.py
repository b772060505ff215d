"""The slope of a validation loss along weight decay against finite differences, and where following it leads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fits import CPU, SMALL, convnet, data, network, opened, pictures
from lqf.backbones import load_backbone
from lqf.data import Preprocess
from lqf.fitting import Context, TrainingSet
from lqf.fitting.pose import pose
from lqf.fitting.select_pooling import select_pooling
from lqf.linear.ridge import Ridge
from lqf.settings import Settings
from lqf_paper.studies.decay_slope import Search, descend
from lqf_paper.studies.problem import LQF, lqf_problem
from paper.conftest import EXACT

RANDOM: dict[str, Any] = {"form": "w0", "head": "random"}


def search(ridge: Ridge, n_classes: int = 3, **options: Any) -> Search:
    images = opened(*data(24, n_classes, signal=0.4), SMALL)
    problem = lqf_problem(load_backbone(network()), images, SMALL, CPU, ridge=ridge, **EXACT | options)
    return Search(problem, opened(*data(15, n_classes, signal=0.4, seed=1), SMALL), tol=1e-12, max_products=400)


@pytest.mark.parametrize(
    ("ridge", "options"),
    [(Ridge(20.0, 2e4), {}), (Ridge(5.0, 2e4), {"head": "probe"}), (Ridge(2.0, 20.0), RANDOM)],
    ids=["crossfit", "probe", "random"],
)
@pytest.mark.parametrize(("scale", "n_classes"), [(1.0, 3), (10.0, 2)])
def test_the_slope_is_the_derivative(scale: float, n_classes: int, ridge: Ridge, options: dict[str, Any]) -> None:
    s, h = search(ridge, n_classes, **options), 1e-4
    here, before, after = (s.at(scale * math.exp(d)) for d in (0.0, -h, h))
    assert here.slope == pytest.approx((after.loss - before.loss) / (2 * h), rel=1e-6, abs=1e-9 * here.loss)
    assert abs(here.slope) > 1e-2  # there is something to compare


def test_the_slope_with_views_of_pictures() -> None:
    flipped, h = Preprocess(size=8, views="flip"), 1e-4
    images = opened(*pictures(15, side=10), flipped)
    problem = lqf_problem(load_backbone(convnet()), images, flipped, CPU, ridge=Ridge(20.0, 2e4), **EXACT)
    s = Search(problem, opened(*pictures(9, side=10, seed=1), flipped), tol=1e-12, max_products=400)
    here, before, after = (s.at(math.exp(d)) for d in (0.0, -h, h))
    assert here.slope == pytest.approx((after.loss - before.loss) / (2 * h), rel=1e-6)


def test_a_warm_start_gives_the_same_solution() -> None:
    ridge = Ridge(20.0, 2e4)
    s, cold = search(ridge), search(ridge).at(3.0)
    losses = [s.at(x).loss for x in (0.5, 1.0, 3.0)]
    assert losses[-1] == pytest.approx(cold.loss, rel=1e-10)
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize("begin", [0.1, 30.0])
def test_the_search_ends_where_a_fine_grid_has_its_minimum(begin: float) -> None:
    ridge = Ridge(20.0 * begin, 200.0 * begin)
    tried = descend(search(ridge, **RANDOM), flat=0.0, close=0.1)
    best, grid = min(tried, key=lambda t: t.loss), search(ridge, **RANDOM)
    losses = [grid.at(x).loss for x in np.geomspace(0.3, 3, 11) / begin]
    assert best.loss <= min(losses) + 1e-3
    assert best.loss < tried[0].loss - 0.1
    assert len(tried) < 12


def test_the_search_stops_at_the_end_of_its_range() -> None:
    tried = descend(search(Ridge(600.0, 6000.0), **RANDOM), low=0.5, flat=0.0)
    assert tried[-1].scale == pytest.approx(0.5)
    assert len(tried) == 2


def test_the_search_stops_where_there_is_nothing_to_gain() -> None:
    tried = descend(search(Ridge(2e4, 2e5), **RANDOM))
    assert [t.scale for t in tried] == [1.0]
    assert 0 < abs(tried[0].slope) < 5e-3 * tried[0].loss


@pytest.mark.parametrize("precision", ["auto", "float16", "bfloat16"])
def test_at_the_usual_tolerance_the_slope_is_close_and_its_residual_measured(precision: str) -> None:
    ridge = Ridge(20.0, 2e4)
    exact, quick = search(ridge).at(1.0), search(ridge, precision=precision)
    quick.tol = 1e-2
    found = quick.at(1.0)
    assert found.slope == pytest.approx(exact.slope, rel=0.1)
    assert found.loss == pytest.approx(exact.loss, rel=0.02)
    assert 0 < found.residual <= 1e-2
    assert 0 < found.slope_residual <= 1e-2


def test_narrow_products_do_not_limit_the_measured_residuals() -> None:
    s = search(Ridge(20.0, 2e4), precision="bfloat16")
    s.tol = 1e-5
    found = s.at(1.0)
    assert found.residual <= 1e-5
    assert found.slope_residual <= 1e-5
    assert found.slope == pytest.approx(search(Ridge(20.0, 2e4)).at(1.0).slope, rel=1e-3)


def test_given_ridge_strengths_need_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    images, backbone = opened(*data(24), SMALL), load_backbone(network())

    def refuse(*args: Any, **named: Any) -> None:
        raise AssertionError("not needed")

    monkeypatch.setattr("lqf.fitting.training_problem.averaged_kernels", refuse)
    monkeypatch.setattr("lqf.fitting.pose._plan", refuse)  # and nothing is timed
    both = lqf_problem(backbone, images, SMALL, CPU, weight_decay=0.5, body_weight_decay=2.0)
    assert (both.ridge, both.kernels) == (Ridge(12.0, 48.0), None)
    one = lqf_problem(backbone, images, SMALL, CPU, weight_decay=0.5, form="w0")
    assert one.ridge == Ridge(12.0, 12.0)
    with pytest.raises(AssertionError):
        lqf_problem(backbone, images, SMALL, CPU, weight_decay=0.5)


def test_chosen_ridge_strengths_are_those_of_a_fit() -> None:
    images = opened(*data(24, signal=0.4), SMALL)
    settings = Settings(**{**LQF, "dtype": "float64"})
    data_set = TrainingSet.of(images, SMALL, Context(settings, CPU))
    expected = pose(select_pooling(data_set, load_backbone(network()))).ridge
    problem = lqf_problem(load_backbone(network()), images, SMALL, CPU, dtype="float64")
    assert problem.ridge.head == pytest.approx(expected.head)
    assert problem.ridge.body == pytest.approx(expected.body)
    assert problem.averaged is problem.kernels
