"""Two models on the same images: every number against one counted by hand, and what cannot be compared."""

import numpy as np
import pytest

import lqf
from fits import classifier, data
from lqf import LQFClassifier
from lqf.evaluation.paired_difference import mcnemar
from lqf.reports.comparison import BROKEN, OTHER, REPAIRED, Comparison


@pytest.fixture(scope="module")
def models() -> tuple[LQFClassifier, LQFClassifier]:
    x, y = data(18)
    return classifier(solver="head").fit(x, y), classifier(solver="head", weight_decay=30.0).fit(x[::-1], y[::-1])


@pytest.fixture(scope="module")
def test_set() -> tuple[np.ndarray, np.ndarray]:
    return data(60, seed=7, signal=0.5)


@pytest.fixture(scope="module")
def found(models, test_set) -> Comparison:
    return lqf.compare(*models, *test_set)


def test_the_difference_is_that_of_both_scores(found, models, test_set):
    errors = [1 - m.score(*test_set) for m in models]
    assert found.difference.error.value == pytest.approx(errors[1] - errors[0])
    assert (found.first.error.value, found.second.error.value) == pytest.approx(tuple(errors))
    losses = [-np.log(m.predict_proba(test_set[0])[np.arange(60), test_set[1]]).mean() for m in models]
    assert found.difference.log_loss.value == pytest.approx(losses[1] - losses[0])
    low, high = found.difference.error.interval
    assert low < found.difference.error.value < high


def test_changed_images_are_those_with_another_prediction(found, models, test_set):
    x, y = test_set
    a, b = (m.predict(x) for m in models)
    assert {int(c.path) for c in found.changed} == set((a != b).nonzero()[0].tolist())
    assert len(found.changed) > 3
    kinds = {BROKEN: (a == y) & (b != y), REPAIRED: (a != y) & (b == y), OTHER: (a != b) & (a != y) & (b != y)}
    assert found.flips == {kind: int(where.sum()) for kind, where in kinds.items()}
    for c in found.changed:
        i = int(c.path)
        assert (c.label, c.first, c.second) == (str(y[i]), str(a[i]), str(b[i]))
        assert kinds[c.kind][i]
        assert c.second_probability == pytest.approx(models[1].predict_proba(x[i : i + 1]).max())
    assert found.difference.p_value == mcnemar(found.flips[BROKEN], found.flips[REPAIRED])


def test_it_says_so_in_a_few_lines_and_as_a_table(found):
    text = repr(found)
    assert max(map(len, text.splitlines())) <= 80
    assert "points (95%:" in text
    assert f"{len(found.changed)} predictions changed" in text
    frame = found.to_frame()
    assert list(frame.columns) == [
        *("path", "label", "first", "second", "first_probability", "second_probability", "kind")
    ]
    assert len(frame) == len(found.changed)


def test_a_model_does_not_differ_from_itself(models, test_set):
    found = lqf.compare(models[0], models[0], *test_set)
    assert found.changed == ()
    assert found.difference.error.value == 0
    assert found.verdict == "no difference of their errors is shown"
    assert len(found.to_frame()) == 0


def test_the_order_of_the_classes_does_not_matter(models, test_set):
    """A model whose classes are in another order is compared by their names."""
    x, y = data(18)
    names = np.array(["ash", "birch", "cedar"])
    first = classifier(solver="head").fit(x, names[y])
    other = LQFClassifier(**first.get_params())
    from dataclasses import replace

    turned = [2, 0, 1]
    fitted = first.fitted_
    other._adopt(replace(fitted, classes=tuple(fitted.classes[k] for k in turned), head=fitted.head[turned], loo=None))
    found = lqf.compare(first, other, test_set[0], names[test_set[1]])
    assert found.changed == ()
    assert found.difference.log_loss.value == pytest.approx(0, abs=1e-12)


def test_other_classes_and_nothing_to_compare_on_are_refused(models, test_set):
    x, y = data(18)
    other = classifier(solver="head").fit(x, np.array(["0", "1", "oak"])[y])
    with pytest.raises(lqf.LQFError, match="only the first model knows `2`; models are compared on the same classes"):
        lqf.compare(models[0], other, *test_set)
