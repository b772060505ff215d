"""An exported model gives the model's own probabilities, whatever the model is and whoever runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fits import classifier, convnet, data, pictures
from lqf import LQFClassifier, LQFError
from lqf.data import load_unlabelled, preprocess
from lqf.export import export, files, sample_inputs
from lqf.export.module import ExportedModel
from stacks import stacked

SMALL: dict[str, Any] = {"backbone": convnet(), "size": 8}


def fitted(**settings: Any) -> LQFClassifier:
    return classifier(**SMALL, **settings).fit(*pictures(12))


def difference(model: LQFClassifier, module: ExportedModel, x: list[Any]) -> float:
    """Largest one of a probability."""
    images = model.open(load_unlabelled(x, tensors=model.fitted_.setup.tensors))

    def run(inputs: torch.Tensor, windows: torch.Tensor) -> torch.Tensor:
        return module(inputs, windows)[0]

    return files.largest_difference(model.fitted_, run, module, images)


@pytest.mark.parametrize(
    "settings",
    [
        {"views": "flip"},
        {"views": "crops4", "squash": True},
        {"solver": "head", "pooling": "both", "views": "ten"},
        {"linearize": "deep", "pooling": "bilinear"},
        {"form": "w0", "dtype": "float32"},
    ],
    ids=str,
)
def test_as_module(settings: dict[str, Any]) -> None:
    model = fitted(**settings)
    module = model.as_module()
    enough = 1e-5 if "dtype" in settings else 1e-10
    assert difference(model, module, sample_inputs(model.fitted_)) < enough
    assert not module.training
    assert not any(p.requires_grad for p in module.parameters())
    assert module.classes == tuple(str(c) for c in model.classes_)


def test_two_classes_and_normalised_tensors() -> None:
    x, y = data(14, 2)
    model = classifier().fit(x, y)
    assert difference(model, model.as_module(), list(x[:5])) < 1e-12


def test_a_stack() -> None:
    models = {name: fitted(views=views) for name, views in (("one", "flip"), ("other", "crops3"))}
    model = models["one"]
    model._adopt(stacked(models, (0.7, 0.3)))
    module = model.as_module()
    assert len(module.drawn) == 1
    assert difference(model, module, sample_inputs(model.fitted_)) < 1e-10


@pytest.fixture(scope="module")
def small() -> LQFClassifier:
    return fitted(dtype="float32", views="flip")


@pytest.mark.parametrize("suffix", files.SUFFIXES)
def test_files(small: LQFClassifier, tmp_path: Path, suffix: str) -> None:
    if suffix == ".onnx":
        pytest.importorskip("onnxscript")
        pytest.importorskip("onnxruntime")
    path = tmp_path / f"model{suffix}"
    written = small.export(path)
    assert written.difference < 1e-5
    assert written.images == 5
    assert written.bytes == path.stat().st_size
    about = {"classes": ["0", "1", "2"], "difference": written.difference, "images": 5}
    assert about.items() <= _about(path).items()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    with pytest.raises(LQFError, match="exists"):
        small.export(path)


def _about(path: Path) -> dict[str, Any]:
    if path.suffix == ".onnx":
        import onnx

        return json.loads({p.key: p.value for p in onnx.load(path).metadata_props}["lqf"])
    extra = {"lqf.json": ""}
    torch.export.load(path, extra_files=extra)
    return json.loads(extra["lqf.json"])


def test_what_is_not_the_model_is_not_written(
    small: LQFClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_graph", lambda path: lambda x, windows: torch.full((len(x), 3), 1 / 3).double())
    with pytest.raises(LQFError, match=r"is not the model: .* nothing was written"):
        small.export(tmp_path / "model.pt2")
    assert not [*tmp_path.iterdir()]


def test_words_for_bad_input(small: LQFClassifier, tmp_path: Path) -> None:
    with pytest.raises(LQFError, match=r"does not end in \.onnx or \.pt2"):
        small.export(tmp_path / "model.h5")
    images = small.open(load_unlabelled([np.zeros((9, 9, 3), np.uint8)]))
    (tmp_path / "here.pt2").write_text("mine")
    with pytest.raises(LQFError, match="exists"):
        export(small.fitted_, tmp_path / "here.pt2", images)


def test_the_first_capture_of_a_process_leaves_nothing_of_itself_behind(tmp_path: Path) -> None:
    """Numbers that pictures are normalised by are kept; those of a capture are none."""
    model = fitted(dtype="float32", views="none")
    images = model.open(load_unlabelled(sample_inputs(model.fitted_)))
    before = model.predict_proba(sample_inputs(model.fitted_))
    preprocess._per_channel.cache_clear()
    assert files.export(model.fitted_, tmp_path / "model.pt2", images).difference < 1e-5
    np.testing.assert_array_equal(model.predict_proba(sample_inputs(model.fitted_)), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_in_another_type(dtype: torch.dtype) -> None:
    module = fitted(views="flip").as_module()
    seen = torch.randint(0, 256, (4, 3, 11, 9), dtype=torch.uint8)
    exact = module(seen)[0]
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        assert torch.allclose(module(seen)[0].double(), exact, atol=0.05)
    narrow, outputs = module.to(dtype)(seen)
    assert outputs.dtype == dtype
    assert torch.allclose(narrow.double(), exact, atol=1e-5 if dtype == torch.float32 else 0.05)


def test_windows_that_are_missing_are_asked_for() -> None:
    module = fitted(views="crops4").as_module()
    with pytest.raises(LQFError, match=r"give their windows as well: module\(pictures, module\.windows"):
        module(torch.zeros(2, 3, 9, 9, dtype=torch.uint8))
