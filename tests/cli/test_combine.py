"""`lqf combine`."""

import numpy as np
import pytest

from cli.conftest import HEAD
from lqf import LQFClassifier


def test_it_writes_the_sum(lqf, run, photos):
    assert lqf("tune", run, "--at", 100, "-o", "tuned").code == 0
    called = lqf("combine", run, "tuned", "--times", 0.5, -2, "-o", "total")
    assert called.code == 0, called.err
    assert "0.5 ·" in called.out
    assert "-2 · tuned" in called.out
    a, b, total = (
        LQFClassifier.load(m, device="cpu").decision_function(photos / "test") for m in (run, "tuned", "total")
    )
    np.testing.assert_allclose(total, 0.5 * a - 2 * b, atol=1e-5)
    assert lqf("evaluate", "total", photos / "test", "--json").json["n"] == 12
    assert "sum of fitted models" in lqf("audit", "total").err


def test_bad_input_is_a_sentence_and_nothing_is_written(lqf, run, photos, tmp_path):
    other = tmp_path / "other"
    assert lqf("fit", photos / "train", "-o", other, *HEAD, "--views", "none").code == 0
    for words, said in (
        ([run, run, "--times", 1], "give a number for each model"),
        ([run, run, "--times", 1, 0], "not zero"),
        ([run, other, "--times", 1, 1], "different views"),
        ([run, "--times", "x"], "invalid float value"),
        ([run, "nowhere", "--times", 1, 1], "not a fitted model"),
    ):
        called = lqf("combine", *words, "-o", "total")
        assert called.code == 2, words
        assert said in called.err, called.err
    assert lqf("combine", run, "--times", 1, "-o", run).code == 2
    assert not list((tmp_path / "here").iterdir())


@pytest.mark.parametrize("times", [1, -1])
def test_one_model_may_be_scaled(lqf, run, times):
    assert lqf("combine", run, "--times", times, "-o", "total").code == 0
