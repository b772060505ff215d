"""`predict --sets --std --novelty`: how sure every prediction is."""

import csv
import json
from pathlib import Path

import pytest

from lqf import LQFClassifier


def test_sets_and_numbers_are_those_of_python(lqf, run, photos):
    called = lqf("predict", run, photos / "test", "--sets", 0.8, "--std", "--novelty", "--json")
    assert called.code == 0, called.err
    model, result = LQFClassifier.load(run, verbose=0), called.json
    sets, std, novelty = (ask(photos / "test") for ask in (model.predict_set, model.predict_std, model.novelty))
    entries = result["predictions"]
    assert [tuple(e["set"]) for e in entries] == sets.at(0.8).sets
    assert [e["set_size"] for e in entries] == sets.at(0.8).sizes.tolist()
    order = list(model.classes_)
    own = [float(row[order.index(e["label"])]) for e, row in zip(entries, std.value, strict=True)]
    assert [e["std"] for e in entries] == pytest.approx(own, rel=1e-5)
    assert [e["novelty"] for e in entries] == pytest.approx(novelty.value.tolist())
    about = result["sets"]
    assert (about["coverage"], about["way"], about["level"], about["limit"]) == (0.8, "jackknife+", "exact", None)
    assert about["guarantee"] == pytest.approx(0.6)
    assert (result["std"]["level"], result["novelty"]["level"]) == ("exact", "exact")
    assert result["std"]["noise"] > 0


def test_without_the_options_nothing_is_asked(lqf, run, photos):
    result = lqf("predict", run, photos / "test", "--json").json
    assert (result["sets"], result["std"], result["novelty"]) == (None, None, None)
    assert "set" not in result["predictions"][0]


@pytest.mark.parametrize("end", ["csv", "jsonl", "parquet"])
def test_columns_of_a_file(lqf, run, photos, end, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("letter.jpg").write_text("Dear all,")
    called = lqf("predict", run, photos / "test", "letter.jpg", "--sets", 0.8, "--novelty", "-o", f"out.{end}")
    assert called.code == 1
    entries = lqf("predict", run, photos / "test", "--sets", 0.8, "--novelty", "--json").json["predictions"]
    if end == "parquet":
        rows = pytest.importorskip("pyarrow.parquet").read_table("out.parquet").to_pylist()
    elif end == "csv":
        rows = list(csv.DictReader(Path("out.csv").read_text().splitlines()))
    else:
        rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [name for name in rows[0] if name in ("set", "set_size", "std", "novelty")] == ["set", "set_size", "novelty"]
    for row, e in zip(rows, entries, strict=False):
        assert row["set"] == (e["set"] if end == "jsonl" else "; ".join(e["set"]))
        assert int(row["set_size"]) == e["set_size"]
        assert float(row["novelty"]) == e["novelty"]
    assert rows[-1]["path"] == "letter.jpg"
    assert not rows[-1]["set"]
    assert not rows[-1]["set_size"]


def test_lines_show_the_set_and_what_is_proven(lqf, run, photos):
    lines = lqf("predict", run, photos / "test", "--sets", 0.8, "--std", "--novelty").out.splitlines()
    assert "{" in lines[0]
    assert " ± " in lines[0]
    assert " p " in lines[0]
    text = " ".join(lines[12:])
    assert "Sets at coverage 0.8:" in text
    assert "by jackknife+, proven to cover 60.0% of images that come as the training images came." in text


def test_the_jackknife_needs_no_training_images(lqf, run, photos):
    about = lqf("predict", run, photos / "test", "--sets", 0.8, "--way", "jackknife", "--json").json["sets"]
    assert (about["way"], about["level"], about["guarantee"]) == ("jackknife", "estimated", None)


def test_too_few_samples_are_said(lqf, run, photos):
    called = lqf("predict", run, photos / "test", "--sets", 0.99)
    assert called.code == 0
    sentence = "18 training samples are too few for a coverage of 0.99, which needs 99: every set has all classes"
    assert sentence in " ".join(called.err.split()) or sentence in " ".join(called.out.split())


@pytest.mark.parametrize("coverage", ["1", "0", "-0.1", "90", "nan"])
def test_a_coverage_that_is_no_share_is_refused(lqf, run, photos, coverage, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    called = lqf("predict", run, photos / "test", f"--sets={coverage}", "-o", "out.csv")
    assert called.code == 2
    assert "give the share of sets that are to hold the right class, above 0 and below 1" in called.err
    assert not Path("out.csv").exists()


@pytest.mark.parametrize("options", [["--way", "minmax"], ["--by-class"]])
def test_how_sets_are_made_needs_sets(lqf, run, photos, options):
    called = lqf("predict", run, photos / "test", *options)
    assert called.code == 2
    assert "ask for them with --sets" in called.err
