"""The page of two models: hostile names stay text, numbers are those of the comparison."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import lqf
from fits import classifier, data
from html_reader import Reader, assert_needs_nothing_else
from lqf.reports.comparison import Comparison
from lqf.reports.html.comparison import MOST

HOSTILE = '<script>alert("x")</script>&\'"'


def compared() -> Comparison:
    x, y = data(18)
    names = np.array([HOSTILE, "birch", "cedar"])
    models = [classifier(solver="head", weight_decay=mu).fit(x, names[y]) for mu in (0.01, 30.0)]
    x, y = data(60, seed=7, signal=0.5)
    return lqf.compare(*models, x, names[y])


def test_names_are_escaped_and_numbers_are_those_of_the_comparison() -> None:
    found = compared()
    html = found.page((HOSTILE, "second"))
    assert_needs_nothing_else(html)
    assert "<script" not in html
    text = Reader(html).text
    assert HOSTILE in text
    assert f"{100 * found.difference.error.value:+.1f}" in text
    for kind, n in found.flips.items():
        assert not n or f"{ {'broken': 'Broken', 'repaired': 'Repaired'}.get(kind, 'Wrong in both') }: {n}" in text
    assert html.count("<li>") == len(found.changed)


def test_a_page_holds_so_many_pictures_and_says_what_it_leaves_out() -> None:
    found = compared()
    first = found.changed[0]
    many = replace(found, changed=(first,) * (MOST + 3), rows=(found.rows[0],) * (MOST + 3))
    html = many.page()
    assert html.count("<li>") == MOST
    assert "3 more images not shown" in html


def test_where_nothing_changed_it_says_so() -> None:
    assert "No prediction changed" in replace(compared(), changed=(), rows=()).page()
