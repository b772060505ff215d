"""Predictions of a folder in a file: the rows of all images at once, also where the run was broken."""

import gc
import json
import os
import shutil
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import small_network
from fits import photos
from lqf import LQFClassifier, LQFError
from lqf.data import streaming
from lqf.data.named import name_images
from lqf.data.pixels import PixelImages, decoded
from lqf.fitting.identity import identity
from lqf.reports import predictions, row_files
from lqf.reports.unfinished import Unfinished
from recorder import Interrupting, Recorder
from stacks import stacked

COMMON = {"backbone": "small", "weights": "random", "size": 32, "device": "cpu", "pooling": "avg", "verbose": 0}
HEAD = {"solver": "head", "weight_decay": 3.0}
DENSE = {"solver": "dense", "linearize": "final", "weight_decay": 3.0, "body_weight_decay": 3.0, "views": "none"}
ENDS = ("csv", "jsonl", "parquet")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LQFClassifier]:
    """A head in two views, a linearised one with two classes, and a stack whose members' batches differ."""
    folder = tmp_path_factory.mktemp("trained")
    three, two = photos(folder / "three", 5, classes=("blue", "green", "red")), photos(folder / "two", 5, seed=1)
    small_network.register()
    head = LQFClassifier(**COMMON, **HEAD, views="flip").fit(three)
    part = LQFClassifier(**COMMON, **DENSE).fit(three)
    crops = LQFClassifier(**COMMON, **HEAD, views="crops8").fit(three)
    stack = head.with_model(stacked({"head": head, "LQF": part, "crops": crops}, (0.3, 0.4, 0.3)))
    found = {"head": head, "LQF, two classes": LQFClassifier(**COMMON, **DENSE).fit(two), "stack": stack}
    small_network.forget()
    return found


@pytest.fixture
def new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """23 pictures and four that are damaged, in an order of its own."""
    monkeypatch.chdir(tmp_path)
    folder = photos(Path("new"), 8, seed=7, classes=("a", "b", "c"))
    (folder / "c" / "7.png").unlink()
    whole = (folder / "a" / "0.png").read_bytes()
    for name in ("a/00.png", "a/3.5.png", "b/4.5.png", "c/9.png"):
        (folder / name).write_bytes(whole[:200])
    return folder


def at_once(model: LQFClassifier, folder: Path, out: str, **options: object) -> bytes:
    """What is written where all images are held."""
    samples, given = name_images([folder])
    images = model.open(samples)
    predicted, _, p = model.scores(images)
    rows = predictions.predictions(samples, images.skipped, model.fitted_.classes, predicted, p, given=given, **options)
    row_files.write(Path(out), predictions.table(rows, nested=row_files.is_nested(Path(out))))
    return Path(out).read_bytes()


def rows_of(file: str | Path) -> list[dict[str, object]]:
    return pytest.importorskip("pyarrow.parquet").read_table(file).to_pylist()


class Decoded:
    """Counts the pictures that are decoded for a file, and the most that are held at a time: by themselves or in parts,
    which have room for all of theirs.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.names: list[str] = []
        self.alive: list[weakref.ref[np.ndarray]] = []
        self.parts: weakref.WeakSet[PixelImages] = weakref.WeakSet()
        self.most = 0
        monkeypatch.setattr(streaming, "decoded", self)
        monkeypatch.setattr(streaming, "PixelImages", self.part)

    def part(self, *args: object) -> PixelImages:
        images = PixelImages(*args)
        self.parts.add(images)
        self.count(1)
        return images

    def count(self, being_filled: int) -> None:
        room = max((len(p.store.base if p.store.base is not None else p.store) for p in self.parts), default=0)
        self.alive = [ref for ref in self.alive if ref() is not None]
        self.most = max(self.most, len(self.alive) + room * (len(self.parts) + being_filled))

    def __call__(self, samples, preprocess, i):
        self.names.append(samples.ids[i])
        digest, pixels = decoded(samples, preprocess, i)
        self.alive = [*self.alive, weakref.ref(pixels)]
        self.count(1)
        return digest, pixels


# --- the same rows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["head", "LQF, two classes", "stack"])
@pytest.mark.parametrize("rows", [5, 16])
def test_the_file_is_that_of_all_images_at_once_to_the_last_byte(models, new, kind, rows):
    model = models[kind]
    model.set_params(batch_size=rows)
    for jobs, end, options in ((1, "csv", {}), (3, "csv", {"top": 2, "threshold": 0.6}), (2, "jsonl", {"top": 9})):
        done = model.predict_to_file(new, f"out.{end}", jobs=jobs, overwrite=True, **options)
        assert Path(f"out.{end}").read_bytes() == at_once(model, new, f"held{jobs}.{end}", **options)
        assert (done.n, done.resumed, len(done.skipped)) == (23, 0, 4)
    assert not list(Path().glob("*.partial"))
    model.set_params(batch_size=None)


def test_parquet_has_the_same_rows_and_types_in_groups(models, new, monkeypatch):
    monkeypatch.setattr(row_files, "GROUP", 10)
    parquet = pytest.importorskip("pyarrow.parquet")
    models["head"].predict_to_file(new, "out.parquet", top=2, threshold=0.6)
    at_once(models["head"], new, "held.parquet", top=2, threshold=0.6)
    assert rows_of("out.parquet") == rows_of("held.parquet")
    assert parquet.read_schema("out.parquet") == parquet.read_schema("held.parquet")


def test_a_manifest_and_several_paths(models, new):
    Path("list.csv").write_text("path,label\nnew/a/1.png,blue\nnew/b/1.png,\nnew/absent.png,red\n")
    models["head"].predict_to_file(["list.csv", new / "c" / "0.png"], "out.jsonl")
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [(r["path"], r["given"]) for r in rows] == [
        ("new/a/1.png", "blue"),
        ("new/b/1.png", None),
        ("new/absent.png", "red"),
        ("new/c/0.png", None),
    ]
    assert "No such file" in rows[2]["note"]


# --- interrupted and resumed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["head", "LQF, two classes"])
def test_an_interrupted_run_continues_where_it_stopped(models, new, kind, monkeypatch):
    model = models[kind]
    model.set_params(batch_size=6)
    per_part = 6 // model.fitted_.preprocess.n_views
    wanted = at_once(model, new, "held.csv", top=2)
    with pytest.raises(KeyboardInterrupt, match=r"interrupted; .* of 27 images are predicted and kept in `out.csv"):
        model.predict_to_file(new, "out.csv", top=2, progress=Interrupting("predicting", 2))
    assert not Path("out.csv").exists()
    with open("out.csv.partial", "a") as file:
        file.write('{"path": "new/b/2.png", "siz')  # killed while it wrote
    seen, recorder = Decoded(monkeypatch), Recorder()
    done = model.predict_to_file(new, "out.csv", top=2, resume=True, progress=recorder)
    assert Path("out.csv").read_bytes() == wanted
    assert not Path("out.csv.partial").exists()
    assert done.resumed > 0
    assert done.resumed % per_part == 0
    assert done.n == 23
    assert len(seen.names) == 27 - done.resumed
    assert recorder.said[0] == f"{done.resumed} of 27 images are predicted already"
    assert recorder.stages == [("predicting", 27 - done.resumed, 27 - done.resumed)]
    model.set_params(batch_size=None)


def test_wherever_the_file_was_cut_the_rows_are_the_same(models, new, monkeypatch):
    model = models["head"]
    model.set_params(batch_size=8)
    wanted = at_once(model, new, "held.csv")
    recorder = Recorder()
    with monkeypatch.context() as patch:
        patch.setattr(row_files, "write_table", broken)
        with pytest.raises(OSError, match="disk full"):
            model.predict_to_file(new, "out.csv", progress=recorder)
    assert "23 of 27 images are predicted and kept in `out.csv.partial`" in recorder.said[-1]
    whole = Path("out.csv.partial").read_bytes()
    for cut in (0, 20, whole.index(b"\n") + 1, len(whole) // 3, len(whole) - 1, len(whole)):
        Path("out.csv.partial").write_bytes(whole[:cut])
        done = model.predict_to_file(new, "out.csv", resume=True, overwrite=True)
        assert Path("out.csv").read_bytes() == wanted
        assert done.resumed == 4 * (whole[:cut].count(b"ranked") // 4) if cut > len(whole) // 2 else done.resumed <= 8
    model.set_params(batch_size=None)


def broken(*args: object, **kwargs: object) -> None:
    raise OSError("disk full")


def test_changed_new_and_missing_files_are_seen(models, new, monkeypatch):
    model = models["head"]
    model.set_params(batch_size=4)
    with pytest.raises(KeyboardInterrupt):
        model.predict_to_file(new, "out.csv", progress=Interrupting("predicting", 7))
    shutil.copy(new / "c" / "1.png", new / "a" / "1.png")  # another picture in its place
    shutil.copy(new / "c" / "2.png", new / "a" / "11.png")  # a new one
    shutil.copy(new / "c" / "3.png", new / "a" / "3.5.png")  # one that was damaged
    (new / "a" / "4.png").unlink()
    seen = Decoded(monkeypatch)
    done = model.predict_to_file(new, "out.csv", resume=True)
    assert {"new/a/1.png", "new/a/11.png", "new/a/3.5.png"} < set(seen.names)
    assert "new/a/0.png" not in seen.names
    assert done.resumed == 14 - 2
    fresh = model.predict_to_file(new, "fresh.csv")
    assert (done.n, done.skipped) == (fresh.n, fresh.skipped)
    one, other = (pytest.importorskip("pandas").read_csv(f) for f in ("out.csv", "fresh.csv"))
    assert one.drop(columns="probability").equals(other.drop(columns="probability"))
    np.testing.assert_allclose(one.probability, other.probability, atol=1e-6)
    model.set_params(batch_size=None)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"top": 2}, r"other options \(top 1, now 2\)"),
        ({"threshold": 0.7}, r"other options \(threshold none, now 0.7\)"),
        ({"batch_size": 8}, r"other options \(batch size 4, now 8\)"),
        ({"model": "LQF, two classes"}, "predictions of another model"),
    ],
)
def test_another_model_and_other_options_do_not_continue(models, new, change, sentence):
    models["head"].set_params(batch_size=4)
    with pytest.raises(KeyboardInterrupt):
        models["head"].predict_to_file(new, "out.csv", progress=Interrupting("predicting", 3))
    before = Path("out.csv.partial").read_bytes()
    model = models[change.pop("model", "head")]
    model.set_params(batch_size=change.pop("batch_size", 4))
    with pytest.raises(LQFError, match=sentence):
        model.predict_to_file(new, "out.csv", resume=True, **change)
    assert Path("out.csv.partial").read_bytes() == before
    for each in models.values():
        each.set_params(batch_size=None)


def test_what_was_interrupted_is_not_lost_by_forgetting_resume(models, new):
    with pytest.raises(KeyboardInterrupt):
        models["head"].predict_to_file(new, "out.csv", progress=Interrupting("predicting", 1))
    with pytest.raises(LQFError, match="resume=True continues it, overwrite=True begins again"):
        models["head"].predict_to_file(new, "out.csv")
    assert models["head"].predict_to_file(new, "out.csv", overwrite=True).resumed == 0
    Path("two.csv.partial").write_text("my notes\n")
    with pytest.raises(LQFError, match="does not have the predictions of an interrupted run"):
        models["head"].predict_to_file(new, "two.csv", resume=True)
    assert Path("two.csv.partial").read_text() == "my notes\n"
    Path("three.csv.partial").mkdir()
    with pytest.raises(LQFError, match="cannot be read"):
        models["head"].predict_to_file(new, "three.csv", resume=True)


def test_what_another_run_wrote_meanwhile_is_not_taken_for_this_one(models, new, monkeypatch):
    def elsewhere(*args: object) -> list[int]:
        return [place + 1 for place in add(*args)]

    add = Unfinished.add
    monkeypatch.setattr(Unfinished, "add", elsewhere)
    with pytest.raises(LQFError, match="was changed while it was in use"):
        models["head"].predict_to_file(new, "out.csv")
    assert not Path("out.csv").exists()


def test_two_runs_do_not_write_one_file(models, new):
    with pytest.raises(KeyboardInterrupt):
        models["head"].predict_to_file(new, "out.csv", progress=Interrupting("predicting", 1))
    before = Path("out.csv.partial").read_bytes()
    with Path("out.csv.partial").open("r+b") as other:
        pytest.importorskip("fcntl").flock(other, 2)
        for how in ({"resume": True}, {"overwrite": True}):
            with pytest.raises(LQFError, match=r"partial` is being written by another run; wait for it"):
                models["head"].predict_to_file(new, "out.csv", **how)
        assert Path("out.csv.partial").read_bytes() == before
    assert models["head"].predict_to_file(new, "out.csv", resume=True).resumed > 0


def test_without_anything_to_resume_it_begins(models, new):
    recorder = Recorder()
    assert models["head"].predict_to_file(new, "out.csv", resume=True, progress=recorder).n == 23
    assert recorder.said[0] == "there is no `out.csv.partial`; starting from the beginning"
    with pytest.raises(LQFError, match="exists"):
        models["head"].predict_to_file(new, "out.csv", resume=True)


# --- memory, threads, bad input ---------------------------------------------------------------------------------------


def test_the_number_of_pictures_held_does_not_grow_with_the_folder(models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, most = models["head"], []
    model.set_params(batch_size=4)  # two images in two views
    for per_class in (6, 24):
        folder, seen = photos(Path(f"new{per_class}"), per_class, seed=5), Decoded(monkeypatch)
        gc.collect()
        model.predict_to_file(folder, f"{per_class}.csv", jobs=2)
        assert len(seen.names) == 2 * per_class
        most.append(seen.most)
    assert max(most) <= 2 * 2 + 2 + 2 + 2  # two parts; what is read ahead: a part, and one more for every thread
    model.set_params(batch_size=None)


@pytest.mark.parametrize("jobs", [0, -1])
def test_no_thread_is_refused(models, new, jobs):
    with pytest.raises(LQFError, match="give 1 or more"):
        models["head"].predict_to_file(new, "out.csv", jobs=jobs)


def test_where_nothing_can_be_read_or_strict_refuses_nothing_is_written(models, new):
    with pytest.raises(LQFError, match="4 of 27 images in `new` cannot be used"):
        models["head"].predict_to_file(new, "out.csv", strict=True)
    with pytest.raises(LQFError, match="2 of 2 images"):
        models["head"].predict_to_file([new / "a" / "00.png", "absent.jpg"], "out.csv")
    with pytest.raises(LQFError, match="does not end in"):
        models["head"].predict_to_file(new, "out.xlsx")
    assert os.listdir() == ["new"]


def test_outputs_that_are_not_finite_and_models_that_did_not_converge_are_named(models, new):
    head = models["head"].fitted_
    endless = models["head"].with_model(replace(head, head=head.head * np.inf))
    with pytest.raises(LQFError, match="finite"):
        endless.predict_to_file(new, "out.csv")
    assert os.listdir() == ["new"]
    unsolved = replace(head, report=replace(head.report, converged=False))
    stopped, recorder = models["head"].with_model(unsolved), Recorder()
    stopped.predict_to_file(new, "out.csv", progress=recorder)
    assert "did not reach its optimum" in recorder.said[0]


def test_a_saved_model_is_the_same_model_and_any_change_makes_another(models, tmp_path):
    small_network.register()
    for kind in ("head", "stack"):
        models[kind].save(tmp_path / kind)
        assert identity(LQFClassifier.load(tmp_path / kind).fitted_) == identity(models[kind].fitted_)
    small_network.forget()
    assert len({identity(model.fitted_) for model in models.values()}) == 3
    head = models["head"].fitted_
    changed = [replace(head, beta=2 * head.beta), replace(head, head=head.head + 1e-6), replace(head, constant=0.1)]
    assert len({identity(m) for m in (head, *changed)}) == 4
