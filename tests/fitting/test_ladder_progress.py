"""What a climb tells the progress about its rungs: the expected ends in a log stand on it."""

import pytest

from fits import classifier, data
from recorder import Recorder

X, Y = data(30)


def test_every_rung_comes_with_its_predicted_seconds_and_those_of_all_after_it() -> None:
    seen = Recorder()
    report = classifier(solver="auto", effort="quick").fit(X, Y, progress=seen).report_
    names, predicted, rest = zip(*seen.rungs, strict=True)
    assert names == tuple(r["name"] for r in report["rungs"])
    assert predicted == pytest.approx([r["predicted_seconds"] for r in report["rungs"]], abs=0.01)
    sums = [sum(predicted[k + 1 :]) for k in range(len(rest))]
    assert rest == pytest.approx(sums, rel=0.2)  # what a rung took corrects the predictions after it


def test_rungs_for_which_no_time_will_be_left_are_not_expected() -> None:
    seen = Recorder()
    classifier(solver="auto", time_limit=2.0).fit(X, Y, progress=seen)
    assert seen.rungs[0][0] == "head"
    assert all(seconds + rest <= 2.0 for _, seconds, rest in seen.rungs)


def test_rungs_of_an_earlier_climb_are_rungs_too_but_not_expected_again() -> None:
    earlier = classifier(solver="auto", effort="standard").fit(X, Y)
    tried = {r["name"] for r in earlier.report_["rungs"] if r["seconds"] is not None}
    seen = Recorder()
    classifier(solver="auto", effort="best").fit(X, Y, earlier=earlier.fitted_, progress=seen)
    assert tried < {name for name, _, _ in seen.rungs}
    new = [seconds for name, seconds, _ in seen.rungs if name not in tried]
    assert seen.rungs[0][2] < sum(new) + 1.0
