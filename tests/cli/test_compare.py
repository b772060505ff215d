"""`lqf compare`."""

import csv
from pathlib import Path

import pytest

from cli.conftest import HEAD
from html_reader import assert_needs_nothing_else


@pytest.fixture(scope="module")
def other(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that pulls its head to zero."""
    from lqf.cli import main

    out = tmp_path_factory.mktemp("models") / "other"
    assert main(["fit", str(photos / "test"), "-o", str(out), *HEAD, "--weight-decay", "1e4"]) == 0
    return out


def test_compare_prints_the_difference_and_what_changed(lqf, run, other, photos):
    called = lqf("compare", run, other, "--test", photos / "train", "-o", "changed.csv")
    assert called.code == 0, called.err
    assert "Difference of error" in called.out
    assert "on 18 images" in called.out.lower()
    assert max(map(len, called.out.splitlines())) <= 80
    with open("changed.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    result = lqf("compare", run, other, "--test", photos / "train", "--json").json
    assert [r["path"] for r in rows] == [c["path"] for c in result["changed"]]
    errors = [lqf("evaluate", m, photos / "train", "--json").json["error"] for m in (run, other)]
    assert result["difference"]["error"] == pytest.approx(errors[1] - errors[0])
    assert all(Path(c["path"]).is_file() for c in result["changed"])


def test_a_page_shows_what_changed(lqf, run, other, photos):
    words = ["compare", run, other, "--test", photos / "train", "--html", "page.html"]
    called = lqf(*words)
    assert called.code == 0, called.err
    assert "With pictures: page.html" in called.out
    html = Path("page.html").read_text()
    pictures = [source for source in assert_needs_nothing_else(html) if source.startswith("data:image/jpeg")]
    result = lqf(*words, "--overwrite", "--json").json
    assert result["html"] == "page.html"
    assert len(pictures) == len(result["changed"]) > 0
    assert str(photos) not in html
    again = lqf(*words)
    assert again.code == 2
    assert "page.html" in again.err
    wrong = lqf(*words[:-1], "page.png")
    assert wrong.code == 2
    assert not Path("page.png").exists()


def test_nothing_changed_leaves_a_table_without_rows(lqf, run, photos):
    called = lqf("compare", run, run, "--test", photos / "test", "-o", "changed.csv")
    assert called.code == 0, called.err
    assert Path("changed.csv").read_text().strip().startswith("path,label,first,second")
    assert "0 predictions changed" in called.out


def test_bad_input_is_a_sentence(lqf, run, photos):
    for words, said in (
        ([run, "nowhere", "--test", photos / "test"], "not a fitted model"),
        ([run, run], "--test"),
        ([run, run, "--test", "nowhere"], "nowhere"),
    ):
        called = lqf("compare", *words)
        assert called.code == 2
        assert said in called.err
        assert called.out == ""
