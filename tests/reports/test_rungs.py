"""What is said about a climb: which model it is, and what the network's body adds."""

import pytest

from lqf.reports.rungs import body, gain_of, members, next_up, rung_rows, verdict, which_model
from stacks import kept_head, left_out, rung

HEAD = rung("head", 0.16, 0.394)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (HEAD, "kept"),
        (rung("LQF", 0.2, 0.4, -0.1, kept=False, why="gains nothing"), "not kept: gains nothing"),
        (rung("LQF", None, None, kept=False, why="the time was up"), "given up: the time was up"),
        (left_out("LQF", "needs about 4 min"), "not tried: needs about 4 min"),
        (left_out("LQF", "not yet"), "not tried yet"),
    ],
)
def test_a_verdict_says_why(entry, said):
    assert verdict(entry) == said


def test_gains_have_a_sign_and_a_standard_error():
    assert gain_of(HEAD) == ""
    assert gain_of(rung("LQF", 0.1, 0.2, 0.0312)) == "+0.031 ± 0.012"
    assert gain_of(rung("LQF", 0.1, 0.2, -0.0312)) == "−0.031 ± 0.012"


def test_a_body_that_gains_nothing_leaves_the_head():
    assert which_model(kept_head()).startswith("The model is the closed-form head in 8 views of every image. ")
    assert "so the head was kept: last stage (−0.005 ± 0.012) gains nothing." in body(kept_head())
    both = [*kept_head()[:4], rung("LQF", 0.2, 0.4, -0.01, stage="all", kept=False, why="gains nothing")]
    assert body(both).endswith("last stage (−0.005 ± 0.012) and LQF (−0.010 ± 0.012) gain nothing.")


def test_a_body_that_gains_is_compared_with_the_model_before():
    kept = [*kept_head()[:3], rung("LQF", 0.1, 0.3, 0.087, stage="all")]
    assert which_model(kept) == (
        "The model is LQF, the whole network linearised. In cross-entropy it gains +0.087 ± 0.012 over the closed-form "
        "head in 8 views of every image."
    )


def test_a_body_that_was_not_tried_is_said_to_be():
    assert body([HEAD, left_out("LQF", "needs about 4 min")]) == (
        "The network's body was not tried: LQF needs about 4 min."
    )
    gone = rung("last stage", None, None, kept=False, why="the time was up")
    assert body([HEAD, gone]).endswith("not known to add anything: last stage was given up, the time was up.")
    assert body([HEAD]) == "The network's body was not tried."


def test_a_stack_names_its_members():
    shares = {"head": 0.1, "head, 8 views": 0.6, "LQF": 0.3}
    assert members(shares) == "head (10 %), head, 8 views (60 %) and LQF (30 %)"
    stack = [HEAD, rung("stack", 0.1, 0.3, 0.087, solver="stack", members=shares)]
    assert which_model(stack).startswith(f"The model is a stack of {members(shares)}. ")
    assert body(stack) == "The network's body has its part in it: LQF."
    heads = [HEAD, rung("stack", 0.1, 0.3, 0.087, solver="stack", members={"head": 0.4, "head, 8 views": 0.6})]
    assert body(heads) == "The network's body has no part in it."


def test_what_comes_next_has_its_time():
    assert next_up(None) == ""
    said = next_up({"name": "LQF, 8 views", "seconds": 900.0, "effort": "best"})
    assert said == "Next would come LQF in 8 views of every image, about 15 min."


def test_rows_keep_what_a_rung_has():
    rows = rung_rows(kept_head())
    assert [r["name"] for r in rows] == [r["name"] for r in kept_head()]
    assert [r["took"] for r in rows] == ["4 s"] * 4 + [""]
