"""Unequal classes on the command line: `--class-weight` and `--choose-by`, what is said of them, what comes after."""

import csv
import json
from pathlib import Path

import pytest

from cli.conftest import HEAD, TINY, paint
from lqf.cli.app import COMMANDS, make_parser
from lqf.errors import LQFError


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """12 images of blue, 3 of green."""
    folder = paint(tmp_path_factory.mktemp("few") / "train", 12, seed=0, classes=("blue", "green"))
    for image in sorted((folder / "green").iterdir())[3:]:
        image.unlink()
    return folder


def read(text):
    return vars(make_parser(COMMANDS).parse_args(["fit", "DIR", "-o", "RUN", "--class-weight", text]))["class_weight"]


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("balanced", "balanced"),
        ("crack=3,ok=1", {"crack": 3.0, "ok": 1.0}),
        ("crack=3.5, ok=.5,", {"crack": 3.5, "ok": 0.5}),
        ("7=2", {"7": 2.0}),
        ("small, round=2,a=b=1.25", {"small, round": 2.0, "a=b": 1.25}),
    ],
)
def test_weights_are_read_by_name(text, weights):
    assert read(text) == weights


@pytest.mark.parametrize("text", ["", "balance", "crack", "crack=", "crack=x", "=3", "crack=-1", "crack=3,ok"])
def test_what_is_no_weight_is_named_with_what_it_may_be(text):
    with pytest.raises(LQFError, match="is neither `balanced` nor weights of classes like `crack=3,ok=1`"):
        read(text)
    with pytest.raises(LQFError, match="`a=1,a=2` names the class `a` twice"):
        read("a=1,a=2")


@pytest.mark.parametrize(
    ("option", "sentence"),
    [("--class-weight=bleu=2", "names a class that the data do not have: `bleu`; they have `blue`, `green`"),
     ("--class-weight=blue=0", "--class-weight is {'blue': 0.0}; give `balanced`, or positive weights of classes"),
     ("--choose-by=balanced", "--choose-by")],
)  # fmt: skip
def test_what_cannot_be_is_refused(lqf, few, option, sentence):
    called = lqf("fit", few, "-o", "run", *HEAD, option)
    assert called.code == 2
    assert sentence in called.err
    assert not Path("run").exists()


def test_very_unequal_classes_are_said_at_the_beginning_with_the_option(lqf, few):
    called = lqf("fit", few, "-o", "run", *HEAD)
    assert called.code == 0, called.err
    (line,) = [line for line in called.err.splitlines() if "unequal" in line]
    assert "12 images of `blue`, 3 of `green`" in line
    assert "--class-weight balanced" in line
    assert "class weights" not in called.out
    assert "weighted" not in called.out


def test_a_fit_says_its_weights_and_which_errors_are_weighted(lqf, few):
    called = lqf("fit", few, "-o", "run", *HEAD, "--class-weight", "balanced", "-v")
    assert called.code == 0, called.err
    assert "unequal" not in called.err
    lines = {line[2:].split("  ")[0]: line for line in called.out.splitlines()}
    assert lines["class weights"].endswith("  blue 0.625, green 2.5")
    assert "(weighted, exact)" in lines["expected error on new images"]
    assert "Chosen out of sample (weighted):" in called.out
    assert max(map(len, called.out.splitlines())) <= 80
    model = json.loads(Path("run/model.json").read_text())
    assert model["settings"]["class_weight"] == "balanced"
    assert model["report"]["class_weights"] == {"blue": 0.625, "green": 2.5}
    with Path("run/samples.csv").open() as file:
        assert {(row["label"], float(row["weight"])) for row in csv.DictReader(file)} == {
            ("blue", 0.625),
            ("green", 2.5),
        }


def test_a_climb_says_by_what_its_rungs_were_compared(lqf, few):
    called = lqf("fit", few, "-o", "run", *TINY, "--effort", "quick", "--choose-by", "classes", "-v")
    assert called.code == 0, called.err
    assert "(error and cross-entropy: every class counts alike)" in called.out
    assert "Chosen out of sample (every class counts alike):" in called.out
    assert lqf("report", "run", "-o", "report.html").code == 0
    assert "Error and cross-entropy: every class counts alike." in Path("report.html").read_text()
    lines = called.out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("  expected error on new images"))
    assert any(line.startswith("    mean of the classes ") for line in lines[at : at + 4])
    assert max(len(line) for line in lines if not line.startswith("  lqf fit ")) <= 80


def test_what_comes_after_does_not_mix_them_up(lqf, few):
    """A test set has no class weights, a manifest those of the images alone, an audit counts images."""
    assert lqf("fit", few, "-o", "run", *HEAD, "--class-weight", "blue=1,green=5").code == 0
    result = json.loads(Path("run/model.json").read_text())["report"]
    called = lqf("evaluate", "run", few)
    assert f"The fit expected a mean error of the classes of {100 * result['loo_balanced_error']:.1f}%" in called.out
    audited = lqf("audit", "run", "--json").json
    assert audited["loo_error"] == pytest.approx(audited["contradicted"] / 15)
    assert lqf("summarize", "run", "--keep", 0.6, "-o", "part.csv").code == 0
    with Path("part.csv").open() as file:
        assert {float(row["weight"]) for row in csv.DictReader(file)} == {1.0}
    assert lqf("report", "run", "-o", "report.html").code == 0
    page = Path("report.html").read_text()
    assert "Training images count by the weights of their classes (blue 1, green 5) in these errors; the mean" in page
    assert "class weights" in page
    assert "15 images, weighted, exact" in page
