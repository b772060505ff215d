"""Rows of predictions: in order, complete, the same classes in every form."""

from pathlib import Path

import numpy as np
import pytest

from lqf.data import Samples
from lqf.data.sources import FileSource, PictureSource
from lqf.errors import LQFError
from lqf.reports.predictions import UNSURE, answers, check_threshold, paths, predictions, table

CLASSES = ("cat", "dog", "owl")
P = np.array([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]])


def _samples(names, source=None):
    n = len(names)
    source = source or FileSource("files", tuple(map(Path, names)))
    return Samples(tuple(names), (), np.full(n, -1), np.ones(n), None, source)


def _rows(**options):
    samples = _samples(["a.png", "broken.png", "b.png"])
    return predictions(samples, [("broken.png", "is torn")], CLASSES, np.array([0, 2]), P, **options)


def test_rows_come_in_order_with_those_that_could_not_be_read():
    first, torn, last = _rows(top=2)
    assert (first.label, first.probability, first.ranked) == ("cat", 0.7, (("cat", 0.7), ("dog", 0.2)))
    assert (torn.path, torn.label, torn.probability, torn.note) == ("broken.png", None, None, "is torn")
    assert last.ranked[0] == ("owl", 0.4)
    assert {row.right for row in (first, torn, last)} == {None}


def test_flat_and_nested_columns():
    flat = table(_rows(top=2, threshold=0.5))
    assert flat[2] == {
        "path": "b.png",
        "label": UNSURE,
        "probability": 0.4,
        "label_1": "owl",
        "label_2": "cat",
        "probability_2": 0.3,
        "note": "",
    }
    assert flat[1] == dict.fromkeys(flat[2], None) | {"path": "broken.png", "note": "is torn"}
    assert [row.keys() for row in flat] == [flat[0].keys()] * 3
    nested = table(_rows(top=2, threshold=0.5), nested=True)
    assert nested[2]["top"] == [{"label": "owl", "probability": 0.4}, {"label": "cat", "probability": 0.3}]
    assert nested[2]["label"] == UNSURE
    assert nested[1]["top"] == []


def test_a_threshold_that_nothing_is_below_has_its_column_all_the_same():
    assert "label_1" in table(_rows(threshold=0.1))[0]
    assert "label_1" not in table(_rows())[0]


def test_a_probability_at_the_threshold_is_sure():
    assert [row.label for row in _rows(threshold=0.4)] == ["cat", None, "owl"]


def test_the_decision_comes_first_where_probabilities_are_equal_by_rounding():
    (row,) = predictions(_samples(["a"]), [], CLASSES, np.array([2]), np.array([[0.5, 0.0, 0.5]]), top=3)
    assert [label for label, _ in row.ranked] == ["owl", "cat", "dog"]


def test_given_labels_and_who_was_right():
    rows = _rows(given=["cat", "dog", ""])
    assert [row.given for row in rows] == ["cat", "dog", None]
    assert [row.right for row in rows] == [True, None, None]
    assert answers(rows)[:2] == [
        {"path": "a.png", "label": "cat", "predicted": "cat", "probability": 0.7, "right": True, "note": ""},
        {
            "path": "broken.png",
            "label": "dog",
            "predicted": None,
            "probability": None,
            "right": None,
            "note": "is torn",
        },
    ]


def test_paths_are_those_of_the_files_and_always_text():
    e = "e\u0301.png"  # as macOS stores é: another file than "é.png" on Linux
    assert paths(_samples(["é.png"], FileSource("files", (Path(e),)))) == [e]
    assert paths(_samples(["x"], FileSource("files", (Path("caf\udce9.png"),)))) == ["caf\\xe9.png"]
    pictures = PictureSource("array", np.zeros((2, 4, 4, 3), np.uint8), np.arange(2))
    assert paths(_samples(["0", "1"], pictures)) == ["0", "1"]


def test_unsure_is_no_class():
    check_threshold(CLASSES, 0.5)
    check_threshold((*CLASSES, UNSURE), None)
    with pytest.raises(LQFError, match="class `unsure`"):
        check_threshold((*CLASSES, UNSURE), 0.5)
