"""Leave-one-out as it is handed to the user: error, suspicion, calibration."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fits import classifier, data
from lqf.evaluation.calibration import calibrate
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.evaluation.metrics import standard_error
from lqf.linear.inputs import average_views


def loo(outputs: list[list[float]], labels: list[int], weights: list[float] | None = None) -> LeaveOneOut:
    s = torch.tensor(weights or [1.0] * len(labels))
    return LeaveOneOut(torch.tensor(outputs).double(), "exact", labels=torch.tensor(labels), weights=s)


def test_error_is_the_weighted_share_of_wrong_predictions() -> None:
    result = loo([[3, 1, 0], [0, 2, 5], [0, 4, 1], [1, 0, 0]], [0, 2, 2, 1], [1, 1, 3, 1])
    assert result.predicted.tolist() == [0, 2, 1, 0]
    assert result.error == pytest.approx(4 / 6)


def test_the_balanced_error_is_the_mean_of_the_classes_errors() -> None:
    result = loo([[3, 1, 0], [0, 2, 5], [0, 4, 1], [1, 0, 0], [5, 0, 0]], [0, 2, 2, 1, 0], [1, 1, 3, 1, 1])
    assert result.balanced_error == pytest.approx((0 + 1 + 3 / 4) / 3)
    assert loo([[3, 1], [0, 2], [5, 1]], [0, 1, 1]).balanced_error == pytest.approx((0 + 1 / 2) / 2)
    n = 3**2 / (1 / 2 + 1 + (3**2 + 1) / 4**2)  # in every class the weights add up to 1
    assert result.balanced_standard_error == pytest.approx(standard_error(result.balanced_error, n))


def test_samples_of_unequal_weight_make_the_error_less_certain() -> None:
    outputs, labels = [[1.0, 0], [0, 1], [1, 0], [1, 0]], [0, 1, 1, 0]
    equal, unequal = (loo(outputs, labels, w) for w in ([2, 2, 2, 2], [5, 1, 1, 1]))
    assert equal.standard_error == standard_error(1 / 4, 4)
    assert unequal.standard_error == pytest.approx(standard_error(1 / 8, 8**2 / 28))


def test_the_temperature_counts_what_choices_count() -> None:
    outputs, labels = torch.randn(30, 3).double(), torch.tensor([0] * 20 + [1] * 7 + [2] * 3)
    outputs[4] = torch.nan
    result = LeaveOneOut(outputs, "exact", labels=labels, weights=torch.ones(30), choose_by="classes")
    known = torch.arange(30) != 4
    alike = torch.tensor([1 / 19, 1 / 7, 1 / 3])[labels[known]] * 29 / 3
    assert result.temperature() == pytest.approx(calibrate(outputs[known], labels[known], alike), rel=1e-5)
    assert result.temperature() != pytest.approx(replace(result, choose_by="images").temperature())


def test_suspicion_is_the_best_other_score_minus_the_labels_own() -> None:
    assert loo([[3, 1, 0], [0, 2, 5], [0, 4, 1]], [0, 2, 2]).suspicion().tolist() == [-2, -3, 3]
    assert loo([[3], [3], [-1]], [0, 1, 1]).suspicion().tolist() == [6, -6, 2]


def test_positive_suspicion_is_a_wrong_prediction() -> None:
    for c in (1, 4):
        labels = torch.randint(0, max(c, 2), (50,))
        result = LeaveOneOut(torch.randn(50, c), "exact", labels=labels, weights=torch.ones(50))
        assert torch.equal(result.suspicion() > 0, result.predicted != result.labels)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("solver", ["head", "dense"])
def test_a_flipped_label_is_the_most_suspicious(n_classes: int, solver: str) -> None:
    x, y = data(36, n_classes, signal=2.0)
    y = y.copy()
    y[7] = (y[7] + 1) % n_classes
    suspicion = classifier(solver=solver).fit(x, y).leave_one_out().suspicion()
    assert int(suspicion.argmax()) == 7
    assert float(suspicion[7]) > 0


def test_temperature_takes_the_sample_weights() -> None:
    outputs, labels, weights = torch.randn(30, 3), torch.randint(0, 3, (30,)), torch.rand(30)
    result = LeaveOneOut(outputs, "exact", labels=labels, weights=weights)
    assert result.temperature() == calibrate(outputs, labels, weights)
    assert result.temperature() != calibrate(outputs, labels)


def test_views_are_averaged_per_sample() -> None:
    rows = torch.arange(12.0).view(6, 2)
    np.testing.assert_array_equal(average_views(rows, 3), [[2, 3], [8, 9]])
    assert torch.equal(average_views(rows, 1), rows)


def test_the_error_has_a_standard_error_by_the_samples_that_are_known() -> None:
    outputs = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [torch.nan, torch.nan]])
    loo = LeaveOneOut(outputs, "estimated", labels=torch.tensor([0, 1, 1, 0]), weights=torch.ones(4))
    assert loo.error == pytest.approx(1 / 3)
    assert loo.standard_error == pytest.approx((1 / 3 * 2 / 3 / 3) ** 0.5)
