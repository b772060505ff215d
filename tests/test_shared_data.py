"""On real images: the closed-form head learns, and its leave-one-out error does not flatter."""

from pathlib import Path

import pytest

from lqf import LQFClassifier

pytestmark = pytest.mark.shared_data


def test_leave_one_out_does_not_flatter(shared_datasets: Path) -> None:
    model = LQFClassifier(solver="head", size=96, limit_per_class=5)
    model.fit(shared_datasets / "oxford_flowers102" / "train")
    error = 1 - model.score(shared_datasets / "oxford_flowers102" / "test")
    assert error < 0.5  # 102 classes, five images each
    assert model.leave_one_out().error > error - 0.05  # four of five images of a class are left: rather too high


def test_the_body_helps_or_is_left_alone(shared_datasets: Path) -> None:
    folder = shared_datasets / "chest_xray_kermany"
    common = {"size": 64, "limit_per_class": 20}
    head = LQFClassifier(solver="head", **common).fit(folder / "train")
    full = LQFClassifier(solver="dense", **common).fit(folder / "train")
    assert full.report_["solver"] == "dense"
    assert full.report_["relative_residual"] < 1e-4
    assert full.leave_one_out().error <= head.leave_one_out().error + 0.05
