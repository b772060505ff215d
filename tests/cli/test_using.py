"""`evaluate` and `predict` with a fitted model."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from cli.conftest import CLASSES
from lqf import LQFClassifier
from lqf.cli import evaluate
from lqf.evaluation.measure import measure


def test_evaluate_agrees_with_the_estimator(lqf, run, photos):
    called = lqf("evaluate", run, photos / "test", "--json")
    assert called.code == 0, called.err
    result = called.json
    assert result.keys() >= {"n", "error", "per_class", "seconds", "skipped"}
    assert result["n"] == 12
    assert {name: c["n"] for name, c in result["per_class"].items()} == dict.fromkeys(CLASSES, 4)
    assert result["error"] == pytest.approx(np.mean([c["error"] for c in result["per_class"].values()]))
    assert result["error"] == pytest.approx(1 - LQFClassifier.load(run, device="cpu").score(photos / "test"))
    assert sum(pair["n"] for pair in result["confusions"]) == round(12 * result["error"])


def test_evaluate_prints_a_table(lqf, run, photos):
    called = lqf("evaluate", run, photos / "test", "--batch-size", 5)
    assert called.code == 0
    assert re.match(r"Error [\d.]+% \(95%: [\d.]+ to [\d.]+\) on 12 images", called.out)
    for name in ("balanced accuracy", "F1, mean of classes", "AUC, mean of classes", "log loss", "calibration error"):
        assert re.search(rf"^  {name} +[\d.]+%?(  \([\d.]+ to [\d.]+|$)", called.out, re.MULTILINE), called.out
    for name in CLASSES:
        assert name in called.out
    assert max(map(len, called.out.splitlines())) <= 80


def test_a_class_that_is_missing_in_the_test_set_is_fine(lqf, run, photos):
    shutil.copytree(photos / "test" / "red", "test/red")
    result = lqf("evaluate", run, "test", "--json").json
    assert list(result["per_class"]) == ["red"]


def test_weights_of_a_manifest_count(lqf, run, photos):
    images = sorted((photos / "test").rglob("*.png"))
    lines = ["path,label,weight", *(f"{p},{p.parent.name},{int(p.parent.name == 'red')}" for p in images)]
    Path("test.csv").write_text("\n".join(lines))
    result = lqf("evaluate", run, "test.csv", "--json").json
    assert result["error"] == result["per_class"]["red"]["error"]
    unknown = {"error": None, "error_interval": None, "f1": None, "f1_interval": None}
    assert result["per_class"]["blue"] == {"n": 4, **unknown}
    assert result["balanced_accuracy"] == pytest.approx(1 - result["error"])


def test_the_worst_classes_come_first_and_not_all_of_them():
    classes = [f"a class with quite a long name indeed, number {k}" for k in range(40)]
    labels = np.arange(40).repeat(10)
    predicted = np.where(np.arange(400) % 10 < labels % 10, (labels + 1) % 40, labels)
    p = 0.9 * np.eye(40)[predicted] + 0.1 / 40
    result = measure(classes, labels, predicted, p, np.ones(400)).to_dict()
    assert result["error"] == pytest.approx(0.45)
    rest = {"skipped": [("x", "y")], "expected_error": None, "loo_error": None, "output": None, "seconds": 100.0}
    text = evaluate.show({**result, **rest})
    assert max(map(len, text.splitlines())) <= 80
    errors = [float(word) for word in re.findall(r"([0-9.]+)%", text.partition("mostly taken for")[2])]
    assert errors == [90.0] * 4 + [80.0] * 4 + [70.0] * 4 + [60.0] * 4 + [50.0] * 4
    assert "and 20 classes with no larger error" in text
    assert "1 image skipped" in text


def test_predict_has_one_entry_per_image(lqf, run, photos):
    red = photos / "test" / "red"
    called = lqf("predict", run, red, photos / "test" / "blue" / "1.png", red / "0.png", "--json")
    assert called.code == 0, called.err
    entries = called.json["predictions"]
    assert [Path(e["id"]).name for e in entries] == ["0.png", "1.png", "2.png", "3.png", "1.png"]
    for e in entries:
        assert set(e["scores"]) == set(e["probabilities"]) == set(CLASSES)
        assert sum(e["probabilities"].values()) == pytest.approx(1)
        assert (
            e["label"] == max(e["scores"], key=e["scores"].get) == max(e["probabilities"], key=e["probabilities"].get)
        )


def test_predict_prints_one_line_per_image(lqf, run, photos):
    lines = lqf("predict", run, photos / "test").out.splitlines()
    assert len(lines) == 12
    assert lines[0].split()[0] == str(photos / "test" / "blue" / "0.png")
    assert lines[0].split()[1] in CLASSES
    assert lines[0].endswith("%")


def test_a_file_is_no_model(lqf, photos):
    called = lqf("predict", photos / "test" / "red" / "0.png", photos / "test")
    assert called.code == 2
    assert "0.png` is a file, not a fitted model; give the folder that `lqf fit` wrote" in called.err


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_an_unknown_device_is_refused(lqf, run, photos, command):
    called = lqf(command, run, photos / "test", "--device", "warp")
    assert called.code == 2
    assert "there is no device `warp`" in called.err
