"""What is written as a manifest is read back as it was."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lqf.data import load_samples
from lqf.data.manifests import manifest_text, sample_row, without_manifest
from lqf.data.sources import FileSource
from lqf.errors import LQFError


def test_paths_labels_weights_and_groups_come_back(tree, monkeypatch, tmp_path):
    root = tree({'say "cheese", please/1.png': 0, "b/2 é.png": 1, "b/3.png": 2})
    weights, groups = [0.1, 2.0, 1 / 3], ["g", "g", "b/3.png"]
    monkeypatch.chdir(tmp_path)
    samples = load_samples("photos", sample_weight=weights, groups=groups)
    rows = [sample_row(samples, i) | {"note": i} for i in range(3)]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "list.csv").write_text(manifest_text(samples, rows, ["note"]), newline="")
    monkeypatch.chdir("/")
    again = load_samples(tmp_path / "elsewhere" / "list.csv")
    assert again.classes == samples.classes
    assert again.labels.tolist() == samples.labels.tolist()
    assert again.weights.tolist() == samples.weights.tolist()
    assert again.groups == samples.groups
    assert again.source.paths == tuple(root / name for name in samples.ids)


def test_a_row_may_have_another_label_and_only_what_there_is(tree):
    samples = load_samples(tree({"a/1.png": 0, "b/2.png": 1}))
    assert sample_row(samples, 1, "a")["label"] == "a"
    assert set(sample_row(samples, 0)) == {"index", "id", "path", "label", "weight"}
    header = next(csv.reader(io.StringIO(manifest_text(samples, []))))
    assert header == ["path", "label", "weight"]


def test_arrays_are_in_no_manifest():
    samples = load_samples(np.zeros((2, 4, 4, 3), np.uint8), ["a", "b"])
    assert sample_row(samples, 1) == {"index": 1, "id": "1", "label": "b", "weight": 1.0}
    with pytest.raises(LQFError, match="the array has no image files, which a manifest names"):
        manifest_text(samples, [])


def test_a_name_that_is_no_text_is_named(tree):
    samples = load_samples(tree({"a/1.png": 0, "b/2.png": 1}))
    assert without_manifest(samples) == ""
    odd = replace(samples, source=FileSource("`photos`", (Path("a/1.png"), Path("caf\udce9/2.png"))))
    assert without_manifest(odd) == "the name of `b/2.png` is not UTF-8, which a manifest is; rename the file"
