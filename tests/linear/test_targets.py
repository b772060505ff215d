"""Labels as targets, outputs as decisions."""

import pytest
import torch

from lqf.linear.targets import centre, class_scores, decide, encode, error_rate, logits, n_outputs

LABELS = torch.tensor([0, 2, 1, 2])


def test_one_output_per_class_and_one_for_two_classes() -> None:
    assert [n_outputs(k) for k in (2, 3, 10)] == [1, 3, 10]
    assert encode(LABELS, 3, 15.0).tolist() == [[15, 0, 0], [0, 0, 15], [0, 15, 0], [0, 0, 15]]
    assert encode(LABELS.clamp_max(1), 2, 15.0).tolist() == [[-7.5], [7.5], [7.5], [7.5]]
    assert encode(LABELS, 3, 15.0).dtype == torch.float64


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_centre_is_the_mean_target_of_equally_frequent_classes(n_classes: int) -> None:
    t = encode(torch.arange(n_classes), n_classes, 4.0)
    torch.testing.assert_close(t.mean(0), torch.full_like(t[0], centre(n_classes, 4.0)))


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_targets_are_decided_as_their_labels(n_classes: int) -> None:
    labels = torch.randint(0, n_classes, (50,))
    t = encode(labels, n_classes, 15.0)
    assert torch.equal(decide(t), labels)
    torch.testing.assert_close(class_scores(t, 15.0), 15.0 * torch.nn.functional.one_hot(labels, n_classes).double())


@pytest.mark.parametrize("n_classes", [2, 5])
def test_scores_logits_and_decisions_agree(n_classes: int) -> None:
    f = torch.randn(40, n_outputs(n_classes), dtype=torch.float64)
    assert class_scores(f, 15.0).shape == logits(f).shape == (40, n_classes)
    assert torch.equal(class_scores(f, 15.0).argmax(1), decide(f))
    assert torch.equal(logits(f).argmax(1), decide(f))


def test_the_two_scores_of_one_output_are_mirror_images() -> None:
    f = torch.randn(9, 1)
    torch.testing.assert_close(class_scores(f, 15.0), torch.cat([7.5 - f, 7.5 + f], 1))
    torch.testing.assert_close(class_scores(f, 15.0).sum(1), torch.full((9,), 15.0))


def test_error_rate_is_weighted() -> None:
    f = encode(torch.tensor([0, 2, 0, 0]), 3, 1.0)  # the last two are wrong
    assert error_rate(f, LABELS) == 0.5
    assert error_rate(f, LABELS, torch.tensor([1.0, 1.0, 2.0, 0.0])) == 0.5
    assert error_rate(f, LABELS, torch.tensor([3.0, 3.0, 1.0, 1.0])) == 0.25
