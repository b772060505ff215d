"""An audit finds what was planted, and its folder is written whole or not at all."""

import csv
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from audited import COPY, TURNED
from fits import classifier, data
from lqf.analysis.audit.corrected import cleaned, relabelled
from lqf.analysis.audit.informative import by_information, ends_of_classes
from lqf.analysis.audit.labels import SURE, contradicted, suspicious
from lqf.data import Samples, load_samples
from lqf.data.sources import FileSource
from lqf.errors import LQFError
from lqf.reports.audit_folder import write
from lqf.reports.cleanlab import for_cleanlab


@pytest.fixture(scope="module")
def audit(model):
    return model.audit()


def test_the_turned_label_is_the_most_suspicious(audit, model):
    first = audit.suspects[0]
    assert (first["id"], first["label"], first["predicted"], first["rank"]) == (TURNED, "green", "blue", 1)
    assert first["margin"] > 0
    assert first["predicted_probability"] > 0.5 > first["label_probability"]
    assert first["predicted_probability"] + first["label_probability"] == pytest.approx(1)
    margins = [row["margin"] for row in audit.suspects]
    assert margins == sorted(margins, reverse=True)
    odds = [np.log(1 / row["label_probability"] - 1) / model.fitted_.beta for row in audit.suspects]
    np.testing.assert_allclose(margins, odds, rtol=1e-9)
    assert all(row["margin"] > 0 for row in audit.contradicted)
    assert sorted(row["index"] for row in audit.suspects) == list(range(17))
    assert len(audit.contradicted) == round(17 * model.leave_one_out().error)


def test_a_label_is_suspicious_where_another_class_is_sure(audit, monkeypatch, model):
    for row in audit.suspects:
        assert row["suspicious"] == (row["predicted"] != row["label"] and row["predicted_probability"] >= SURE)
    assert audit.suspicious == [row for row in audit.contradicted if row["suspicious"]]
    bound = audit.suspects[0]["predicted_probability"]
    for sure, found in ((bound - 1e-9, True), (bound + 1e-9, False)):
        monkeypatch.setattr("lqf.analysis.audit.labels.SURE", sure)
        assert (TURNED in [row["id"] for row in model.audit().suspicious]) == found


def test_what_leave_one_out_does_not_know_is_not_contradicted(model):
    loo = model.leave_one_out()
    partly = replace(loo, value=loo.value.clone().index_fill_(0, torch.arange(5, 17), torch.nan))
    for found, known in ((contradicted(partly), contradicted(loo)), (suspicious(model.fitted_, partly), None)):
        assert not found[5:].any()
        assert known is None or torch.equal(found[:5], known[:5])


DOUBTED = ["b0", "b1", "b2", "a0"]


def _samples(groups=None):
    ids = tuple(f"{c}{i}" for c in "ab" for i in range(4))
    weights, source = np.arange(1.0, 9), FileSource("`photos`", tuple(Path(f"photos/{i}.png") for i in ids))
    return Samples(ids, ("a", "b"), np.repeat([0, 1], 4), weights, groups, source)


def _suspects():
    """Of `_samples`, first the doubted ones; the class b would keep one only."""
    order = [*DOUBTED, "a1", "a2", "a3", "b3"]
    ids = _samples().ids
    return [
        {"index": ids.index(i), "id": i, "label": i[0], "predicted": "ab".replace(i[0], ""), "suspicious": k < 4}
        for k, i in enumerate(order)
    ]


def test_cleaned_is_without_the_suspicious_ones_and_every_class_keeps_two():
    rows = cleaned(_samples(), _suspects())
    assert [row["id"] for row in rows] == ["a1", "a2", "a3", "b2", "b3"]  # b2 is the most credible of the doubted ones
    assert [row["weight"] for row in rows] == [2, 3, 4, 7, 8]
    assert rows[0]["path"] == os.path.abspath("photos/a1.png")


def test_relabelled_has_the_predictions_of_the_same_ones():
    groups = tuple(f"g{i % 3}" for i in range(8))
    rows = relabelled(_samples(groups), _suspects())
    assert [row["id"] for row in rows] == list(_samples().ids)
    assert [row["label"] for row in rows] == list("baaaaabb")
    assert [row["was"] for row in rows] == list("aaaabbbb")
    assert tuple(row["group"] for row in rows) == groups


def test_the_copy_is_found_with_its_original(audit):
    pair = audit.duplicates[0]
    assert {pair["id"], pair["other"]} == {COPY, "blue/0.png"}
    assert pair["same_file"]
    assert pair["similarity"] == pytest.approx(1)
    assert all(not row["same_file"] for row in audit.duplicates[1:])


def test_information_is_that_of_the_analysis(audit, model):
    values = model.information().samples()
    rows = audit.information
    assert [row["index"] for row in rows] == values.argsort(descending=True).tolist()
    assert rows[0]["information"] == pytest.approx(float(values.max()))


def test_confusions_count_wrong_leave_one_out_predictions(audit, model):
    loo = model.leave_one_out()
    wrong = int((loo.predicted != loo.labels).sum())
    assert sum(row["n"] for row in audit.confusions) == wrong > 0
    for row in audit.confusions:
        assert row["share"] == row["n"] / {"blue": 8, "green": 9}[row["label"]]


def test_every_class_has_its_ends_and_no_sample_is_at_both(model):
    rows = by_information(model.fitted_, torch.arange(17.0))
    for each in (1, 4, 20):
        ends = ends_of_classes(rows, each)
        assert set(ends) == {"blue", "green"}
        for name, (most, least) in ends.items():
            size = sum(row["label"] == name for row in rows)
            assert len(most) + len(least) == min(2 * each, size)
            assert not {r["id"] for r in most} & {r["id"] for r in least}
            assert [r["information"] for r in most] == sorted((r["information"] for r in most), reverse=True)
            assert [r["information"] for r in least] == sorted(r["information"] for r in least)


def test_the_folder_has_tables_and_pictures(audit, tmp_path):
    out = tmp_path / "audit"
    files = write(audit, out)
    assert files == sorted(p.name for p in out.iterdir())
    written = json.loads((out / "audit.json").read_text())
    assert (written["format"], written["n"], written["suspects"][0]["id"]) == ("lqf-audit", 17, TURNED)
    with (out / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [row["id"] for row in audit.suspects]
    assert float(rows[0]["margin"]) == audit.suspects[0]["margin"]
    with Image.open(out / "labels.png") as sheet:
        assert sheet.width > 160
        assert len(np.unique(np.asarray(sheet).reshape(-1, 3), axis=0)) > 100
    for name in ("duplicates.csv", "information.csv", "confusions.csv", "duplicates.png", "informative.png"):
        assert name in files


def _table(file):
    with file.open(newline="") as text:
        return list(csv.DictReader(text))


def test_the_folder_has_manifests_of_whole_paths(folder, model, tmp_path, monkeypatch):
    monkeypatch.setattr("lqf.analysis.audit.labels.SURE", 0.5)
    audit, out = model.audit(), tmp_path / "audit"
    write(audit, out)
    left, given = {row["id"] for row in audit.suspicious}, audit.samples
    assert TURNED in left
    fewer = load_samples(out / "cleaned.csv")
    assert [Path(i).relative_to(folder).as_posix() for i in fewer.ids] == [i for i in given.ids if i not in left]
    other = load_samples(out / "relabelled.csv")
    ids = [Path(i).relative_to(folder).as_posix() for i in other.ids]
    names = {i: other.classes[k] for i, k in zip(ids, other.labels, strict=True)}
    assert names[TURNED] == "blue"
    predicted = {row["id"]: row["predicted"] if row["suspicious"] else row["label"] for row in audit.suspects}
    assert names == predicted
    for table, column in (("labels", "path"), ("information", "path"), ("duplicates", "other_path")):
        for row in _table(out / f"{table}.csv"):
            assert row[column] == str(folder / row["other" if column == "other_path" else "id"])


def test_a_folder_is_not_replaced_unless_asked_for_and_ours(audit, tmp_path):
    out = tmp_path / "audit"
    write(audit, out)
    with pytest.raises(LQFError, match="exists; choose another output folder"):
        write(audit, out)
    write(audit, out, overwrite=True)
    foreign = tmp_path / "photos"
    foreign.mkdir()
    (foreign / "mine.jpg").write_bytes(b"")
    with pytest.raises(LQFError, match="not written by `lqf audit`"):
        write(audit, foreign, overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["audit", "photos"]


def test_tensors_have_no_pictures_and_are_audited_all_the_same(tmp_path):
    x, y = data(18)
    model = classifier(solver="head").fit(x, y)
    with pytest.raises(LQFError, match="in memory"):
        model.audit()
    audit = model.audit(x, y)
    assert len(audit.suspects) == 18
    files = write(audit, tmp_path / "out")
    assert "informative.png" in files
    assert not {"cleaned.csv", "relabelled.csv"} & set(files)
    assert "no image files" in json.loads((tmp_path / "out" / "audit.json").read_text())["no_manifests"]
    assert "path" not in _table(tmp_path / "out" / "labels.csv")[0]
    rows = audit.cleaned()
    assert len(rows) == 18 - len(audit.suspicious)
    assert all(row["label"] == str(y[row["index"]]) and "path" not in row for row in rows)


def test_with_pcg_everything_is_said_with_its_level():
    x, y = data(10, 2)
    decays = {"weight_decay": 0.1, "body_weight_decay": 0.2}
    model = classifier(solver="pcg", **decays).fit(x, y)
    exact = classifier(solver="dense", **decays).fit(x, y).audit(x, y)
    audit = model.audit(x, y)
    assert audit.levels["information"]["level"] == "estimated"
    assert exact.levels["information"]["level"] == "exact"
    values = [{row["id"]: row["information"] for row in a.information} for a in (audit, exact)]
    ranks = [np.argsort(np.argsort([v[str(i)] for i in range(10)])) for v in values]
    assert np.corrcoef(*ranks)[0, 1] > 0.5


def test_folds_that_the_fit_left_out_are_refitted(monkeypatch):
    monkeypatch.setattr("lqf.fitting.refits.ENOUGH", 8)
    x, y = data(20)
    options = {"solver": "pcg", "weight_decay": 1.0, "body_weight_decay": 3.0, "dtype": "float64"}
    some = classifier(**options).fit(x, y)
    every = classifier(**options, loo="folds").fit(x, y)
    assert not some.leave_one_out().known.all()
    with pytest.raises(LQFError, match=r"is known for \d+ of 20 samples; fit with loo='folds'"):
        for_cleanlab(some)
    loo = some.analyse(x, y).known_leave_one_out()
    torch.testing.assert_close(loo.outputs, every.leave_one_out().outputs.double(), rtol=1e-6, atol=1e-6)
    assert loo.note == every.leave_one_out().note
    assert sorted(row["index"] for row in some.audit(x, y).suspects) == list(range(20))
