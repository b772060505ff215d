"""What the label of a quick answer says about its worth: measured on the model, kept with it, never another's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import lqf
from fits import FIXED, convnet, photos
from lqf import LQFClassifier
from lqf.analysis.quick_worth import FILE, correlations
from recorder import Recorder

UNMEASURED = "was not measured on this model (quick=False does); with EfficientNet-Lite0, 20 flowers"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos, and a model of them."""
    place = tmp_path_factory.mktemp("quick")
    photos(place / "photos", 6)
    fitted(place).save(place / "run")
    return place


def fitted(place: Path, **options: Any) -> LQFClassifier:
    given = {"solver": "pcg", "size": 8, "tol": 0.1, "dtype": "float64", "device": "cpu", "verbose": 0, **FIXED}
    return LQFClassifier(convnet(), **given | options).fit(place / "photos")


def opened(run: Path, said: Recorder | None = None) -> Any:
    model = lqf.load(run, backbone=convnet(), device="cpu", verbose=0)
    return model.analyse(progress=said or Recorder())


def asked(place: Path) -> list[str]:
    return [str(p) for p in sorted((place / "photos").glob("*/*"))[::4]]


def test_correlations_are_those_of_every_column() -> None:
    a, b = torch.randn(2, 9, 3, dtype=torch.float64)
    expected = [float(torch.corrcoef(torch.stack(pair))[0, 1]) for pair in zip(a.T, b.T, strict=True)]
    torch.testing.assert_close(correlations(a, b), torch.tensor(expected, dtype=torch.float64))


def test_a_label_says_that_nothing_was_measured_and_then_what_was(folder: Path, tmp_path: Path) -> None:
    run = shutil.copytree(folder / "run", tmp_path / "run")
    analysis, images = opened(run), asked(folder)
    assert UNMEASURED in analysis.contrast(images, quick=True).note
    assert not (run / FILE).exists()
    queries = analysis.queries(images)
    quick, exact = (analysis.contrast(queries, quick=q) for q in (True, False))
    analysis.contrast(queries)  # known already: it measures nothing anew
    found = correlations(quick.effects, exact.effects)
    kept = json.loads((run / FILE).read_text())
    assert kept["correlations"] == pytest.approx(found.tolist(), abs=1e-12)
    said = f"its correlation with exact answers of this model was {float(found.median()):.2f} ({len(found)} images"
    assert said in analysis.contrast(images, quick=True).note
    assert said in opened(run).contrast(images[0], quick=True).note  # on another day


def test_what_belongs_to_another_model_is_not_taken_for_this_one_s(folder: Path, tmp_path: Path) -> None:
    run = shutil.copytree(folder / "run", tmp_path / "run")
    (run / FILE).write_text(json.dumps({"of": "0" * 64, "correlations": [0.5]}))
    said = Recorder()
    assert UNMEASURED in opened(run, said).contrast(asked(folder)[0], quick=True).note
    assert said.said == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"of": "HASH"}', '{"of": "HASH", "correlations": [7]}'])
def test_a_damaged_file_is_said_and_measured_again(content: str, folder: Path, tmp_path: Path) -> None:
    run = shutil.copytree(folder / "run", tmp_path / "run")
    of = json.loads((run / "model.json").read_text())["questions"]["sha256"]
    (run / FILE).write_text(content.replace("HASH", of))
    said = Recorder()
    analysis = opened(run, said)
    assert UNMEASURED in analysis.contrast(asked(folder)[0], quick=True).note
    assert "measured again" in said.said[0]
    analysis.contrast(asked(folder)[:2])
    assert len(json.loads((run / FILE).read_text())["correlations"]) == 2


def test_a_folder_that_takes_no_file_is_said_once_and_the_answer_stands(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(folder / "run", tmp_path / "run")

    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("lqf.analysis.quick_worth.write_file", refuse)
    said = Recorder()
    analysis = opened(run, said)
    assert analysis.contrast(asked(folder)).effects.isfinite().all()
    assert "cannot be written (Permission denied)" in said.said[0]
    assert "of this model was" in analysis.contrast(asked(folder)[0], quick=True).note


def test_a_model_in_memory_measures_and_keeps_no_file(folder: Path) -> None:
    analysis = fitted(folder, keep_for_questions="none").analyse()
    analysis.contrast(asked(folder))
    assert "of this model was" in analysis.contrast(asked(folder)[0], quick=True).note
    assert analysis.method.quick_worth.place is None
