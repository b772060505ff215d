"""`audit`, `summarize`, `explain` and `report` with a fitted model, and with everything that can be wrong."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

from cli.conftest import CLASSES, HEAD, spoil, tree
from lqf import LQFClassifier
from lqf.cli import main


@pytest.fixture(scope="module")
def run(photos, tmp_path_factory):
    """A model whose training folder may be damaged: a copy of `photos/train` beside it."""
    folder = tmp_path_factory.mktemp("know")
    shutil.copytree(photos / "train", folder / "train")
    assert main(["fit", str(folder / "train"), "-o", str(folder / "run"), *HEAD]) == 0
    return folder / "run"


def _narrow(text):
    assert max(map(len, text.splitlines())) <= 80


def test_audit_prints_a_screen_and_writes_a_folder(lqf, run):
    called = lqf("audit", run, "-o", "found")
    assert called.code == 0, called.err
    _narrow(called.out)
    assert "Leave-one-out contradicts" in called.out
    assert {"audit.json", "labels.csv", "information.csv", "duplicates.csv", "informative.png"} <= tree(Path("found"))
    answer = json.loads(Path("found/audit.json").read_text())
    result = lqf("audit", run, "--json").json
    assert result["suspects"] == answer["suspects"]
    assert result["loo_error"] == pytest.approx(LQFClassifier.load(run, device="cpu").leave_one_out().error)
    assert set(result["informative"]) == set(CLASSES)
    assert result["output"] is None
    again = lqf("audit", run, "-o", "found")
    assert again.code == 2
    assert "`found` exists" in again.err
    assert lqf("audit", run, "-o", "found", "--overwrite", "--similar", "0.99").code == 0


def test_summarize_writes_a_manifest_that_fit_reads(lqf, run):
    called = lqf("summarize", run, "--keep", 0.7, "-o", "half.csv")
    assert called.code == 0, called.err
    _narrow(called.out)
    assert "Kept 13 of 18 images" in called.out
    with open("half.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 13
    result = lqf("summarize", run, "--keep", 0.7, "--json").json
    assert [Path(row["path"]).name for row in rows] == [Path(name).name for name in result["ids"]]
    again = lqf("fit", "half.csv", "-o", "smaller", *HEAD, "--json")
    assert again.code == 0, again.err
    assert again.json["n"] == 13


def test_summarize_takes_validation_images(lqf, run, photos):
    own = lqf("summarize", run, "--keep", 0.5, "--json").json
    other = lqf("summarize", run, "--keep", 0.5, "--validation", photos / "test", "--json").json
    assert own["kept"] == other["kept"] == 9
    assert own["information_share"] != other["information_share"]


def test_explain_agrees_with_predict_and_draws(lqf, run, photos):
    image = photos / "test" / "red" / "0.png"
    called = lqf("explain", run, image, "-o", "why.png", "--top", 3)
    assert called.code == 0, called.err
    _narrow(called.out)
    assert "pushed it there" in called.out
    with Image.open("why.png") as sheet:
        assert sheet.size[0] == 14 + 4 * (160 + 14)
    result = lqf("explain", run, image, "-o", "why.html", "--json").json
    entry, predicted = result["explanations"][0], lqf("predict", run, image, "--json").json["predictions"][0]
    assert entry["predicted"] == predicted["label"]
    assert entry["probability"] == pytest.approx(predicted["probabilities"][predicted["label"]], abs=1e-4)
    assert result["level"] == "exact"
    html = Path("why.html").read_text()
    assert html.startswith("<!doctype html>")
    assert html.count("<img") == 1 + len(entry["towards"]) + len(entry["away"])


def _shown(text):
    """Numbers after "without it", as they are shown; twice 99.91 may be two different ones."""
    return [float(found) for found in re.findall(r"without it\s+([\d.]+)", text.replace("\u202f", " "))]


def test_what_is_shown_is_in_the_order_it_claims(lqf, run, photos, monkeypatch):
    image = photos / "test" / "red" / "0.png"
    there, away = lqf("explain", run, image, "--top", 9).out.split("pushed it away:")
    assert len(_shown(there)) > 2
    assert _shown(there) == sorted(_shown(there))
    assert _shown(away) == sorted(_shown(away), reverse=True)
    rows = []
    monkeypatch.setattr(
        "lqf.reports.html.explain.contact_sheet", lambda r, side: rows.extend(r) or Image.new("1", (1, 1))
    )
    assert lqf("explain", run, image, "--top", 9, "-o", "why.png").code == 0
    drawn = [_shown("\n".join(text[1] for _, text in tiles[1:])) for _, tiles in rows]
    assert drawn == [_shown(there), _shown(away)]
    assert lqf("explain", run, image, "--top", 9, "-o", "why.html").code == 0
    page = Path("why.html").read_text().split("Pushed it away")
    assert [_shown(half.partition("<article")[2] or half) for half in page] == drawn
    assert "strongest\n  first" in page[0]


def test_explain_without_a_sample(lqf, run, photos):
    image = photos / "test" / "red" / "0.png"
    entry = lqf("explain", run, image, "--json").json["explanations"][0]
    first = entry["towards"][0]
    answer = lqf("explain", run, image, "--without", first["name"], "--json").json["explanations"][0]["without"]
    assert answer["ids"] == [first["name"]]
    assert answer["probabilities"][entry["predicted"]] == pytest.approx(first["probability"], abs=1e-9)
    assert (
        answer["probability"] == max(answer["probabilities"].values()) == answer["probabilities"][answer["predicted"]]
    )
    assert "without 1 sample:" in lqf("explain", run, image, "--without", first["name"]).out


def test_report_is_one_file(lqf, run, photos):
    called = lqf("report", run, "--test", photos / "test", "-o", "page.html")
    assert called.code == 0, called.err
    _narrow(called.out)
    assert tree(Path()) == {"page.html"}
    html = Path("page.html").read_text()
    for words in ("Why it predicts", "Is the test set like the training set?", "How exact it is"):
        assert words in html
    result = lqf("report", run, "-o", "other.html", "--json", "--title", "My <birds>").json
    assert result["test_error"] is None
    assert "My &lt;birds&gt;" in Path("other.html").read_text()


def _copied(run, to):
    shutil.copytree(run.parent / "train", to)


def _changed(run):
    _copied(run, "train")
    Image.new("RGB", (40, 40)).save("train/red/0.png")


def _renamed(run):
    _copied(run, "train")
    Path("train/red/0.png").rename("train/red/new.png")


def _relabelled(run):
    _copied(run, "train")
    images = sorted(Path("train").rglob("*.png"))
    labels = ["blue" if p == Path("train/red/0.png") else p.parent.name for p in images]
    lines = [f"{p.relative_to('train')},{y}" for p, y in zip(images, labels, strict=True)]
    Path("train/list.csv").write_text("\n".join(["path,label", *lines]))


def _damaged(run):
    _copied(run, "train")
    Path("train/red/0.png").write_bytes(b"\x89PNG")


TRAIN = {
    "an image has changed": (_changed, "train", "red/0.png"),
    "an image is gone": (_renamed, "train", "red/0.png"),
    "a label has changed": (_relabelled, "train/list.csv", "red/0.png"),
    "an image cannot be read": (_damaged, "train", "red/0.png"),
    "the folder is not there": (lambda run: None, "train", "`train`"),
}
COMMANDS = {
    "audit": ["-o", "out"],
    "summarize": ["--keep", "0.5", "-o", "out.csv"],
    "explain": ["IMAGE", "-o", "out.html"],
    "report": ["-o", "out.html"],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("case", TRAIN)
def test_training_data_that_are_not_those_of_the_fit(lqf, run, photos, command, case):
    make, train, words = TRAIN[case]
    make(run)
    before = tree(Path())
    rest = [photos / "test/red/0.png" if w == "IMAGE" else w for w in COMMANDS[command]]
    called = lqf(command, run, *rest, "--train", train)
    assert called.code == 2
    assert called.out == ""
    assert called.err.splitlines()[-1].startswith("lqf: ")
    assert words in called.err.splitlines()[-1]
    assert tree(Path()) == before


def test_a_training_folder_that_has_moved(lqf, run, photos):
    shutil.copytree(run.parent, "moved")
    shutil.move(run.parent / "train", "elsewhere")
    try:
        called = lqf("audit", run, "-o", "out")
        assert called.code == 2
        assert "--train" in called.err
        assert not Path("out").exists()
        assert lqf("audit", run, "--train", "elsewhere").code == 0
    finally:
        shutil.move("elsewhere", run.parent / "train")


BAD = {
    "explain IMAGE --without red/nothing.png -o out.png": "`red/nothing.png`",
    "explain absent.jpg -o out.png": "`absent.jpg`",
    "explain letter.jpg -o out.png": "`letter.jpg`",
    "explain cut.png -o out.png": "cut.png",
    "explain IMAGE -o out.gif": "does not end in .html or .png",
    "explain IMAGE --top 0": "`0` is not a whole number",
    "summarize --keep 0": "`0` is not a share",
    "summarize --keep 1.5": "`1.5` is not a share",
    "summarize --keep 0.5 -o out.txt": "does not end in .csv",
    "summarize --keep 0.5 --validation nowhere": "nowhere",
    "report -o out.pdf": "does not end in .html",
    "report -o out.html --test nowhere": "`nowhere` is not there",
    "report -o .": "is a folder",
    "audit --similar much": "`much` is not a share",
    "audit -o letter.jpg --overwrite": "not written by `lqf audit`",
}


@pytest.mark.parametrize("words", BAD)
def test_bad_input_is_one_sentence_and_nothing_is_written(lqf, run, photos, words):
    good = photos / "test" / "red" / "0.png"
    spoil(good)
    before = tree(Path())
    command, *rest = [str(good) if w == "IMAGE" else w for w in words.split()]
    called = lqf(command, run, *rest)
    assert called.code == 2
    assert called.out == ""
    assert called.err.splitlines()[-1].startswith("lqf: ")
    assert BAD[words] in called.err.splitlines()[-1]
    assert tree(Path()) == before
