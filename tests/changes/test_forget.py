"""Forgetting: the certificate, what is left in the folder, what cannot be forgotten."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fits import classifier, convnet, photos
from lqf import LQFClassifier
from lqf.errors import LQFError
from lqf.fitting.encoder import Encoder
from lqf.kernels import gram

CLASSES = ("blue", "green", "red")
FITS: dict[str, dict[str, Any]] = {
    "head": {"solver": "head", "views": "flip"},
    "dense": {"solver": "dense"},
    "dense, stages": {"solver": "dense", "strengths": "stages"},
    "dense, both poolings": {"solver": "dense", "pooling": "both", "pool_channels": 3},
    "dense, moved": {"solver": "dense", "relinearize": 1},
    "pcg": {"solver": "pcg", "loo": "none", "linearize": "deep", "size": 12, "tol": 2e-3, "max_passes": 200},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    photos(root / "train", 5, classes=CLASSES)
    photos(root / "new", 2, seed=9, classes=CLASSES)
    return root


def fitted(train: Path, **settings: Any) -> LQFClassifier:
    given: dict[str, Any] = {"backbone": convnet(), "size": 32, "pooling": "avg", "views": "none"} | settings
    return classifier(**given).fit(train)


@pytest.mark.parametrize("name", FITS)
def test_nothing_of_what_was_forgotten_is_left_in_the_folder(name: str, folder: Path, tmp_path: Path) -> None:
    train = tmp_path / "train"
    shutil.copytree(folder / "train", train)
    gone = [train / "green" / "1.png", train / "red" / "4.png"]
    for old, secret in zip(gone, ("whisper", "murmur"), strict=True):
        old.rename(old.with_stem(secret))
    model = fitted(train, **FITS[name])
    ids = ["green/whisper.png", "red/murmur.png"]
    known = model.fitted_.known.read(lambda _: None)
    views = model.fitted_.trained_on.n_views
    rows = [views * model.fitted_.train.ids.index(i) for i in ids]
    traces = [known["features"][row].numpy().tobytes() for row in rows]
    for i in ids:
        content = (train / i).read_bytes()
        traces += [i.encode(), Path(i).stem.encode(), hashlib.sha256(content).hexdigest().encode()]
        traces.append(hashlib.sha256(i.encode()).hexdigest().encode())
    run = tmp_path / "run"
    model.save(run)
    assert _found(run, traces) >= len(ids) * 3
    for i in ids:
        (train / i).unlink()  # forgetting does not need them
    loaded = LQFClassifier.load(run, backbone=convnet(), device="cpu")
    certificate = loaded.forget(ids, verify=True)
    loaded.save(run, overwrite=True)
    assert _found(run, traces) == 0
    assert certificate.difference <= (0.05 if name == "pcg" else 1e-9) * certificate.scale
    again = LQFClassifier.load(run, backbone=convnet(), device="cpu")
    assert np.array_equal(again.decision_function(folder / "new"), loaded.decision_function(folder / "new"))
    assert len(again.analyse().ids) == 13
    assert again.analyse().influence(folder / "new").value.isfinite().all()


@pytest.mark.parametrize("strict", [False, True])
def test_saved_onto_its_folder_it_leaves_no_trace_beside_it(strict: bool, folder: Path, tmp_path: Path) -> None:
    train = tmp_path / "data" / "train"
    shutil.copytree(folder / "train", train)
    (train / "green" / "1.png").rename(train / "green" / "whisper.png")
    run, other = tmp_path / "models" / "run", tmp_path / "models" / "run2"
    model = fitted(train, solver="head")
    model.save(run)
    shutil.copytree(run, other)
    traces = [b"whisper", hashlib.sha256((train / "green" / "whisper.png").read_bytes()).hexdigest().encode()]
    shutil.copytree(run, run.with_name(".run.old.ab12cd_3"))
    shutil.copytree(run, run.with_name(".run.new.ab12cd_3") / "new")
    shutil.copy(run / "samples.csv", run.with_name("run.checkpoint"))
    shutil.copy(run / "samples.csv", run.with_name(".run.checkpoint.xyz"))
    loaded = LQFClassifier.load(run, backbone=convnet(), device="cpu")
    loaded.forget(["green/whisper.png"], strict=strict)
    loaded.save(tmp_path / "models" / "elsewhere")
    assert {p.name for p in run.parent.iterdir()} > {"run.checkpoint", ".run.old.ab12cd_3"}
    loaded.save(run, overwrite=True)
    shutil.rmtree(other)  # a model of another name is nobody's trace
    assert _found(run.parent, traces) == 0
    assert {p.name for p in run.parent.iterdir()} == {"run", "elsewhere"}


def test_what_was_not_forgotten_stays_beside_a_folder(folder: Path, tmp_path: Path) -> None:
    model = fitted(folder / "train", solver="head")
    kept = tmp_path / "run.checkpoint"
    kept.write_bytes(b"of an interrupted fit")
    model.save(tmp_path / "run")
    model.save(tmp_path / "run", overwrite=True)
    assert kept.exists()
    model.forget(["green/1.png"])
    model.fit(folder / "train").save(tmp_path / "run", overwrite=True)
    assert kept.exists()


def _found(run: Path, traces: list[bytes]) -> int:
    """How many of the traces are in some file of the folder, its name included."""
    content = b"\n".join(str(p).encode() + (p.read_bytes() if p.is_file() else b"") for p in run.rglob("*"))
    return sum(trace in content for trace in traces)


def test_what_was_known_of_the_others_is_not_computed_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted(folder / "train", solver="dense")

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(Encoder, "features", refuse)
    monkeypatch.setattr(gram, "body_kernels", refuse)
    model.forget(["blue/0.png"])
    assert model.report_["n"] == 14


def test_certificate_is_the_residual_on_what_remains(folder: Path) -> None:
    model = fitted(folder / "train", solver="dense")
    certificate = model.forget(["blue/0.png", "red/3.png"])
    problem = model.analyse().problem
    v = model.fitted_.head.reshape(-1)
    delta = torch.cat([v, model.fitted_.delta])
    residual = float(problem.quadratic.negative_gradient(delta).norm())
    assert certificate.residual == pytest.approx(residual, rel=1e-3, abs=1e-9)
    assert certificate.bound == pytest.approx(certificate.residual / problem.ridge.lowest)
    assert certificate.forgotten == tuple(sorted(hashlib.sha256(i.encode()).hexdigest() for i in _ids()))
    assert "linearisation point" in certificate.depends_on
    assert "not yet a deletion" in certificate.statement
    assert certificate.to_dict()["members"][0]["fate"] == "solved again"


def _ids() -> list[str]:
    return ["blue/0.png", "red/3.png"]


@pytest.mark.parametrize("name", ["head", "dense"])
def test_strict_is_a_fit_that_never_saw_them(name: str, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "train", tmp_path / "train")
    model = fitted(tmp_path / "train", **FITS[name])
    certificate = model.forget(_ids(), strict=True)
    assert certificate.depends_on == ()
    for i in _ids():
        (tmp_path / "train" / i).unlink()
    never = fitted(tmp_path / "train", **FITS[name])
    new = folder / "new"
    assert np.array_equal(model.predict_proba(new), never.predict_proba(new))
    assert model.fitted_.train.ids == never.fitted_.train.ids


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"ids": ["blue/0.png", "nobody.png"]}, "`nobody.png` is not the id of a training sample"),
    "a whole class": ({"where": ("label", "red")}, "these are all samples of `red`"),
    "two ways": ({"ids": ["blue/0.png"], "group": "g"}, "ids and group were given"),
    "no way": ({}, "nothing was said"),
    "none": ({"ids": []}, "names no sample"),
    "no groups": ({"group": "g"}, "fitted without groups"),
    "no such column": ({"where": ("colour", "red")}, "`colour` is no column"),
    "no such value": ({"where": ("label", "mauve")}, "no training sample has label=mauve"),
    "strict and verify": ({"ids": ["blue/0.png"], "strict": True, "verify": True}, "strict fits everything again"),
    "nothing to retrain": ({"ids": ["blue/0.png"], "retrain": True}, "this model has none"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_forgotten_is_said_and_changes_nothing(name: str, folder: Path) -> None:
    model = fitted(folder / "train", solver="head")
    before, (given, sentence) = model.fitted_, BAD[name]
    with pytest.raises(LQFError, match=sentence):
        model.forget(**given)
    assert model.fitted_ is before


def test_a_sum_of_models_has_no_samples_to_forget(folder: Path) -> None:
    model = fitted(folder / "train", solver="head")
    with pytest.raises(LQFError, match="change the model that it was made from"):
        (0.5 * model).forget(["blue/0.png"])


def test_by_a_column_of_the_manifest_and_by_group(folder: Path) -> None:
    rows = [
        f"{p.relative_to(folder)},{p.parent.name},{p.stem},site{int(p.stem) % 2}"
        for p in sorted((folder / "train").rglob("*.png"))
    ]
    manifest = folder / "list.csv"
    manifest.write_text("\n".join(["path,label,group,site", *rows]))
    model = fitted(manifest, solver="head")
    assert len(model.forget(where=("site", "site1")).forgotten) == 6
    assert {i.split("/")[-1] for i in model.fitted_.train.ids} == {"0.png", "2.png", "4.png"}
    assert len(model.forget(group="4").forgotten) == 3
