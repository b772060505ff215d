"""Predicted times: passes of rows, the algebra of heads, and what was learnt from fits before."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fits import CPU, convnet, outline, pictures
from lqf.backbones import load_backbone
from lqf.data import Preprocess, load_samples, open_images
from lqf.fitting import Context, pose
from lqf.fitting.rungs.pace import LEAST, MOST, SHORT, WORK, Pace, head_algebra
from lqf.settings import Settings
from lqf.solvers.rates import Rates

PACE = Pace(row=0.01, flops=1e9, device="cpu", key="rungs of it")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LQF_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("kind", WORK)
def test_a_prediction_is_linear_in_the_rows_and_in_their_share_of_the_network(kind: str) -> None:
    none, some, more = (PACE.seconds(kind, rows) for rows in (0, 100, 200))
    assert more - none == pytest.approx(2 * (some - none))
    assert PACE.seconds(kind, 200, share=0.5) == pytest.approx(some)
    assert PACE.seconds(kind, 0, algebra=3e9) == pytest.approx(none + 3)


def test_the_algebra_of_a_head_grows_with_rows_features_and_folds() -> None:
    assert head_algebra(2000, 100, 5) < head_algebra(4000, 100, 5) < head_algebra(4000, 1000, 5)
    assert head_algebra(900, 5000, 5) > head_algebra(1100, 5000, 5)  # few rows: again without each fold
    assert head_algebra(2000, 5000, 5, heads=3) > head_algebra(2000, 5000, 5)


@pytest.mark.usefixtures("cache")
def test_what_a_rung_took_corrects_the_next_prediction_on_this_machine() -> None:
    before = PACE.seconds("views", 1000)
    learnt = PACE.learn("views", before, 2 * before + SHORT, CPU)
    assert learnt.seconds("views", 1000) == pytest.approx(2 * before, rel=1e-9)
    assert learnt.seconds("head", 1000) == PACE.seconds("head", 1000)
    again = measured()
    assert again.corrections == {}  # another network
    assert Pace(0.01, 1e9, "cpu", learnt.corrections).seconds("views", 1000) == learnt.seconds("views", 1000)


def measured() -> Pace:
    preprocess = Preprocess(size=8)
    images = open_images(load_samples(*pictures(12)), preprocess)
    return Pace.measure(images, preprocess, load_backbone(convnet()), Context(Settings(), CPU))


@pytest.mark.usefixtures("cache")
def test_a_measured_pace_knows_what_was_learnt_before() -> None:
    first = measured()
    assert first.row > 0
    assert first.flops > 1e6
    first.learn("head", 10.0, 20.0, CPU)
    assert measured().corrections == pytest.approx({"head": 22 / 12})
    assert measured().learn("head", 10.0, 10.0, CPU).corrections == pytest.approx({"head": 22 / 12})


@pytest.mark.usefixtures("cache")
def test_corrections_have_limits_and_short_rungs_say_little() -> None:
    assert PACE.learn("head", 1.0, 1e6, CPU).seconds("head", 10) == pytest.approx(MOST * PACE.seconds("head", 10))
    assert PACE.learn("head", 1e6, 1.0, CPU).seconds("head", 10) == pytest.approx(LEAST * PACE.seconds("head", 10))
    assert PACE.learn("head", 0.1, 0.2, CPU).corrections["head"] < 1.1


def test_rates_are_measured_once_on_a_machine(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan() -> pose.Plan | None:
        preprocess = Preprocess(size=8)
        images = open_images(load_samples(*pictures(12)), preprocess)
        return pose.planned(outline(Settings(), load_backbone(convnet()), images, preprocess)).plan

    first = plan()
    assert (cache / "timings.json").is_file()
    with monkeypatch.context() as patch:
        patch.setattr(Rates, "measure", lambda *args, **options: pytest.fail("measured again"))
        assert plan() == first
    (cache / "timings.json").write_text("no JSON")
    assert plan() is not None
    assert torch.get_num_threads() > 0
