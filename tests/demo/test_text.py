"""What the command prints."""

from lqf.demo import show
from stacks import rung


def test_show_fits_80_columns(result):
    assert max(map(len, show(result).splitlines())) <= 80


def test_show_has_every_number(result):
    text = show(result)
    for expected in ("17.6 % ± 1.7", "17.2 % ± 1.7", "16.0 % ± 1.8", "14.8 % ± 1.8", "2.30e-14", "123.4 s"):
        assert expected in text
    for expected in ("+0.007 ± 0.012", "−0.005 ± 0.012", "4 s*", "not tried: needs about 4 min"):
        assert expected in text
    for cell in result["suspicious"]:
        assert cell["id"] in text
    assert "demo/index.html" in text
    assert "lqf predict demo/model" in text


def test_show_without_suspicious_cells(result):
    assert "No training label is contradicted" in show(result | {"suspicious": []})


def test_a_long_folder_name_is_not_broken(result):
    out = "/home/somebody/" + "a-rather-long-name/" * 5 + "demo"
    assert f"Open {out}/index.html\n" in show(result | {"out": out})


def test_commands_can_be_typed_as_they_are(result):
    assert "lqf predict 'my demo/model' IMAGE.png\n" in show(result | {"out": "my demo"})


def said(result):
    return " ".join(show(result).split())


def test_the_error_that_was_expected_is_compared_with_the_test(result):
    assert "the fit expected 15.3 % ± 1.8 on unseen cells (all choices made again without each of 5 folds)" in said(
        result
    )
    assert "The test says 17.2 % ± 1.7: 1.9 points above; chance alone moves two such numbers apart by 2.5." in said(
        result
    )
    result["error"] = 0.2
    assert "2.8 points below;" in said(result)


def test_the_model_is_compared_with_the_first_head(result):
    assert "the model gets 41 right that the first head gets wrong, and 30 wrong" in said(result)
    assert "first head" not in said(result | {"repaired": None, "spoilt": None})
    assert "first head" not in said(result | {"model": {**result["model"], "name": "head"}})


def test_the_head_is_kept_where_the_body_adds_nothing(result):
    assert "The model is the closed-form head in 8 views of every image." in said(result)
    assert "so the head was kept: last stage (−0.005 ± 0.012) gains nothing." in said(result)


def test_lqf_that_was_not_tried_is_said_to_be_and_what_it_takes(result):
    missing = "LQF, the whole network linearised, was not tried: it needs about 4 min, and this fit had 75 s."
    result["rungs"][-1]["predicted_seconds"] = 267.0
    assert missing in said(result)
    command = "lqf fit demo/train.csv -o further --size 128 --seed 0 --effort standard"
    assert f"Climb on, up to LQF, about 4 min more {command}" in said(result)
    result["rungs"][-1]["why"] = "cannot be judged with one image per class"
    assert "was not tried: it cannot be judged with one image per class." in said(result)


def test_lqf_that_the_time_did_not_reach_is_said_to_be_missing(result):
    """What comes after a rung that was given up for want of time is not in the report of a fit."""
    gone = {"error": None, "loss": None, "gain": None, "why": "the time was up", "standard_error": None}
    result["rungs"] = [*result["rungs"][:3], {**result["rungs"][3], **gone}]
    result["next_rung"] = {"name": "last stage", "seconds": 18.0, "effort": "standard"}
    assert "LQF, the whole network linearised, was not tried: the time was up before it." in said(result)
    assert "not known to add anything: last stage was given up, the time was up." in said(result)
    assert "Climb on, up to LQF lqf fit" in said(result)


def test_the_way_beyond_lqf_is_another_effort(result):
    result["next_rung"] = {"name": "LQF, moved", "seconds": 600.0, "effort": "best"}
    assert "Climb on, up to LQF, moved, about 10 min more lqf fit" in said(result)
    assert "--effort best" in said(result)


def test_lqf_that_gains_nothing_is_said_to(result):
    result["rungs"][-1] |= rung("LQF", 0.16, 0.391, -0.004, stage="all", solver="pcg", kept=False, why="gains nothing")
    assert "last stage (−0.005 ± 0.012) and LQF (−0.004 ± 0.012) gain nothing." in said(result)
    assert "not tried" not in said(result)


def test_lqf_that_gains_is_the_model(result):
    result["rungs"][-1] |= rung("LQF", 0.12, 0.35, 0.037, stage="all", solver="pcg")
    assert "The model is LQF, the whole network linearised. In cross-entropy it gains +0.037 ± 0.012 over" in said(
        result
    )


def test_lqf_below_a_stack_keeps_its_own_gain(result):
    result["rungs"][-1] |= rung("LQF", 0.12, 0.35, 0.037, stage="all", solver="pcg")
    stack = rung("stack", 0.11, 0.33, 0.02, solver="stack", members={"head": 0.3, "LQF": 0.7})
    result["rungs"].append({**stack, "standard_error": 0.01, "test_error": None, "test_standard_error": None})
    assert "The model is a stack of head (30 %) and LQF (70 %)." in said(result)
    assert "LQF alone, the whole network linearised, gained +0.037 ± 0.012" in said(result)
