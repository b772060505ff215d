"""`audit`, `summarize`, `explain` and `report` with a fitted model, and with everything that can be wrong."""

import csv
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from cli.conftest import CLASSES, HEAD, paint, spoil, tree
from fits import pictures
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


def _commands(text):
    """What is indented and begins with `lqf`, as a shell reads it, without that word."""
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines()]
    return [
        shlex.split(line.removeprefix("Next:"), comments=True)[1:]
        for line in lines
        if line.removeprefix("Next:").split()[:1] == ["lqf"]
    ]


def test_what_comes_next_after_a_fit_can_be_typed(lqf, photos):
    called = lqf("fit", photos / "train", "-o", "run", *HEAD)
    assert called.code == 0, called.err
    words = {"TEST": photos / "test", "IMAGE…": photos / "test" / "red" / "0.png"}
    commands = _commands(called.out.partition("\nNext:")[1] + called.out.partition("\nNext:")[2])
    assert [command[0] for command in commands] == ["evaluate", "predict", "explain", "audit", "report"]
    for command in commands:
        done = lqf(*(words.get(word, word) for word in command))
        assert done.code == 0, done.err


def test_an_audit_ends_in_fits_without_the_suspicious_labels(lqf, run, monkeypatch):
    monkeypatch.setattr("lqf.analysis.audit.labels.SURE", 0.34)
    called = lqf("audit", run, "-o", "my found")
    _narrow(called.out)
    result = lqf("audit", run, "--json").json
    n = result["left_out"]
    assert 0 < n <= result["suspicious"] <= result["contradicted"]
    assert f"{result['suspicious']} of them strongly: without the image, another class has 34% or more" in " ".join(
        called.out.split()
    )
    assert f"without {n} suspicious label" in called.out
    fits = _commands(called.out)
    assert [command[1] for command in fits] == ["my found/cleaned.csv", "my found/relabelled.csv"]
    for command, images in zip(fits, (18 - n, 18), strict=True):
        out = f"run of {images}"
        again = lqf(
            *(out if word == "RUN2" else word for word in command), "--solver", "head", "--device", "cpu", "--json"
        )
        assert again.code == 0, again.err
        assert again.json["n"] == images
        audited = lqf("audit", out)
        _narrow(audited.out)
        table = audited.out.split("most informative")[1].split("\n\n")[0]
        assert len(re.findall(r"/\S*…\S*/\d\.png", table)) == 6  # whole paths, longer than their column
        own = lqf("audit", out, "-o", "my found", "--overwrite")
        assert own.code == 2
        assert f"`my found` holds `{command[1]}`, on which this model was fitted" in own.err


def test_where_no_label_is_suspicious_those_that_are_contradicted_are_corrected_by_hand(lqf, run, monkeypatch):
    monkeypatch.setattr("lqf.analysis.audit.labels.SURE", 1.0)
    called = lqf("audit", run, "-o", "found")
    _narrow(called.out)
    said = " ".join(called.out.split())
    assert "none of them strongly: without the image, no other class has 100% or more" in said
    assert "Next: look at found/labels.png; where a label is wrong, correct it in the manifest, column label" in said
    (fit,) = _commands(called.out)
    assert fit[:2] == ["fit", "found/relabelled.csv"]
    assert Path("found/cleaned.csv").read_text().count("\n") == 19
    bare = lqf("audit", run, "--train", run.parent / "train").out
    (command,) = _commands(bare)
    assert command == ["audit", str(run), "--train", str(run.parent / "train"), "-o", "OUT"]


@pytest.mark.parametrize("table", ["labels", "duplicates", "information", "confusions"])
def test_a_table_of_an_audit_is_not_fitted(lqf, run, table):
    assert lqf("audit", run, "-o", "found").code == 0
    called = lqf("fit", f"found/{table}.csv", "-o", "again", *HEAD)
    assert called.code == 2
    sentence = called.err.splitlines()[-1]
    assert sentence.startswith(f"lqf: `found/{table}.csv` is the table of {table} of an audit, not a manifest; give ")
    assert "`found/cleaned.csv`" in sentence
    assert "`found/relabelled.csv`" in sentence


def test_summarize_offers_to_look_at_wrong_labels_first(lqf, run, monkeypatch):
    monkeypatch.setattr("lqf.analysis.audit.labels.SURE", 0.34)
    audited = lqf("audit", run, "--json").json
    called, result = lqf("summarize", run, "--keep", 0.5), lqf("summarize", run, "--keep", 0.5, "--json").json
    for count in ("contradicted", "suspicious"):
        assert result[count] == audited[count] > 0
    assert 0 <= result["suspicious_kept"] <= result["suspicious"]
    _narrow(called.out)
    said = " ".join(called.out.split())
    assert f"Leave-one-out contradicts {result['contradicted']} labels, {result['suspicious']} of them strongly" in said
    assert f"({result['suspicious_kept']} of the {result['suspicious']} were kept)" in said
    assert _commands(called.out) == [["audit", str(run), "-o", "OUT"]]
    monkeypatch.setattr("lqf.analysis.audit.labels.SURE", 1.0)
    called, result = lqf("summarize", run, "--keep", 0.5), lqf("summarize", run, "--keep", 0.5, "--json").json
    assert 0 < result["contradicted_kept"] <= result["contradicted"]
    said = " ".join(called.out.split())
    assert f"contradicts {result['contradicted']} labels, none of them strongly. Wrong labels look informative" in said
    assert f"({result['contradicted_kept']} of the {result['contradicted']} were kept)" in said
    monkeypatch.setattr("lqf.analysis.audit.labels.contradicted", lambda loo: torch.zeros(len(loo.labels), dtype=bool))
    assert "Wrong labels" not in lqf("summarize", run, "--keep", 0.5).out


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
    audit, command = _commands(called.out)
    assert audit[0] == "audit"
    assert command[:2] == ["fit", "half.csv"]
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
    pair = [answer["probabilities"][entry[name]] for name in ("explained", "against")]
    assert pair[0] / sum(pair) == pytest.approx(first["probability"], abs=1e-6)
    assert (
        answer["probability"] == max(answer["probabilities"].values()) == answer["probabilities"][answer["predicted"]]
    )
    assert "without 1 sample:" in lqf("explain", run, image, "--without", first["name"]).out


def test_explain_another_class_and_quickly(lqf, run, photos):
    image = photos / "test" / "red" / "0.png"
    entry = lqf("explain", run, image, "--class", "green", "--quick", "--json").json["explanations"][0]
    assert entry["explained"] == "green" != entry["against"]
    assert "why green, not " in lqf("explain", run, image, "--class", "green").out
    unknown = lqf("explain", run, image, "--class", "mauve")
    assert (unknown.code, "there is no class `mauve`" in unknown.err) == (2, True)
    assert lqf("explain", run, image, "--quick", "--exact").code == 2


def test_report_is_one_file(lqf, run, photos):
    called = lqf("report", run, "--test", photos / "test", "-o", "page.html")
    assert called.code == 0, called.err
    _narrow(called.out)
    assert re.search(r"test error +[\d.]+% \(95%: [\d.]+ to [\d.]+\) of 12 images", called.out)
    assert tree(Path()) == {"page.html"}
    html = Path("page.html").read_text()
    for words in ("Why it predicts", "Is the test set like the training set?", "How exact it is"):
        assert words in html
    result = lqf("report", run, "-o", "other.html", "--json", "--title", "My <birds>").json
    assert result["test_error"] is result["test"] is None
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
    "they are other images": (
        lambda run: paint(Path("train"), 2, 5, ("cat", "dog")),
        "train",
        "of that fit, which was",
    ),
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


@pytest.mark.parametrize("command", COMMANDS)
def test_a_model_of_arrays_says_where_to_ask(lqf, photos, command):
    x, y = pictures(9, side=32)
    LQFClassifier("mobilenet_v2", weights="random", solver="head", size=32, device="cpu").fit(x, y).save("run")
    rest = [photos / "test/red/0.png" if w == "IMAGE" else w for w in COMMANDS[command]]
    called = lqf(command, "run", *rest)
    assert called.code == 2
    assert "fitted on data in memory, such as arrays" in called.err.splitlines()[-1]
    assert "in Python, give them again with train=" in called.err.splitlines()[-1]
    assert tree(Path()).isdisjoint({"out", "out.csv", "out.html"})


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
