"""The demo from end to end, small."""

import csv
import json
from importlib.util import find_spec

import pytest
import torch

from lqf import LQFClassifier, LQFError
from lqf.demo import run_demo, show
from lqf.demo.folder import check_output, output_folder

pytest.importorskip("jinja2")
pytestmark = pytest.mark.usefixtures("one_thread")
needs_cells = pytest.mark.skipif(find_spec("elpv_dataset") is None, reason="needs elpv-dataset")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A run with few small cells: its folder and its result."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("run") / "deep" / "demo"
    return out, run_demo(out, n_train=24, n_test=16, n_shown=4, size=64, device="cpu")


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
    for m in result["models"].values():
        assert 0 <= m["test_error"] <= 1
        assert m["loo_level"] == "exact"
        assert m["relative_residual"] < 1e-3
    assert result["models"]["bilinear"]["unknowns"] > result["models"]["head"]["unknowns"]
    same = "bilinear" if result["pooling"]["kept"] == "bilinear" else "head"
    head, full = (16 * result["models"][k]["test_error"] for k in (same, "lqf"))
    assert round(head - full) == result["repaired"] - result["spoilt"]
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
    assert 1 - model.score(out / "test.csv") == pytest.approx(result["models"]["lqf"]["test_error"])


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
