"""A climb: the head first, every rung judged out of sample, kept where it gains; what is kept is a complete model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from finetuned_models import short
from fits import FIXED, classifier, convnet, data, pictures
from lqf import LQFClassifier
from lqf.errors import LQFError
from lqf.fitting import FittedModel, ladder
from lqf.fitting.rungs.finetuned import FINETUNED
from lqf.fitting.rungs.heads import HeadRung
from lqf.fitting.rungs.plan import Plan
from lqf.fitting.rungs.rung import Attempt, Ground, NotNow
from lqf.fitting.rungs.stack import StackRung
from lqf.fitting.stack import Model
from lqf.runtime.deadline import OutOfTime
from recorder import Recorder

X, Y = data(30)
NAMES = ["head", "head, mirror images", "head, 8 views", "LQF", "fine-tuned", "stack"]


@pytest.fixture(autouse=True)
def _few_epochs() -> Iterator[None]:
    """A fine-tuning is a rung like any other here."""
    with short(6):
        yield


def climbed(effort: str = "standard", progress: Recorder | None = None, **params: Any) -> LQFClassifier:
    model = classifier(solver="auto", effort=effort, **params)
    return model.fit(X, Y, progress=progress or Recorder())


# --- the loop, with rungs of which the outputs are given ------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """A rung that adds so much of the true class to the head's outputs, or raises."""

    name: str
    better: float = 0.0
    raises: Exception | None = None
    predicted: float = 0.0
    effort: str = "standard"
    kind: str = "given"

    def seconds(self, ground: Ground) -> float:
        return self.predicted

    def attempt(self, ground: Ground) -> Attempt:
        if self.raises is not None:
            raise self.raises
        head, labels = ground.attempts["head"], ground.data.labels
        outputs = head.outputs + self.better * torch.nn.functional.one_hot(labels, 3)
        return replace(head, name=self.name, outputs=outputs, alternatives={}, about={"pooling": "avg"})


def along(monkeypatch: pytest.MonkeyPatch, *rungs: Any, kept: list[Model] | None = None, **params: Any) -> Any:
    """The report of a climb along the head and these rungs."""
    every = (HeadRung(), *rungs)
    plan = Plan(every, (), "standard", {r.name: 0.0 for r in every}, "all", None)
    monkeypatch.setattr(ladder, "make_plan", lambda ground: plan)
    models = [] if kept is None else kept
    model = classifier(solver="auto", **params).fit(X, Y, keep=models.append)
    return {r["name"]: r for r in model.report_["rungs"]}, model


def test_what_gains_is_kept_and_what_does_not_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Model] = []
    rungs, model = along(monkeypatch, Given("better", 5.0), Given("worse", -5.0), Given("best", 9.0), kept=kept)
    assert [rungs[name]["kept"] for name in ("head", "better", "worse", "best")] == [True, True, False, True]
    assert rungs["worse"]["why"] == "gains nothing"
    assert rungs["worse"]["gain"] < 0 < rungs["better"]["gain"]
    assert rungs["head"]["gain"] is None
    names = [ladder.rung_of(m) for m in kept]
    assert names == ["head", "better", "best", "best"]  # the last one once more, with the whole report
    assert [r["why"] for r in kept[0].report.rungs[1:]] == ["not yet"] * 3
    assert model.report_["rungs"] == kept[-1].report.to_dict()["rungs"]


def test_a_gain_of_less_than_half_a_percent_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    rungs, _ = along(monkeypatch, Given("same", 1e-4))
    assert rungs["same"]["gain"] > 0
    assert not rungs["same"]["kept"]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (NotNow("is for other data"), "is for other data"),
        (LQFError("the network cannot be cut"), "the network cannot be cut"),
        (OutOfTime(), "the time was up"),
        (MemoryError(), "needs more memory"),
    ],
)
def test_a_rung_that_cannot_be_leaves_the_model_before_it(
    monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    rungs, model = along(monkeypatch, Given("it", raises=error), Given("later", 5.0))
    assert rungs["it"]["why"] == why
    assert rungs["it"]["error"] is None
    late = "later" in rungs and rungs["later"]["kept"]
    assert late == (why != "the time was up")  # then nothing else is tried
    assert len(model.predict(X)) == len(X)


@pytest.mark.parametrize("error", [LQFError("its loss rises"), MemoryError()], ids=["error", "memory"])
def test_no_stack_counts_on_a_rung_that_could_not_be_finished(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    @dataclass(frozen=True)
    class Unfinished(Given):
        def attempt(self, ground: Ground) -> Attempt:
            def finish() -> Model:
                raise error

            return replace(super().attempt(ground), finish=finish, head=None)

    rungs, model = along(monkeypatch, Unfinished(FINETUNED, 9.0), StackRung())
    assert not rungs[FINETUNED]["kept"]
    assert rungs["stack"]["why"].startswith("needs two")
    assert ladder.rung_of(model.fitted_) == "head"


def test_the_first_rung_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeadRung, "attempt", lambda self, ground: (_ for _ in ()).throw(LQFError("no features")))
    with pytest.raises(LQFError, match="no features"):
        climbed()


def test_a_rung_starts_only_where_its_predicted_time_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    rungs, _ = along(monkeypatch, Given("long", 5.0, predicted=1e4), Given("short", 5.0), time_limit=60)
    assert rungs["long"]["seconds"] is None
    assert rungs["long"]["why"].startswith("needs about 167 min")
    assert rungs["short"]["kept"]


def test_the_first_model_is_made_whatever_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rungs, model = along(monkeypatch, Given("more", 5.0, predicted=0.1), time_limit=1e-3)
    assert rungs["head"]["kept"]
    assert rungs["more"]["seconds"] is None
    assert model.report_["next_rung"]["name"] == "more"


def test_a_pass_is_given_up_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(self: Any, ground: Ground) -> Attempt:
        ground.context.deadline.at = 0.0
        for _ in ground.attempts["head"].head.encoder.inputs.batches():  # type: ignore[union-attr]
            pytest.fail("a batch was delivered after the time was up")
        raise AssertionError

    monkeypatch.setattr(Given, "attempt", slow)
    rungs, _ = along(monkeypatch, Given("slow"), time_limit=600)
    assert rungs["slow"]["why"] == "the time was up"


# --- real rungs -----------------------------------------------------------------------------------------------------


def test_the_models_of_rungs_are_those_of_their_solvers() -> None:
    common = {"backbone": convnet(), "size": 8, "views": "none", "pooling": "avg", **FIXED}
    x, y = pictures(24)
    kept: dict[str, Model] = {}
    auto = classifier(solver="auto", effort="standard", **common)
    auto.fit(x, y, keep=lambda m: kept.__setitem__(ladder.rung_of(m), m))
    for name, solver in (("head", "head"), ("LQF", "dense")):
        if name in kept:
            named = classifier(solver=solver, **common).fit(x, y).fitted_
            found = kept[name]
            assert isinstance(found, FittedModel)
            for key in ("head", "delta"):
                torch.testing.assert_close(getattr(found, key), getattr(named, key), rtol=1e-8, atol=1e-8)
    assert "head" in kept


def test_every_rung_and_its_cost_are_in_the_report() -> None:
    report = climbed().report_
    assert [r["name"] for r in report["rungs"]] == NAMES
    tried = [r for r in report["rungs"] if r["seconds"] is not None]
    assert [r["name"] for r in tried] == ["head", "LQF", "fine-tuned", "stack"]  # tensors have no mirror images
    assert report["rungs"][1]["why"] == "tensors have one view"
    assert all(0 <= r["error"] <= 1 and r["loss"] > 0 and r["predicted_seconds"] > 0 for r in tried)
    assert report["effort"] == "standard"
    assert 0 <= report["error"] <= 1
    assert "made again without each of 5 folds" in report["error_note"]
    assert report["next_rung"]["effort"] == "best"


def test_the_plan_is_said_before_anything_is_tried() -> None:
    seen = Recorder()
    climbed(progress=seen)
    plan = [line for line in seen.said if line.startswith(("Plan", "  "))]
    assert plan == seen.said[: len(plan)]
    assert plan[0] == "Plan (effort standard):"
    assert [line.strip().partition("  ")[0] for line in plan[1:]] == NAMES


def test_a_climb_is_the_same_every_time() -> None:
    one, two = climbed("best"), climbed("best")
    assert one.fitted_.tried.keys() == two.fitted_.tried.keys()
    for name, outputs in one.fitted_.tried.items():
        assert torch.equal(outputs, two.fitted_.tried[name])
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))


def test_classes_in_another_order_permute_the_outputs() -> None:
    x, y = data(30)
    other = classifier(solver="auto", effort="standard").fit(x, 2 - y)
    np.testing.assert_allclose(
        climbed().decision_function(x), other.decision_function(x)[:, ::-1], rtol=1e-4, atol=1e-4
    )  # fine-tuning is in float32


# --- climbing on ----------------------------------------------------------------------------------------------------


def by_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems are solved by conjugate gradients, too."""
    from lqf.fitting import pose

    monkeypatch.setitem(pose.DENSE_PAIRS, "cpu", 0)


PICTURES: dict[str, Any] = {"backbone": convnet(), "size": 8, "pooling": "avg", "weight_decay": 0.01}


@pytest.mark.parametrize(("before", "solver"), [("quick", "pcg"), ("standard", "dense")])
def test_climbing_on_ends_where_a_whole_climb_does(monkeypatch: pytest.MonkeyPatch, before: str, solver: str) -> None:
    if solver == "pcg":
        by_iteration(monkeypatch)
    x, y = pictures(18)
    whole = classifier(solver="auto", effort="best", **PICTURES).fit(x, y)
    earlier = classifier(solver="auto", effort=before, **PICTURES).fit(x, y)
    later = classifier(solver="auto", effort="best", **PICTURES).fit(x, y, earlier=earlier.fitted_)
    assert later.fitted_.tried.keys() >= earlier.fitted_.tried.keys()
    for name, outputs in whole.fitted_.tried.items():
        torch.testing.assert_close(later.fitted_.tried[name], outputs, rtol=1e-6, atol=1e-5)
    assert later.report_["error"] == whole.report_["error"]
    np.testing.assert_allclose(later.decision_function(x), whole.decision_function(x), rtol=1e-3, atol=1e-3)


def test_all_rungs_of_the_best_effort_are_tried_by_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    by_iteration(monkeypatch)
    monkeypatch.setattr("lqf.evaluation.paired.LEAST_GAIN", -10.0)  # all are kept
    monkeypatch.setattr("lqf.fitting.rungs.linear.BEARABLE", 0.0)
    x, y = pictures(18)
    report = classifier(solver="auto", effort="best", **PICTURES).fit(x, y).report_
    rungs = {r["name"]: r for r in report["rungs"]}
    assert list(rungs)[-6:] == [*("LQF", "LQF, 8 views", "fine-tuned", "fine-tuned, lower rate", "LQF, moved", "stack")]
    for name in ("head, mirror images", "head, 8 views", "LQF", "LQF, 8 views", "LQF, moved", "fine-tuned", "stack"):
        assert rungs[name]["kept"], rungs[name]
    assert (rungs["LQF"]["views"], rungs["LQF, 8 views"]["views"]) == ("none", "crops8")


def test_lqf_is_tried_in_all_views_that_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    by_iteration(monkeypatch)
    monkeypatch.setattr("lqf.evaluation.paired.LEAST_GAIN", -10.0)
    x, y = pictures(18)
    report = classifier(solver="auto", effort="best", **PICTURES).fit(x, y).report_
    rungs = {r["name"]: r for r in report["rungs"]}
    assert rungs["LQF"]["views"] == "crops8"
    assert rungs["LQF, 8 views"]["seconds"] is None


def test_what_was_tried_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier, seen = climbed("standard"), Recorder()
    monkeypatch.setattr("lqf.fitting.rungs.linear._On._refitted", lambda *args: pytest.fail("refitted again"))
    again = climbed_on(earlier, effort="standard", progress=seen)
    assert again.fitted_ is earlier.fitted_
    assert any("all that effort standard has was tried" in line for line in seen.said)


def climbed_on(earlier: LQFClassifier, progress: Recorder | None = None, x: Any = X, **params: Any) -> LQFClassifier:
    model = classifier(solver="auto", **params)
    return model.fit(x, Y, earlier=earlier.fitted_, progress=progress or Recorder())


def test_another_problem_is_not_climbed_on() -> None:
    earlier = climbed("quick")
    with pytest.raises(LQFError, match="other images"):
        climbed_on(earlier, x=X[::-1].copy(), effort="best")
    with pytest.raises(LQFError, match=r"other settings \(alpha\)"):
        climbed_on(earlier, alpha=3.0, effort="best")
    with pytest.raises(LQFError, match="another network"):
        climbed_on(earlier, leaky=False, effort="best")
    with pytest.raises(LQFError, match="its solver was named"):
        climbed_on(classifier(solver="head").fit(X, Y), effort="best")
