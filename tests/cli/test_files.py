"""What `predict` and `evaluate` write into files, and what they do with images that cannot be read."""

import csv
import json
import shutil
import sys
from pathlib import Path

import pytest

from cli.conftest import CLASSES, HEAD, paint, spoil

FILES = ("out.csv", "out.jsonl", "out.parquet")


def read(path):
    """Rows of a file that was written, as dicts."""
    path = Path(path)
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]
    return pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()


@pytest.mark.parametrize("out", FILES)
def test_predictions_as_a_file_are_those_of_json(lqf, run, photos, out):
    if out.endswith("parquet"):
        pytest.importorskip("pyarrow")
    entries = lqf("predict", run, photos / "test", "--json").json["predictions"]
    called = lqf("predict", run, photos / "test", "-o", out)
    assert called.code == 0, called.err
    assert called.out.startswith("12 images predicted; ")
    assert called.out.endswith(f"Written to {out}\n")
    rows = read(out)
    assert [(r["path"], r["label"]) for r in rows] == [(e["id"], e["label"]) for e in entries]
    assert [float(r["probability"]) for r in rows] == [max(e["probabilities"].values()) for e in entries]
    assert {r["note"] for r in rows} == {""}
    assert [e["probability"] for e in entries] == [float(r["probability"]) for r in rows]
    assert list(rows[0]) == ["path", "label", "probability", *(["top"] if out.endswith("jsonl") else []), "note"]


def test_top_k_is_columns_or_a_list(lqf, run, photos):
    folder = photos / "test" / "red"
    for out in ("out.csv", "out.jsonl"):
        assert lqf("predict", run, folder, "--top", 2, "-o", out).code == 0
    flat, nested = read("out.csv"), read("out.jsonl")
    assert list(flat[0]) == ["path", "label", "probability", "label_2", "probability_2", "note"]
    entries = lqf("predict", run, folder, "--top", 2, "--json").json["predictions"]
    for row, line, entry in zip(flat, nested, entries, strict=True):
        best = sorted(entry["probabilities"].items(), key=lambda item: -item[1])[:2]
        assert [(row["label"], float(row["probability"])), (row["label_2"], float(row["probability_2"]))] == best
        assert line["top"] == entry["top"] == [{"label": k, "probability": p} for k, p in best]
    many = lqf("predict", run, folder, "--top", 99, "--json").json["predictions"]
    assert {len(e["top"]) for e in many} == {3}
    lines = lqf("predict", run, folder, "--top", 2).out.splitlines()
    assert lines[0].split()[3:] == [entries[0]["top"][1]["label"], f"{100 * entries[0]['top'][1]['probability']:.1f}%"]


def test_below_the_threshold_it_is_unsure(lqf, run, photos):
    sure = {e["id"]: e for e in lqf("predict", run, photos / "test", "--json").json["predictions"]}
    threshold = sorted(e["probability"] for e in sure.values())[6]
    called = lqf("predict", run, photos / "test", "--threshold", threshold, "-o", "out.csv")
    assert called.out.startswith("12 images predicted, 6 of them unsure; ")
    rows = read("out.csv")
    assert list(rows[0]) == ["path", "label", "probability", "label_1", "note"]
    for row in rows:
        entry = sure[row["path"]]
        assert float(row["probability"]) == entry["probability"]
        assert row["label_1"] == entry["label"]
        assert row["label"] == (entry["label"] if entry["probability"] >= threshold else "unsure")
    result = lqf("predict", run, photos / "test", "--threshold", threshold, "--json").json
    assert result["unsure"] == sum(e["label"] == "unsure" for e in result["predictions"]) == 6
    assert all(e["top"][0]["label"] == sure[e["id"]]["label"] for e in result["predictions"])
    lines = lqf("predict", run, photos / "test", "--threshold", threshold).out.splitlines()
    unsure = [line.split() for line in lines if " unsure " in line]
    assert [words[3] for words in unsure] == [f"{sure[words[0]]['label']}?" for words in unsure]
    assert len(unsure) == 6
    assert lqf("predict", run, photos / "test", "--threshold", 1.5).code == 2


def test_a_file_that_cannot_be_read_is_a_row_with_a_note(lqf, run, photos):
    good = photos / "test" / "red" / "0.png"
    spoil(good)
    called = lqf("predict", run, good, "letter.jpg", "cut.png", "absent.png", "-o", "out.csv")
    assert called.code == 1
    assert called.err.splitlines()[-1] == "lqf: 3 of 4 images could not be read; the other one is predicted"
    assert called.out.startswith("1 image predicted; 3 could not be read; ")
    rows = read("out.csv")
    assert [r["path"] for r in rows] == [str(good), "letter.jpg", "cut.png", "absent.png"]
    assert [bool(r["label"]) for r in rows] == [True, False, False, False]
    assert [r["probability"] for r in rows[1:]] == [""] * 3
    notes = [r["note"] for r in rows]
    assert notes[0] == ""
    for note, words in zip(notes[1:], ("is not an image", "truncated", "No such file"), strict=True):
        assert words in note
    printed = lqf("predict", run, good, "absent.png")
    assert printed.code == 1
    assert len(printed.out.splitlines()) == 1
    result = lqf("predict", run, good, "absent.png", "--json").json
    assert result["n"] == 1
    assert "1 of 2 images could not be read" in result["error"]
    assert [name for name, _ in result["skipped"]] == ["absent.png"]


@pytest.mark.parametrize("words", [("letter.jpg",), ("letter.jpg", "cut.png", "absent.png"), ("none.csv",)])
def test_where_nothing_can_be_read_nothing_is_written(lqf, run, photos, words):
    spoil(photos / "test" / "red" / "0.png")
    called = lqf("predict", run, *words, "-o", "out.csv")
    assert called.code == 2
    assert called.out == ""
    assert all(f"`{word}`" in called.err.splitlines()[-1] for word in words)
    assert not Path("out.csv").exists()


def test_a_damaged_file_in_a_folder_is_a_row_or_refused(lqf, run, photos):
    shutil.copytree(photos / "test" / "red", "new")
    Path("new/1.png").write_bytes(b"\x89PNG")
    result = lqf("predict", run, "new", "--json", "-o", "out.jsonl").json
    assert [name for name, _ in result["skipped"]] == ["new/1.png"]
    assert result["n"] == 3
    rows = read("out.jsonl")
    assert [r["path"] for r in rows] == [f"new/{i}.png" for i in range(4)]
    assert rows[1] == {"path": "new/1.png", "label": None, "probability": None, "top": [], "note": rows[1]["note"]}
    assert rows[1]["note"]
    called = lqf("predict", run, "new", "--strict", "-o", "strict.csv")
    assert called.code == 2
    assert not Path("strict.csv").exists()


def test_manifests_are_images_with_labels_that_may_be_missing(lqf, run, photos):
    red = photos / "test" / "red"
    Path("list").mkdir()
    shutil.copy(red / "0.png", "list/near.png")
    lines = ["label,path", "red,near.png", f",{red / '1.png'}", f"a cat,{red / '2.png'}", "blue,gone.png"]
    Path("list/some.csv").write_text("\n".join(lines))
    called = lqf("predict", run, "list/some.csv", red / "3.png", "-o", "out.csv")
    assert called.code == 1
    rows = read("out.csv")
    assert list(rows[0]) == ["path", "given", "label", "probability", "note"]
    paths = ["list/near.png", str(red / "1.png"), str(red / "2.png"), "list/gone.png", str(red / "3.png")]
    assert [r["path"] for r in rows] == paths
    assert [r["given"] for r in rows] == ["red", "", "a cat", "blue", ""]
    assert [bool(r["label"]) for r in rows] == [True, True, True, False, True]
    Path("bare.csv").write_text("path\nlist/near.png\n")
    assert lqf("predict", run, "bare.csv", "-o", "bare-out.csv").code == 0
    assert list(read("bare-out.csv")[0]) == ["path", "label", "probability", "note"]
    Path("empty.csv").write_text("path,label\n")
    assert "lists no image" in lqf("predict", run, "empty.csv").err
    Path("other.csv").write_text("file\nx.png\n")
    assert "no column path" in lqf("predict", run, "other.csv").err


def test_names_with_commas_quotes_newlines_and_other_scripts_come_back(lqf, run, photos):
    names = ['a,b;"c".png', "two\nlines.png", "=1+1.png", "Übung 猫 é.png", " spaces .png", "e\u0301.png"]
    Path("odd").mkdir()
    for name in names:
        shutil.copy(photos / "test" / "red" / "0.png", f"odd/{name}")
    for out in ("out.csv", "out.jsonl"):
        assert lqf("predict", run, "odd", "-o", out).code == 0
        found = [r["path"] for r in read(out)]
        assert sorted(found) == sorted(f"odd/{name}" for name in names)
        assert all(Path(path).is_file() for path in found)
    lines = lqf("predict", run, "odd").out.splitlines()  # on the terminal, one line each
    assert len(lines) == len(names)
    assert any("two\\nlines.png  " in line for line in lines)


def test_a_file_is_replaced_only_where_that_is_said(lqf, run, photos):
    folder = photos / "test" / "red"
    Path("out.csv").write_text("mine")
    called = lqf("predict", run, folder, "-o", "out.csv")
    assert called.code == 2
    assert "--overwrite" in called.err
    assert Path("out.csv").read_text() == "mine"
    assert lqf("evaluate", run, photos / "test", "-o", "out.csv").code == 2
    assert lqf("predict", run, folder, "-o", "out.csv", "--overwrite").code == 0
    assert len(read("out.csv")) == 4
    called = lqf("predict", run, folder, "-o", "out.xlsx")
    assert called.code == 2
    assert ".csv or .jsonl or .parquet" in called.err


def test_a_file_that_cannot_be_written_is_not_there_and_what_was_predicted_is_kept(lqf, run, photos, monkeypatch):
    def broken(*args, **kwargs):
        args[0].write_text("half")
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("lqf.reports.row_files.write_table", broken)
        called = lqf("predict", run, photos / "test", "-o", "out.csv")
    assert called.code == 1
    assert "12 of 12 images are predicted and kept in `out.csv.partial`" in called.err
    assert [path.name for path in Path().iterdir()] == ["out.csv.partial"]
    assert lqf("predict", run, photos / "test", "-o", "out.csv", "--resume").code == 0
    assert [path.name for path in Path().iterdir()] == ["out.csv"]


def test_parquet_without_pyarrow_says_what_to_install_before_any_work(lqf, run, photos, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr("lqf.cli.predict.load_model", lambda args: pytest.fail("the model was loaded"))
    called = lqf("predict", run, photos / "test", "-o", "out.parquet")
    assert called.code == 2
    assert "pip install pyarrow" in called.err


def test_a_class_that_is_called_unsure_has_no_threshold(lqf, photos):
    paint(Path("data"), 3, seed=0, classes=("red", "unsure"))
    assert lqf("fit", "data", "-o", "run", *HEAD).code == 0
    called = lqf("predict", "run", photos / "test" / "red", "--threshold", 0.9)
    assert called.code == 2
    assert "class `unsure`" in called.err


@pytest.mark.parametrize("out", FILES)
def test_an_evaluation_writes_every_image(lqf, run, photos, out):
    if out.endswith("parquet"):
        pytest.importorskip("pyarrow")
    shutil.copytree(photos / "test", "test")
    Path("test/red/1.png").write_bytes(b"\x89PNG")
    called = lqf("evaluate", run, "test", "-o", out)
    assert called.code == 0, called.err
    assert f"Every image: {out}" in called.out
    result = lqf("evaluate", run, "test", "--json").json
    rows = read(out)
    assert list(rows[0]) == ["path", "label", "predicted", "probability", "right", "note"]
    assert [r["path"] for r in rows] == [f"test/{name}/{i}.png" for name in CLASSES for i in range(4)]
    assert [r["label"] for r in rows] == [name for name in CLASSES for _ in range(4)]
    (bad,) = [r for r in rows if r["note"]]
    assert bad["path"] == "test/red/1.png"
    assert not bad["predicted"]
    right = [str(r["right"]) == "True" for r in rows if r is not bad]
    assert right == [r["label"] == r["predicted"] for r in rows if r is not bad]
    assert 1 - sum(right) / 11 == pytest.approx(result["error"])
    for name, c in result["per_class"].items():
        assert sum(r["label"] == name for r in rows if r is not bad) == c["n"]


def test_the_whole_evaluation_is_in_json(lqf, run, photos):
    result = lqf("evaluate", run, photos / "test", "--json").json
    assert sum(map(sum, result["confusion_matrix"])) == 12
    assert result["classes"] == list(CLASSES)
    assert {"accuracy", "balanced_accuracy", "macro_f1", "auc", "log_loss", "calibration_error"} <= result.keys()
    low, high = result["intervals"]["error"]
    assert low <= result["error"] <= high


def test_images_of_a_group_leave_more_open(lqf, run, photos):
    images = sorted((photos / "test").rglob("*.png"))
    widths = []
    for name, groups in (("alone.csv", 12), ("pairs.csv", 2)):
        rows = (f"{path},{path.parent.name},{i % groups}" for i, path in enumerate(images))
        Path(name).write_text("\n".join(["path,label,group", *rows]))
        result = lqf("evaluate", run, name, "--json").json
        low, high = result["intervals"]["balanced_accuracy"]
        widths.append(high - low)
    assert widths[1] > widths[0]


def test_one_class_alone_has_dashes(lqf, run, photos):
    shutil.copytree(photos / "test" / "red", "test/red")
    called = lqf("evaluate", run, "test")
    assert called.code == 0
    assert any(line.split() == ["AUC,", "mean", "of", "classes", "–"] for line in called.out.splitlines())
