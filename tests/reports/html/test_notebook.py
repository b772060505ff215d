"""What a notebook shows: whole by itself, escaped, and its style kept to itself."""

import re
import sys

import pytest
from PIL import Image

from audited import TURNED, folder, model  # noqa: F401 - fixtures
from browser import browser
from fits import classifier, convnet, photos
from html_reader import Reader, assert_needs_nothing_else
from lqf import LQFClassifier
from lqf.utils.notebook import Shown

NASTY = "<b>&\"x'"


@pytest.fixture(scope="module")
def views(model, folder):  # noqa: F811
    """HTML by what it shows."""
    explained = model.explain([folder / "blue" / "0.png", folder / TURNED], top=3)
    what = model.what_if(str(folder), without=model.analysis_.ids[:9])
    shown = {"classifier": model, "model": model.fitted_, "explanations": explained, "audit": model.audit()}
    return {name: thing._repr_html_() for name, thing in {**shown, "what if": what}.items()}


def test_every_view_is_whole_by_itself(views):
    for name, html in views.items():
        pictures = assert_needs_nothing_else(html)
        assert (len(pictures) > 3) == (name in ("explanations", "audit", "what if"))
        assert re.match(r'\s*<div class="lqf-view"><style>\n\.lqf-view \{', html)  # all of the style is nested in it
        assert ":root" not in html


def test_views_say_the_main_figures(views, model):  # noqa: F811
    error = f"{100 * model.leave_one_out().error:.1f} %"
    text = {name: " ".join(Reader(html).text.split()) for name, html in views.items()}
    for name in ("classifier", "model", "audit"):
        assert f"leave-one-out error{error}" in text[name]
    assert "LQFClassifier" in text["classifier"]
    assert "solver='head'" in text["classifier"]
    assert TURNED in text["audit"]
    n = int(model.what_if(str(model.fitted_.train.source), without=model.analysis_.ids[:9]).changed.sum())
    assert f"{n or 'None'} of 17 predictions change" in text["what if"]
    assert "Pushed it towards" in text["explanations"]


def test_names_are_text(tmp_path):
    train = photos(tmp_path / "train", classes=(NASTY, "green"))
    Image.open(train / "green" / "0.png").save(train / "green" / f"{NASTY}.png")
    own = LQFClassifier(convnet().float(), solver="head", pooling="avg", size=32, device="cpu", verbose=0).fit(train)
    for thing in (own.explain(str(train)), own.audit(), own.what_if(str(train), without=[0]), own):
        html = thing._repr_html_()
        assert "<b>&" not in html
        Reader(html)


def test_before_the_fit_it_says_so():
    html = classifier(solver="head", head="<b>")._repr_html_()
    assert "Not fitted yet" in Reader(html).text
    assert "&lt;b&gt;" in html


def test_without_jinja2_a_notebook_shows_the_text(model, monkeypatch):  # noqa: F811
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert model._repr_html_() is None
    assert Shown()._repr_html_() is None  # nothing is known about it


@pytest.mark.browser
def test_a_browser_draws_them_and_the_page_around_them_stays_as_it_is(views, tmp_path):
    page = "<!doctype html><meta charset=utf-8><meta name=viewport content=width=device-width><h2 id=host>host</h2>{}"
    size = "getComputedStyle(document.getElementById('host')).fontSize"
    with browser(tmp_path) as chromium:
        (tmp_path / "plain.html").write_text(page.format(""), encoding="utf-8")
        chromium.show(tmp_path / "plain.html", 900)
        before = chromium.value(size)
        (tmp_path / "views.html").write_text(page.format("".join(views.values())), encoding="utf-8")
        for width in (400, 900):
            chromium.show(tmp_path / "views.html", width)
            assert chromium.complaints() == []
            assert chromium.value(size) == before
            assert chromium.value("document.documentElement.scrollWidth") <= width
            assert chromium.value("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
            kicker = "getComputedStyle(document.querySelector('.lqf-view .kicker')).color"
            assert chromium.value(kicker) != chromium.value("getComputedStyle(document.body).color")
