"""What a fit knew: answers from it are those computed again, without a pass; where it is gone, nothing is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fits import classifier, convnet, photos
from lqf import LQFClassifier, storage
from lqf.data.unread import UnreadImages
from lqf.errors import LQFError
from lqf.fitting import knowledge
from lqf.fitting.encoder import Encoder
from recorder import Recorder

FITS: dict[str, dict[str, Any]] = {
    "head": {"solver": "head", "views": "flip"},
    "head, both poolings": {"solver": "head", "pooling": "both", "pool_channels": 3},
    "dense": {"solver": "dense", "views": "flip"},
    "dense, stages": {"solver": "dense", "strengths": "stages"},
    "dense, both poolings": {"solver": "dense", "pooling": "both", "pool_channels": 3},
    "dense, from a stage on": {"solver": "dense", "linearize": "deep"},
    "dense, one head": {"solver": "dense", "head": "probe"},
    "pcg": {"solver": "pcg", "loo": "none", "tol": 1e-6, "weight_decay": 1.0, "body_weight_decay": 3.0},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    photos(root / "train", 5, classes=("blue", "green", "red"))
    photos(root / "new", 2, seed=9, classes=("blue", "green", "red"))
    return root


def fitted(folder: Path, **settings: Any) -> LQFClassifier:
    given: dict[str, Any] = {"backbone": convnet(), "size": 32, "pooling": "avg", "views": "none"} | settings
    return classifier(**given).fit(folder / "train")


def answers(model: LQFClassifier, new: Path) -> dict[str, Tensor]:
    analysis = model.analyse()
    queries = analysis.queries(new)
    found = {
        "influence": analysis.influence(queries).value,
        "what if": analysis.what_if(queries, without=[0, 3], relabel={1: model.classes_[2]}).value,
        "similarity": analysis.similarity().matrix,
        "leave-one-out": analysis.leave_one_out().outputs,
        "information": analysis.information().value,
        "leaving": analysis.leaving().double(),
    }
    return {name: value.double() for name, value in found.items()}


@pytest.mark.parametrize("name", FITS)
def test_answers_are_those_that_are_computed_again(name: str, folder: Path, tmp_path: Path) -> None:
    model = fitted(folder, **FITS[name])
    model.save(tmp_path / "run")
    assert (tmp_path / "run" / storage.QUESTIONS).exists()
    kept = answers(LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu"), folder / "new")
    without = fitted(folder, **FITS[name], keep_for_questions="none")
    again = answers(without, folder / "new")
    for what, value in again.items():
        tol = 1e-5 if (name, what) == ("pcg", "what if") else 1e-9  # a solve that stops early keeps no rounding small
        assert torch.allclose(kept[what], value, rtol=tol, atol=tol * float(value.abs().max())), what
        assert float(value.abs().max()) > 0


class Passes:
    """Counts features that are computed for training rows, kernels that are made, and pictures that are decoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.seen: list[str] = []
        features = Encoder.features
        monkeypatch.setattr(Encoder, "features", lambda *a, **k: (self.seen.append("features"), features(*a, **k))[1])
        import lqf.fitting.training_problem as training_problem

        kernels = training_problem.exact_kernels
        monkeypatch.setattr(
            training_problem, "exact_kernels", lambda *a, **k: (self.seen.append("kernels"), kernels(*a, **k))[1]
        )


@pytest.mark.parametrize("name", ["head", "head, both poolings", "dense", "dense, stages"])
def test_an_audit_takes_no_pass_over_the_data(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted(folder, **FITS[name]).save(tmp_path / "run")
    model = LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu")
    passes = Passes(monkeypatch)
    assert len(model.audit().suspects) == 15
    assert passes.seen == []
    assert model.analysis_ is not None
    images = model.analysis_.images
    assert isinstance(images, UnreadImages)
    assert images.pixels.opened is None


def test_a_head_explains_without_a_pass_over_the_training_images(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, passes = fitted(folder, **FITS["head"]), Passes(monkeypatch)
    model.influence(folder / "new")
    images = model.analysis_.images
    assert isinstance(images, UnreadImages)
    assert (passes.seen, images.pixels.opened) == ([], None)


@pytest.mark.parametrize("damage", ["gone", "bits", "cut"])
def test_what_cannot_be_read_is_computed_again_with_one_line(damage: str, folder: Path, tmp_path: Path) -> None:
    fitted(folder, **FITS["dense"]).save(tmp_path / "run")
    file = tmp_path / "run" / storage.QUESTIONS
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.unlink() if damage == "gone" else file.write_bytes(content if damage == "bits" else content[:100])
    model, said = LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu"), Recorder()
    expected = fitted(folder, **FITS["dense"]).influence(folder / "new").value
    found = model.analyse(progress=said).influence(folder / "new").value
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert len([s for s in said.said if "computed again" in s]) == 1


def test_what_is_too_large_is_not_kept(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(knowledge.LIMITS, "auto", 1000)
    model = fitted(folder, **FITS["dense"])
    assert isinstance(model.fitted_.known, knowledge.NotKept)
    assert model.fitted_.known.bytes > 1000
    model.save(tmp_path / "run")
    assert not (tmp_path / "run" / storage.QUESTIONS).exists()
    loaded = LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu")
    assert loaded.fitted_.known == model.fitted_.known
    everything = fitted(folder, **FITS["dense"], keep_for_questions="all")
    assert isinstance(everything.fitted_.known, knowledge.Knowledge)


def test_a_loaded_model_keeps_it_when_it_is_saved_again(folder: Path, tmp_path: Path) -> None:
    fitted(folder, **FITS["dense"]).save(tmp_path / "run")
    loaded = LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu")
    loaded.save(tmp_path / "copy")
    loaded.save(tmp_path / "run", overwrite=True)
    for name in ("copy", "run"):
        again = LQFClassifier.load(tmp_path / name, backbone=convnet(), device="cpu").fitted_.known
        assert again is not None
        assert again.read(lambda _: None) is not None


def test_predictions_do_not_read_it(folder: Path, tmp_path: Path) -> None:
    fitted(folder, **FITS["head"]).save(tmp_path / "run")
    (tmp_path / "run" / storage.QUESTIONS).write_bytes(b"")
    model = LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu")
    assert len(model.predict(folder / "new")) == 6


def test_images_that_changed_are_refused_before_their_pixels_are_asked_for(folder: Path, tmp_path: Path) -> None:
    photos(tmp_path / "train", 4)
    model = classifier(backbone=convnet(), size=32, solver="head", pooling="avg").fit(tmp_path / "train")
    changed = tmp_path / "train" / "blue" / "1.png"
    changed.write_bytes(changed.read_bytes() + b"0")
    with pytest.raises(LQFError, match=r"1 image of .* changed since the model was fitted: `blue/1.png`"):
        model.analyse()


def test_tensors_are_known_too() -> None:
    from fits import data

    x, y = data()
    model = classifier().fit(x, y)
    known = model.analyse(x).influence(x[:2]).value
    again = classifier(keep_for_questions="none").fit(x, y).analyse(x).influence(x[:2]).value
    assert torch.allclose(known, again, rtol=1e-9, atol=1e-12)
