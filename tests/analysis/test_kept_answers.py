"""What an analysis has computed for some images belongs to it: another one never finds it, and it goes with them."""

import gc
from typing import Any

import pytest
import torch

from fits import classifier, data
from lqf import LQFClassifier

X, Y = data(12)
NEW = data(4, seed=7)[0]


def models(**params: Any) -> list[LQFClassifier]:
    """Two, with different weight decays."""
    params = {"loo": "none", "linearize": "second", **params}
    return [classifier(weight_decay=d, body_weight_decay=2 * d, **params).fit(X, Y) for d in (0.1, 1.0)]


@pytest.mark.parametrize("solver", ["dense", "pcg"])
def test_two_models_asked_about_the_same_images_answer_each_for_itself(solver: str) -> None:
    both = models(solver=solver)
    expected = [m.analyse(X).influence(NEW, units=[0, 5]).effects for m in both]
    assert not torch.allclose(*expected, atol=1e-3)
    queries = both[0].analyse(X).queries(NEW)
    for _ in range(3):
        for model, effects in zip(both, expected, strict=True):
            found = model.analyse(X).influence(queries, units=[0, 5]).effects
            torch.testing.assert_close(found, effects, rtol=1e-9, atol=1e-9)
            model.analysis_ = None  # its place in memory may be the next one's
            gc.collect()


def test_a_second_question_about_the_same_images_computes_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    analysis = models(solver="dense")[0].analyse(X)
    queries = analysis.queries(NEW)
    first = analysis.influence(queries)
    monkeypatch.setattr("lqf.analysis.by_kernel.body_cross", lambda *_, **__: pytest.fail("it was computed again"))
    assert torch.equal(analysis.influence(queries).effects, first.effects)
    assert analysis.information(queries).level == "exact"


@pytest.mark.parametrize("solver", ["dense", "pcg"])
def test_what_is_kept_goes_with_the_images(solver: str) -> None:
    analysis = models(solver=solver)[0].analyse(X)
    queries = analysis.queries(NEW)
    analysis.influence(queries, units=[0])
    method: Any = analysis.method
    caches = [method._kernels, method._responses] if solver == "dense" else [method._encoded, method._responses]
    assert [len(cache) for cache in caches] == [1, 1]
    del queries
    gc.collect()
    assert [len(cache) for cache in caches] == [0, 0]
