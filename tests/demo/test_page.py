"""The page: complete, safe, and readable without a network."""

import re

import pytest
from PIL import Image

from html_reader import Reader, assert_needs_nothing_else
from lqf.demo.page import Page, chart, small_picture
from lqf.errors import MissingDependency

pytest.importorskip("jinja2")


@pytest.fixture
def pictures(tmp_path, result):
    path = tmp_path / "cell.png"
    Image.linear_gradient("L").resize((300, 300)).save(path)
    return {c["id"]: path for c in result["suspicious"]}


def test_page_has_every_number(result, pictures):
    text = re.sub(r"\s+", " ", Reader(Page().render(result, pictures)).text)
    text = text.replace("\u202f", " ")
    for expected in ("17.6 %", "17.2 %", "16.0 %", "14.8 %", "15.3 %", "exact", "2.30e-14", "71.4 s", "123.4 s"):
        assert expected in text
    for expected in (
        "97 %",
        "1/3",
        "0.387",
        "+0.007 ± 0.012",
        "not kept: gains nothing",
        "not tried: needs about 4 min",
    ):
        assert expected in text
    for expected in (
        "lqf predict demo/model",
        "a measured bias of 0.4 points",
        "CC BY-NC-SA",
        "41 right",
        "4 of these 12",
    ):
        assert expected in text


def test_page_needs_nothing_else(result, pictures):
    html = Page().render(result, pictures)
    sources = assert_needs_nothing_else(html)
    assert len(sources) == 13
    assert all(value.startswith("data:") for value in sources)
    assert len(html) < 400_000


def test_names_are_escaped(result, pictures):
    bad = '<script>alert("x")</script>&\'"'
    for cell in result["suspicious"]:
        cell["label"] = cell["kind"] = bad
    result |= {"out": bad, "backbone": bad}
    result["model"]["loo_note"] = result["model"]["certificate"] = bad
    result["stages"][0]["name"] = result["rungs"][1]["name"] = result["rungs"][1]["why"] = bad
    page = Reader(html := Page().render(result, pictures))
    assert "<script" not in html
    assert page.text.count(bad) >= 12


def test_page_without_suspicious_cells(result):
    html = Page().render(result | {"suspicious": []}, {})
    assert "no training label is contradicted" in Reader(html).text
    assert "<img" not in html


def test_models_without_a_test_have_no_mark(result):
    bars = chart(result)["bars"]
    assert [b["model"] for b in bars if b["what"] == "test"] == ["head", "head, 8 views"]
    assert [b["model"] for b in bars if b["what"] == "loo"] == [r["name"] for r in result["rungs"][:4]]


def test_nothing_further_up_has_no_command(result, pictures):
    assert "lqf fit demo/train.csv -o further --size 128 --seed 0 --effort standard" in Page().render(result, pictures)
    assert "Climb on" not in Page().render(result | {"next_rung": None}, pictures)


def test_pictures_are_small_jpegs(tmp_path):
    path = tmp_path / "cell.png"
    Image.effect_noise((300, 300), 60).save(path)
    uri = small_picture(path)
    assert uri.startswith("data:image/jpeg;base64,")
    assert len(uri) < 60_000


@pytest.mark.parametrize("errors", [(0.186, 0.19), (0.0, 0.0), (0.02, 0.9), (1.0, 1.0)])
def test_chart_holds_every_bar(result, errors):
    for r in result["rungs"][:4]:
        r["test_error"], r["error"] = errors
        r["test_standard_error"] = r["standard_error"] = 0.0 if errors[0] in (0.0, 1.0) else 0.01
    drawn = chart(result)
    assert len(drawn["bars"]) == 8  # LQF was not tried
    for bar in drawn["bars"]:
        assert 0 <= bar["from"] <= bar["at"] <= bar["to"] <= 100
    assert [drawn["ticks"][0]["at"], drawn["ticks"][-1]["at"]] == [0, 100]
    assert len(drawn["ticks"]) <= 9


def test_missing_jinja_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with pytest.raises(MissingDependency, match="pip install jinja2"):
        Page()
