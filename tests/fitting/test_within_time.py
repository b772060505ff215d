"""As many images as a time limit suffices for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fits import classifier, convnet, pictures
from lqf.fitting import within_time as module
from lqf.fitting.rungs.pace import Pace
from lqf.fitting.within_time import spread_over_classes
from recorder import Recorder

LABELS = np.repeat([0, 1, 2], [60, 30, 9])


def paced(monkeypatch: pytest.MonkeyPatch, row: float) -> None:
    """A network that takes so many seconds for a row."""
    monkeypatch.setattr(Pace, "measure", classmethod(lambda cls, *args: cls(row, 1e12, "cpu")))


def fitted(progress: Recorder, **params: Any) -> Any:
    x, y = pictures(60)
    model = classifier(backbone=convnet(), solver="auto", size=8, views="none", pooling="avg", **params)
    return model.fit(x, y, progress=progress)


def test_every_beginning_has_the_shares_of_the_classes() -> None:
    order = spread_over_classes(LABELS, seed=3)
    assert sorted(order) == list(range(99))
    assert np.bincount(LABELS[order[:6]]).tolist() == [2, 2, 2]
    for n in (33, 50, 80):
        found = np.bincount(LABELS[order[:n]], minlength=3)
        assert np.abs(found - n * np.array([60, 30, 9]) / 99).max() <= 2


def test_the_part_depends_on_the_seed_alone() -> None:
    assert spread_over_classes(LABELS, 1).tolist() == spread_over_classes(LABELS, 1).tolist()
    assert spread_over_classes(LABELS, 1).tolist() != spread_over_classes(LABELS, 2).tolist()


def test_a_slow_network_sees_a_part_of_the_images_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    paced(monkeypatch, row=1.0)
    seen = Recorder()
    report = fitted(seen, time_limit=60).report_
    assert report["images_given"] == 60
    assert 20 < report["n"] < 42  # 70 % of the time, 1.15 s each
    (line,) = [s for s in seen.said if "suffice for" in s]
    assert f"about {report['n']} of 60 images" in line
    assert "longer time_limit uses all" in line


def test_a_class_keeps_an_image_however_short_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    paced(monkeypatch, row=1e3)
    model = fitted(Recorder(), time_limit=5)
    assert model.report_["n"] == 3
    assert model.classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize("params", [{"time_limit": 3600}, {"effort": "quick"}])
def test_where_time_suffices_all_images_are_used(monkeypatch: pytest.MonkeyPatch, params: dict[str, Any]) -> None:
    paced(monkeypatch, row=1e-3)
    seen = Recorder()
    report = fitted(seen, **params).report_
    assert (report["n"], report["images_given"]) == (60, None)
    assert not any("suffice for" in s for s in seen.said)


def test_the_images_that_are_timed_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    make = module.open_images
    monkeypatch.setattr(module, "open_images", lambda samples, p: (opened.append(len(samples)), make(samples, p))[1])
    fitted(Recorder(), time_limit=3600)
    assert opened == [module.PROBED]
    assert torch.get_default_dtype() == torch.float32
