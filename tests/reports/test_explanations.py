"""`LQFClassifier.explain`: a sequence of explanations that prints short, is a table, and becomes a file whole."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fits import FIXED, classifier, data
from html_reader import Reader, assert_needs_nothing_else
from lqf import Explanations, LQFError
from lqf.errors import MissingDependency
from lqf.reports.explanation import explanations
from lqf.reports.explanations import COLUMNS

X, Y = data(18)
NEW = data(5, seed=7)[0]


@pytest.fixture(scope="module")
def opened():
    model = classifier(**FIXED, verbose=0).fit(X, Y)
    model.analyse(X, Y)
    return model


def test_it_says_what_its_parts_say(opened):
    explained = opened.explain(NEW, top=3, without=["0", 4])
    analysis = opened.analysis_
    assert isinstance(explained, Explanations)
    assert explained.items == tuple(explanations(analysis.contrast(NEW), analysis.labels, most=3))
    result = explained.to_dict()
    what = analysis.what_if(NEW, without=["0", 4])
    for e, entry, name, p in zip(explained, result["explanations"], what.predicted, what.probabilities, strict=True):
        assert entry == e.to_dict() | {"without": entry["without"]}
        assert entry["without"]["ids"] == ["0", "4"]
        assert (entry["without"]["predicted"], entry["without"]["probability"]) == (name, pytest.approx(float(p.max())))
    assert (result["n"], result["level"]) == (5, "exact")
    assert "without" not in opened.explain(NEW).to_dict()["explanations"][0]


def test_it_is_a_sequence_that_prints_short(opened):
    explained = opened.explain(NEW)
    assert (len(explained), explained[1], [e.id for e in explained]) == (
        5,
        list(explained)[1],
        ["0", "1", "2", "3", "4"],
    )
    assert isinstance(explained[3:], Explanations)
    assert [e.id for e in explained[3:]] == ["3", "4"]
    lines = repr(explained).splitlines()
    assert lines[0] == "Explanations(5 images; exact)"
    assert lines[1].startswith(f"  0: {explained[0].predicted} ")
    assert lines[-1] == "  … and 2 more"
    assert len(lines) == 5
    one = repr(explained[0]).splitlines()
    assert [line.split(":")[0] for line in one] == ["Explanation(0", "  towards", "  away"]
    assert max(map(len, [*lines, *one])) <= 110


def test_the_training_data_may_be_given_when_they_are_needed(opened):
    model = classifier(**FIXED, verbose=0).fit(X, Y)
    with pytest.raises(LQFError, match="give them again with train="):
        model.explain(NEW)
    assert model.explain(NEW, train=X).to_dict() == opened.explain(NEW).to_dict()


def test_a_frame_has_a_row_for_every_push(opened):
    pytest.importorskip("pandas")
    explained = opened.explain(NEW, top=2)
    frame = explained.to_frame()
    assert tuple(frame.columns) == COLUMNS
    assert len(frame) == sum(len(e.towards) + len(e.away) for e in explained)
    first = frame[(frame.image == "3") & (frame.side == "towards") & (frame["rank"] == 1)].iloc[0]
    push = explained[3].towards[0]
    assert (first.training, first.label, first.change, first.without) == (
        push.name,
        push.label,
        push.change,
        push.probability,
    )


def test_without_pandas_it_says_what_to_install(opened, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingDependency, match="run `pip install pandas`"):
        opened.explain(NEW).to_frame()


def test_files_appear_whole_and_are_not_replaced_unasked(opened, tmp_path: Path):
    explained = opened.explain(NEW)
    for name in ("why.json", "why.html", "why.PNG"):
        explained.save(tmp_path / name)
    assert json.loads((tmp_path / "why.json").read_text()) == json.loads(json.dumps(explained.to_dict()))
    assert_needs_nothing_else((tmp_path / "why.html").read_text())
    assert Image.open(tmp_path / "why.PNG").width > 200
    with pytest.raises(LQFError, match=r"exists; .* overwrite=True"):
        explained.save(tmp_path / "why.json")
    explained[:1].save(tmp_path / "why.json", overwrite=True)
    assert json.loads((tmp_path / "why.json").read_text())["n"] == 1
    with pytest.raises(LQFError, match=r"does not end in .html or .png or .json"):
        explained.save(tmp_path / "why.gif")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["why.PNG", "why.html", "why.json"]


def test_labels_are_shown_where_a_folder_has_them(model, folder):
    explained = model.explain(str(folder), top=2)
    assert {e.label for e in explained} == {"blue", "green"}
    assert model.explain(str(folder / "blue" / "0.png"))[0].label is None
    assert "and so it is" in Reader(explained._repr_html_()).text
    assert np.isfinite([p.probability for e in explained for p in e.towards]).all()
