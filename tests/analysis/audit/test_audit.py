"""An audit finds what was planted, and its folder is written whole or not at all."""

import csv
import json

import numpy as np
import pytest
import torch
from PIL import Image

from audited import COPY, TURNED
from fits import classifier, data
from lqf.analysis.audit.informative import by_information, ends_of_classes
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
    assert "informative.png" in write(audit, tmp_path / "out")


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
