"""`lqf select` and `lqf suggest`: tables, JSON, the file, and sentences for what cannot be."""

import csv
import re
import shutil
from pathlib import Path

from cli.conftest import CLASSES, paint, spoil, tree
from lqf.cli import select, suggest

SMALL = ["--size", "32", "--device", "cpu"]


def test_backbones_are_ranked_and_what_cannot_be_loaded_is_named(lqf, photos):
    called = lqf("select", photos / "train", "--backbones", "mobilenet_v2", "resnet51", *SMALL, "--json")
    assert called.code == 1
    found = called.json
    assert [b["name"] for b in found["backbones"]] == ["mobilenet_v2"]
    assert [f["name"] for f in found["failed"]] == ["resnet51"]
    assert found["next"].endswith("--backbone mobilenet_v2 --size 32")
    assert "1 of 2 backbones could not be tried" in found["error"]


def test_the_table_fits_and_says_how_sure_the_first_place_is():
    row = {"loss": 0.4121, "loss_standard_error": 0.03, "error": 0.121, "error_standard_error": 0.021, "log_me": 0.2}
    row |= {"seconds": 8.13, "parameters": 4811072, "size": 260, "weights": None, "features": 1280}
    names = ["efficientnet_lite2", "timm:a_network_with_quite_a_long_name_indeed.in1k"]
    result = {"n": 240, "classes": 12, "backbones": [{"name": name, **row} for name in names], "best": names[0]}
    result |= {"failed": [{"name": "resnet50", "reason": "needs a file"}], "next": "lqf fit X -o RUN", "seconds": 9.0}
    text = select.show(result | {"lead": {"mean": 0.03, "standard_error": 0.02}})
    assert max(map(len, text.splitlines())) <= 80
    assert "0.030 ± 0.020 below that of" in text.replace("\n", " ")
    assert "that may be chance" in text.replace("\n", " ")
    assert "`resnet50` could not be tried: needs a file" in text
    sure = select.show(result | {"lead": {"mean": 0.3, "standard_error": 0.02}})
    assert "chance" not in sure


def test_no_backbone_at_all(lqf, photos):
    called = lqf("select", photos / "train", "--backbones", "resnet50", *SMALL)
    assert called.code == 2
    assert "no backbone could be tried: `resnet50`: `resnet50` needs a weights file" in called.err


def test_images_to_label_next_are_written(lqf, run, photos):
    paint(Path("pool"), 3, seed=7)
    spoil(Path("pool/red/0.png"))
    shutil.move("cut.png", "pool/cut.png")
    shutil.copy("pool/blue/1.png", "pool/twice.png")
    called = lqf("suggest", run, "pool", "-k", 4, "-o", "next.csv", "--json")
    assert called.code == 0, called.err
    found = called.json
    assert (found["k"], found["pool"], found["by"], found["level"]) == (4, 9, "both", "exact")
    assert [s[0] for s in found["skipped"]] == ["pool/cut.png"]
    assert found["copies"] == ["pool/twice.png"]
    rows = list(csv.DictReader(Path("next.csv").read_text().splitlines()))
    assert [r["path"] for r in rows] == [s["path"] for s in found["suggestions"]]
    assert [r["rank"] for r in rows] == ["1", "2", "3", "4"]
    assert all(Path(r["path"]).is_file() and r["label"] == "" and r["predicted"] in CLASSES for r in rows)
    assert [float(r["score"]) for r in rows] == [s["score"] for s in found["suggestions"]]


def test_the_ways_differ_and_are_described(lqf, run, photos):
    paint(Path("pool"), 4, seed=7)
    texts = {by: lqf("suggest", run, "pool", "-k", 3, "--by", by).out for by in ("information", "uncertainty", "both")}
    assert len(set(texts.values())) == 3
    assert "tells  taken for" in texts["both"]
    assert "unclear  taken for" in texts["uncertainty"]
    written = lqf("suggest", run, "pool", "-k", 3, "-o", "next.csv").out
    assert " ".join(written.replace("\\\n", " ").split()).endswith(f"lqf add {run} next.csv")
    assert "nearest to the border between two classes" in texts["uncertainty"].replace("\n", " ")
    assert max(len(line) for text in texts.values() for line in text.splitlines()) <= 80


def test_a_pool_with_training_images_changes_nothing(lqf, run, photos):
    paint(Path("pool"), 2, seed=7)
    shutil.copy(photos / "train" / "red" / "1.png", "pool/again.png")
    before = tree(Path())
    called = lqf("suggest", run, "pool", "-k", 2, "-o", "next.csv")
    assert called.code == 2
    assert re.search(r"1 image of the pool `pool` is among the training images", called.err.replace("\n", " "))
    assert tree(Path()) == before


def test_a_file_that_stands_or_is_no_table_is_refused_before_any_work(lqf, run):
    Path("next.csv").write_text("mine")
    assert "`next.csv` exists" in lqf("suggest", run, "nowhere", "-o", "next.csv").err
    assert "does not end in .csv" in lqf("suggest", run, "nowhere", "-o", "next.txt").err
    assert Path("next.csv").read_text() == "mine"


def test_many_suggestions_are_shortened_on_the_screen():
    one = {"id": "a/" * 60 + "b.png", "score": 0.123456, "predicted": "x" * 40, "probability": 0.5}
    result = {"k": 12, "pool": 90, "by": "both", "level": "exact", "suggestions": [one] * 12, "copies": ["z"]}
    text = suggest.show(result | {"output": None, "seconds": 1.0})
    assert max(map(len, text.splitlines())) <= 80
    assert "… and 2 more (-o FILE.csv writes all)" in text
    assert "1 image of the pool left out" in text
