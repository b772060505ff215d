"""The report of a stack: every question is asked of all its members, or says of which."""

import pytest

from fits import convnet, photos
from html_reader import Reader, assert_needs_nothing_else
from lqf import LQFClassifier
from lqf.reports.report import collect
from lqf.reports.rungs import unknowns
from stacks import stacked

pytest.importorskip("jinja2")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def stack(folder, tmp_path_factory):
    """A head with mirror images and LQF, added up, saved and loaded."""
    common = {"pooling": "avg", "size": 32, "device": "cpu", "dtype": "float64"}
    models = {
        "head, mirror images": LQFClassifier(convnet(), solver="head", views="flip", **common).fit(str(folder)),
        "LQF": LQFClassifier(convnet(), solver="dense", **common).fit(str(folder)),
    }
    out = tmp_path_factory.mktemp("stack") / "run"
    first = models["LQF"]
    first.fitted_ = stacked(models, (0.4, 0.6))
    first.save(out)
    return LQFClassifier.load(out, backbone=convnet(), device="cpu")


def test_a_report_of_a_stack(stack, tmp_path):
    test = photos(tmp_path / "test", 5, seed=1)
    parts = collect(stack, test=str(test))
    html = parts.page("a stack")
    assert_needs_nothing_else(html)
    text = " ".join(Reader(html).text.replace("\u202f", " ").split())
    for said in ("A stack of models", "head, mirror images (40 %) and LQF (60 %)", "15.3 %", "What was tried"):
        assert said in text
    for said in ("Why it predicts", "solver of the main member", f"{unknowns(stack.fitted_):,}", "alone"):
        assert said in text
    result = parts.to_dict()
    assert result["error"] == 0.153
    assert result["test"] == parts.test.evaluation.to_dict()
    assert sum(map(sum, result["test"]["confusion_matrix"])) == result["test_n"] == 10


def test_unknowns_of_a_stack_are_those_of_all_members(stack):
    assert unknowns(stack.fitted_) == sum(unknowns(m) for m in stack.fitted_.members)
