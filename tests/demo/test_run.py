"""The demo from end to end, small."""

import csv
import json
import time
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from PIL import Image

import small_network
from finetuned_models import short
from fits import convnet, pictures
from lqf import LQFClassifier, LQFError
from lqf.demo import run, run_demo, show
from lqf.demo.clock import Clock
from lqf.demo.folder import check_output, output_folder
from lqf.demo.solar import CLASSES, Cell
from lqf.demo.testing import wrong_cells
from lqf.utils.progress import SILENT
from recorder import Recorder
from stacks import stacked

pytest.importorskip("jinja2")
pytestmark = pytest.mark.usefixtures("one_thread")
needs_cells = pytest.mark.skipif(find_spec("elpv_dataset") is None, reason="needs elpv-dataset")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A run with few small cells and a small network, which has time for every rung: its folder and its result."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("run") / "deep" / "demo"
    small_network.register()
    with pytest.MonkeyPatch.context() as patch, short(6):
        patch.setattr(run, "BACKBONE", small_network.NAME)
        patch.setattr(run, "LQFClassifier", partial(LQFClassifier, weights="random"))
        yield out, run_demo(out, n_train=24, n_test=16, n_shown=4, size=32, device="cpu")
    small_network.forget()


@needs_cells
def test_folder_is_complete(demo):
    out, result = demo
    assert sorted(p.name for p in out.iterdir()) == ["index.html", "model", "result.json", "test.csv", "train.csv"]
    assert [p.name for p in out.parent.iterdir()] == ["demo"]  # nothing else is left beside it
    assert json.loads((out / "result.json").read_text()) == result
    assert (out / "index.html").read_text().count("<img") == len(result["suspicious"])


@needs_cells
def test_result_holds_together(demo):
    result = demo[1]
    assert (result["train"]["n"], result["test"]["n"]) == (24, 16)
    rungs, model = {r["name"]: r for r in result["rungs"]}, result["model"]
    kept = [r for r in result["rungs"] if r["kept"]]
    assert kept[-1]["name"] == model["name"]
    assert kept[-1]["test_error"] == model["test_error"]
    assert model["solver"] == "finetune" or model["relative_residual"] < 1e-3
    assert 0 <= result["error"] <= 1
    for r in result["rungs"]:
        assert (r["error"] is None) == (r["loss"] is None) == (r["standard_error"] is None)
        assert r["kept"] or r["why"]
        assert r["kept"] or r["test_error"] is None
    for r in kept:
        assert 0 <= r["test_error"] <= 1
    head = rungs["head"]
    assert head["kept"]
    assert round(16 * (head["test_error"] - model["test_error"])) == result["repaired"] - result["spoilt"]
    rounding = 0.001 * (len(result["stages"]) + 1)  # every number is rounded to a millisecond by itself
    assert sum(s["seconds"] for s in result["stages"]) <= result["seconds"] + rounding
    assert max(map(len, show(result | {"out": "demo"}).splitlines())) <= 80


@needs_cells
def test_suspicious_cells_contradict_their_label(demo):
    out, result = demo
    with (out / "train.csv").open() as file:
        label = {row["path"]: row["label"] for row in csv.DictReader(file)}
    assert result["suspicious"]
    for cell in result["suspicious"]:
        assert [y for path, y in label.items() if path.endswith(cell["id"])] == [cell["label"]]
        assert (cell["loo_probability"] > 0.5) == (cell["label"] == "functional")


@needs_cells
def test_saved_model_repeats_the_test(demo):
    out, result = demo
    model = LQFClassifier.load(out / "model", device="cpu")
    assert 1 - model.score(out / "test.csv") == pytest.approx(result["model"]["test_error"])


@needs_cells
def test_time_counts_from_the_beginning(demo):
    result = demo[1]
    assert [s["name"] for s in result["stages"][:2]] == ["fit", "read the test cells"]  # nothing came before it
    parts = result["stages"][0]["parts"]
    assert list(parts) == [r["name"] for r in result["rungs"] if r["seconds"] is not None]
    assert sum(parts.values()) <= result["stages"][0]["seconds"] + 0.01 * len(parts)


def test_models_on_the_way_are_tested_while_there_is_time(tmp_path):
    x, y = pictures(30, 2, side=36)
    common = {"backbone": convnet(), "size": 32, "device": "cpu"}
    last = LQFClassifier(**common, solver="head", views="flip").fit(x, y)
    models = {"head": LQFClassifier(**common, solver="head").fit(x, y).fitted_, "head, mirror images": last.fitted_}
    cells = [Cell(f"{i}", _written(tmp_path / f"{i}.png", pixels), float(i % 2), "mono") for i, pixels in enumerate(x)]
    late, early = (Clock(time.monotonic() - age) for age in (100.0, 0.0))
    found = wrong_cells(last, models, cells, early, 60.0, SILENT)
    assert list(found) == ["head, mirror images", "head"]
    assert [s["name"] for s in early.stages] == ["read the test cells", "test: head, mirror images", "test: head"]
    recorder = Recorder()
    assert list(wrong_cells(last, models, cells, late, 60.0, recorder)) == ["head, mirror images"]
    assert recorder.said[-1].startswith("head is not tested: that would take about")
    labels = [CLASSES.index(c.label) for c in cells]
    wrong = last.predict([c.path for c in cells]) != np.array(labels)
    assert found["head, mirror images"].tolist() == wrong.tolist()


def test_members_of_a_stack_are_not_tested_twice(tmp_path):
    x, y = pictures(30, 2, side=36)
    common = {"backbone": convnet(), "size": 32, "device": "cpu", "solver": "head"}
    views = {"head": "none", "head, mirror images": "flip"}
    members = {name: LQFClassifier(**common, views=v).fit(x, y) for name, v in views.items()}
    stack = stacked(members, (0.3, 0.7))
    last = LQFClassifier(**common).fit(x, y)
    last.fitted_ = stack
    cells = [Cell(f"{i}", _written(tmp_path / f"{i}.png", pixels), float(i % 2), "mono") for i, pixels in enumerate(x)]
    recorder = Recorder()
    models = {**{name: m.fitted_ for name, m in members.items()}, "stack": stack}
    found = wrong_cells(last, models, cells, Clock(time.monotonic()), 60.0, recorder)
    assert [total for name, total, _ in recorder.stages if name == "predicting"] == [30, 60]
    labels = np.array([CLASSES.index(c.label) for c in cells])
    for name, model in {**members, "stack": last}.items():
        assert found[name].tolist() == (model.predict([c.path for c in cells]) != labels).tolist()


def _written(path, pixels):
    Image.fromarray(pixels).save(path)
    return path


@needs_cells
def test_saved_model_knows_its_training_cells(demo):
    """As the commands for reports and explanations ask for them."""
    out, result = demo
    analysis = LQFClassifier.load(out / "model", device="cpu").analyse()
    assert len(analysis.ids) == result["train"]["n"]
    assert analysis.model.train.source == str((out / "train.csv").resolve())


def test_existing_folder_is_refused_before_any_work(tmp_path):
    with pytest.raises(LQFError, match="exists; choose another"):
        run_demo(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", '{"format": "other"}'])
def test_overwrite_spares_what_no_demo_wrote(tmp_path, content):
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(LQFError, match="not written by `lqf demo`"):
        check_output(tmp_path, overwrite=True)


def test_overwrite_replaces_an_earlier_demo(tmp_path):
    out = tmp_path / "demo"
    for name in ("old", "new"):
        with output_folder(out, overwrite=name == "new") as temporary:
            (temporary / name).touch()
            (temporary / "result.json").write_text('{"format": "lqf-demo"}')
    assert sorted(p.name for p in out.iterdir()) == ["new", "result.json"]
    assert [p.name for p in tmp_path.iterdir()] == ["demo"]


def test_a_failure_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), output_folder(tmp_path / "demo", overwrite=False):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
