"""Every command that uses a model, with a stack of two."""

from pathlib import Path

import pytest

from lqf import LQFClassifier
from lqf.storage import save
from stacks import stacked


@pytest.fixture(scope="module")
def stack(photos, tmp_path_factory):
    """A head in two views and the last layers, in one folder."""
    common = {"weights": "random", "size": 32, "device": "cpu", "pooling": "avg", "weight_decay": 10.0}
    common |= {"backbone": "mobilenet_v2"}
    last = {"solver": "dense", "linearize": "final", "body_weight_decay": 10.0}
    models = {
        "head, mirror images": LQFClassifier(**common, solver="head", views="flip").fit(str(photos / "train")),
        "LQF": LQFClassifier(**common, **last).fit(str(photos / "train")),
    }
    out = tmp_path_factory.mktemp("stacks") / "run"
    save(stacked(models, (0.4, 0.6)), out)
    return out


def test_evaluate_says_what_the_fit_expected(lqf, stack, photos):
    called = lqf("evaluate", stack, photos / "test")
    assert called.code == 0, called.err
    assert " on 12 images.\nThe fit expected 15.3%." in called.out
    assert lqf("evaluate", stack, photos / "test", "--json").json["expected_error"] == 0.153


def test_predictions_are_the_sum_of_the_members(lqf, stack, photos):
    entries = lqf("predict", stack, photos / "test", "--json").json["predictions"]
    assert len(entries) == 12
    model = LQFClassifier.load(stack, device="cpu").predict_proba(photos / "test")
    assert [e["probabilities"]["red"] for e in entries] == pytest.approx(model[:, 2].tolist(), abs=1e-5)


def test_explain_adds_the_members_up(lqf, stack, photos):
    image = next((photos / "test" / "red").iterdir())
    called = lqf("explain", stack, image, "-o", "why.html", "--without", "red/0.png", "--json")
    assert called.code == 0, called.err
    assert "a stack of head, mirror images (40%), LQF (60%)" in called.json["note"]
    explained = called.json["explanations"][0]
    assert explained["towards"]
    assert explained["without"]["ids"] == ["red/0.png"]


def test_audit_and_summarize_say_that_information_is_estimated(lqf, stack):
    audit = lqf("audit", stack, "-o", "found", "--json")
    assert audit.code == 0, audit.err
    assert audit.json["levels"]["information"]["level"] == "estimated"
    half = lqf("summarize", stack, "--keep", "0.5", "-o", "half.csv", "--json")
    assert half.code == 0, half.err
    assert half.json["level"] == "estimated"
    assert half.json["kept"] == 9


def test_report_has_what_was_tried(lqf, stack, photos):
    called = lqf("report", stack, "-o", "report.html", "--test", photos / "test")
    assert called.code == 0, called.err
    assert "15.3% ± 1.8 (all choices made again without each fold)" in " ".join(called.out.split())
    assert max(map(len, called.out.splitlines())) <= 80
    assert "a stack of head, mirror images" in Path("report.html").read_text(encoding="utf-8")
