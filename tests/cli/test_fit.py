"""`lqf fit` from end to end, and what it leaves on the disk."""

import argparse
import inspect
import json
import re
import shutil
from dataclasses import fields
from pathlib import Path

import pytest

from cli.conftest import CLASSES, HEAD, SOLVE, TINY, tree
from faults import disk_full
from lqf.cli.app import COMMANDS, make_parser
from lqf.estimator import LQFClassifier
from lqf.settings import Settings, Setup

NOT_ASKED = "not asked for (--loo none)"
PROMISED = {"n", "classes", "solver", "weight_decay", "loo_error", "loo_level", "relative_residual", "seconds", "run"}


def test_an_error_that_was_not_asked_for_is_not_said_to_be_unknown_for_another_reason(lqf, photos):
    called = lqf("fit", photos / "train", "-o", "run", *SOLVE, "--loo", "none")
    assert called.code == 0, called.err
    assert NOT_ASKED in called.out


@pytest.mark.parametrize("options", ["--solver auto", "--solver head", "--solver pcg --linearize final"])
def test_json_has_what_is_promised_and_stdout_nothing_else(lqf, photos, options):
    called = lqf("fit", photos / "train", "-o", "run", *TINY, *options.split(), "--json")
    assert called.code == 0, called.err
    result = called.json
    assert result.keys() >= PROMISED
    assert result["n"] == 18
    assert result["classes"] == list(CLASSES)
    assert result["run"] == "run"
    assert 0 <= result["loo_error"] <= 1
    assert result["relative_residual"] < 0.1
    climbed = {"run/rungs.safetensors"} if "auto" in options else set()
    assert (
        tree(Path())
        == {
            "run",
            "run/README.md",
            "run/model.json",
            "run/weights.safetensors",
            "run/samples.csv",
            "run/questions.safetensors",
        }
        | climbed
    )


@pytest.mark.parametrize("solver", ["sgd", "adam"])
def test_mini_batch_solvers_take_their_options(lqf, photos, solver):
    options = ["--epochs", 1, "--minibatch", 9, "--learning-rate", 0.01, "--augment", "crop", "--linearize", "final"]
    called = lqf("fit", photos / "train", "-o", "run", *TINY, "--solver", solver, *options, "--json")
    assert called.code == 0, called.err
    assert called.json["solver"] == solver
    settings = json.loads(Path("run/model.json").read_text())["settings"]
    taken = {"solver": solver, "epochs": 1, "minibatch": 9, "learning_rate": 0.01, "augment": "crop"}
    assert {name: settings[name] for name in taken} == taken


def test_summary_says_the_main_things_and_what_to_type_next(lqf, photos):
    called = lqf("fit", photos / "train", "-o", "my run", *HEAD)
    assert called.code == 0
    assert called.out.startswith("Fitted 18 images of 3 classes in ")
    for word in ("expected error on new images", "(exact)", "my run"):
        assert word in called.out
    assert "lqf evaluate 'my run' TEST" in called.out
    for word in ("residual", "unknown", "Chosen"):
        assert word not in called.out
    assert max(map(len, called.out.splitlines())) <= 80


def test_how_it_was_solved_is_said_on_request(lqf, photos):
    called = lqf("fit", photos / "train", "-o", "my run", *HEAD, "-v")
    assert called.code == 0
    for word in ("relative residual", "unknowns", "weight decay", "kept for questions", "Chosen out of sample:"):
        assert word in called.out.partition("\nDetails\n")[2]
    assert max(map(len, called.out.splitlines())) <= 80


def test_a_quiet_command_says_its_result_alone(lqf, photos):
    climb = ("fit", photos / "train", *TINY, "--effort", "quick")
    loud, quiet = lqf(*climb, "-o", "a"), lqf(*climb, "-o", "b", "-q")
    assert (quiet.code, quiet.err) == (0, "")
    assert loud.err != ""
    assert quiet.out.startswith("Fitted 18 images")
    assert lqf("predict", "b", photos / "test", "-q").err == ""
    assert "no-such" in lqf("fit", "no-such", "-o", "c", "-q").err


OWN = {"command", "train", "output", "overwrite", "resume", "json", "details", "quiet", "memory", "epsilon", "delta"}


def test_options_have_the_names_of_the_estimator_and_no_defaults_of_their_own():
    args = vars(make_parser(COMMANDS).parse_args(["fit", "TRAIN", "-o", "RUN"]))
    assert set(args) == OWN - {"memory", "epsilon", "delta"}
    everything = (
        "--backbone b --weights w --solver head --pooling avg --weight-decay 1 --body-weight-decay auto --head probe"
    )
    everything += (
        " --form w0 --linearize s --no-leaky --views flip --squash --augment crop --limit-per-class 1 --size 1"
    )
    everything += " --device cpu --seed 1 --strict --tol 1 --max-passes 1 --epochs 1 --learning-rate 1 --minibatch 1"
    everything += " --batch-size 1 --preconditioner kfac"
    given = set(vars(make_parser(COMMANDS).parse_args(["fit", "TRAIN", "-o", "RUN", *everything.split()]))) - set(args)
    assert given <= set(inspect.signature(LQFClassifier).parameters)


def test_every_setting_with_a_group_is_an_option_with_its_help_choices_and_default():
    parser = make_parser(COMMANDS)
    commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction)).choices
    actions = {a.dest: a for a in commands["fit"]._actions if a.dest != "help"}
    known = {f.name: f for of in (Setup, Settings) for f in fields(of) if f.metadata["group"]}
    assert set(actions) == set(known) | OWN - {"command"}
    for name, f in known.items():
        action = actions[name]
        assert action.default is argparse.SUPPRESS, name  # the one default is the setting's own
        assert f.metadata["help"] in action.help
        assert action.choices == (f.metadata["choices"] or None)
        if f.default not in (None, True, False):
            assert "default:" in action.help


@pytest.mark.parametrize(("option", "value"), [("--tol", 1e-3), ("--seed", 7), ("--size", 48), ("--weight-decay", 0.5)])
def test_values_are_read_as_numbers(option, value):
    args = make_parser(COMMANDS).parse_args(["fit", "TRAIN", "-o", "RUN", option, str(value)])
    found = getattr(args, option[2:].replace("-", "_"))
    assert (found, type(found)) == (value, type(value))


def test_limit_per_class_and_a_manifest(lqf, photos):
    rows = [f"{path},{path.parent.name}" for path in sorted((photos / "train").rglob("*.png"))]
    Path("list.csv").write_text("\n".join(["path,label", *rows]))
    assert lqf("fit", "list.csv", "-o", "run", *HEAD, "--limit-per-class", 4, "--json").json["n"] == 12


def test_an_existing_folder_is_refused_before_any_work(lqf, photos, monkeypatch):
    lqf("fit", photos / "train", "-o", "run", *HEAD)
    before = Path("run/model.json").read_bytes()
    monkeypatch.setattr(LQFClassifier, "fit", lambda *_, **__: pytest.fail("it started"))
    called = lqf("fit", photos / "train", "-o", "run", *HEAD)
    assert called.code == 2
    assert called.out == ""
    assert re.fullmatch(r"lqf: `run` exists; .*--overwrite.*\n", called.err)
    assert Path("run/model.json").read_bytes() == before


def test_overwrite_replaces_whole_folders_and_only_models(lqf, photos):
    lqf("fit", photos / "train", "-o", "run", *HEAD)
    Path("run/notes.txt").write_text("of the old model")
    assert lqf("fit", photos / "train", "-o", "run", *HEAD, "--limit-per-class", 3, "--overwrite").code == 0
    assert tree(Path()) == {
        "run",
        "run/model.json",
        "run/weights.safetensors",
        "run/README.md",
        "run/samples.csv",
        "run/questions.safetensors",
    }
    assert lqf("evaluate", "run", photos / "test").code == 0
    Path("mine").mkdir()
    Path("mine/letter.txt").write_text("dear")
    called = lqf("fit", photos / "train", "-o", "mine", *HEAD, "--overwrite")
    assert called.code == 2
    assert "not replaced even with --overwrite" in called.err
    assert tree(Path("mine")) == {"letter.txt"}


def test_a_failed_fit_leaves_the_old_model(lqf, photos, monkeypatch):
    lqf("fit", photos / "train", "-o", "run", *HEAD)
    before = {path.name: path.read_bytes() for path in Path("run").iterdir()}
    monkeypatch.setattr("lqf.utils.files.replace_folder", disk_full)
    called = lqf("fit", photos / "train", "-o", "run", *HEAD, "--overwrite", "--json")
    assert called.code == 1
    assert "No space left" in called.json["error"]
    assert {path.name: path.read_bytes() for path in Path("run").iterdir()} == before
    assert {path.name for path in Path().iterdir()} == {"run"}


def test_damaged_images_are_listed_and_skipped_or_refused(lqf, photos):
    shutil.copytree(photos / "train", "train")
    Path("train/red/0.png").write_bytes(Path("train/red/0.png").read_bytes()[:200])
    Path("train/red/broken.jpg").write_text("no image")
    called = lqf("fit", "train", "-o", "run", *HEAD, "--json")
    assert called.code == 0
    assert [name for name, _ in called.json["skipped"]] == ["red/0.png", "red/broken.jpg"]
    assert "red/broken.jpg" in called.err
    assert called.json["n"] == 17
    called = lqf("fit", "train", "-o", "strict", *HEAD, "--strict")
    assert called.code == 2
    assert "red/0.png" in called.err
    assert not Path("strict").exists()


def test_every_automatic_choice_is_told_in_one_line(lqf, photos):
    options = ["--size", 64, "--pool-channels", 8, "--linearize", "final", "--solver", "dense"]
    called = lqf("fit", photos / "train", "-o", "run", *TINY, *options, "-v")
    assert called.code == 0, called.err
    lines = called.out.split("Chosen out of sample:\n")[1].split("\n\n")[0].splitlines()
    assert [line.strip().partition(":")[0] for line in lines] == [
        "pooling",
        "views",
        "weight decay (head)",
        "weight decay (body)",
    ]
    assert re.fullmatch(r"  pooling: avg [\d.]+%, bilinear [\d.]+%; kept (avg|bilinear)", lines[0])
    assert re.fullmatch(r"  views: none [\d.]+%, flip [\d.]+%; kept (flip|none \(flip gains too little\))", lines[1])
    assert all("; kept " in line for line in lines)
    assert max(map(len, called.out.splitlines())) <= 80
    called = lqf("evaluate", "run", photos / "test")
    assert called.code == 0, called.err


def test_bilinear_pooling_by_name(lqf, photos):
    options = ["--size", 64, "--pooling", "bilinear", "--pool-channels", 8, "--linearize", "final"]
    called = lqf("fit", photos / "train", "-o", "run", *TINY, *options, "--json")
    assert called.code == 0, called.err
    assert called.json["pooling"] == "bilinear"
    assert lqf("predict", "run", photos / "test", "--json").code == 0
    called = lqf("fit", photos / "train", "-o", "small", *HEAD, "--pooling", "bilinear")
    assert called.code == 2
    assert "larger size" in called.err
