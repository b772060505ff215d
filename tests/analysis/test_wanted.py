"""What an answer by iteration may cost, and what it says of its accuracy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fits import FIXED, classifier, data
from lqf.analysis import seconds
from lqf.analysis.scores import FEWEST
from lqf.analysis.wanted import LEAST, SCORES, USUAL, WHAT_IF
from lqf.fitting import FittedModel

X, Y = data(12)


def fitted(solver: str) -> FittedModel:
    model = classifier(solver=solver, tol=0.1, **FIXED).fit(X, Y).fitted_
    assert isinstance(model, FittedModel)
    return model


def test_the_passes_are_those_of_the_fit_s_own_solve_whatever_was_changed_since() -> None:
    model = fitted("pcg")
    passes = model.report.passes
    assert (SCORES.passes(model), WHAT_IF.passes(model)) == (max(passes, LEAST), max(passes // 2, LEAST))
    changes = ({"what": "forget", "passes": 2, "passes_of_fit": 9}, {"what": "add", "passes": 1, "passes_of_fit": 9})
    changed = replace(model, report=replace(model.report, passes=1, changes=changes))
    assert (SCORES.passes(changed), WHAT_IF.passes(changed)) == (9, 4)
    quick = replace(model, report=replace(model.report, passes=2, changes=()))
    assert SCORES.passes(quick) == LEAST > FEWEST


def test_a_model_that_was_solved_otherwise_has_usual_ones() -> None:
    assert SCORES.passes(fitted("dense")) == USUAL


@pytest.mark.parametrize(
    ("gap", "level", "note"),
    [
        (0.013, "solved", "responses within 1.3%"),
        (0.08, "estimated", "responses within 8.0%: 2.0% would take more than all passes of the fit's own solve"),
        (float("nan"), "estimated", "responses of unknown accuracy: 2.0% would take more than all passes of the fit's"),
    ],
)
def test_an_answer_says_how_near_it_came(gap: float, level: str, note: str) -> None:
    assert SCORES.level(gap) == level
    assert SCORES.note(gap).startswith(note)
    assert "50.0% of the passes" in WHAT_IF.note(0.3)


def test_a_pass_of_an_answer_takes_longer_than_the_fit_s_own_on_a_gpu() -> None:
    model = fitted("pcg")
    stages = {"solve": 12.0, "curvature": 2.0}
    report = replace(model.report, passes=5, stages=stages)
    cpu, gpu = (replace(model, report=replace(report, device=device)) for device in ("cpu", "cuda:0"))
    assert seconds.of_product(cpu) == 2.0
    assert seconds.of_product(gpu) == pytest.approx(2.0 * seconds.EXACT)
    plain = replace(gpu, settings=replace(gpu.settings, precision="float32"))
    assert seconds.of_product(plain) == 2.0
