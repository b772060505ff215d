"""Files of rows: whole or not at all, the same values in every kind."""

import csv
import json
import sys

import pytest

from lqf.errors import LQFError, MissingDependency
from lqf.reports import row_files

ROWS = [
    {"path": 'a,"b"\r\n\u2028猫.png', "label": "cat", "probability": 0.1 + 0.2, "right": True, "note": ""},
    {"path": "-2+3", "label": None, "probability": None, "right": None, "note": "torn; wet"},
]


def test_csv_and_json_lines_come_back(tmp_path):
    for name in ("x.csv", "x.JSONL"):
        row_files.write(tmp_path / name, ROWS)
    with (tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert found == [{k: "" if v is None else str(v) for k, v in row.items()} for row in ROWS]
    assert float(found[0]["probability"]) == 0.1 + 0.2
    lines = (tmp_path / "x.JSONL").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == ROWS


def test_parquet_has_types_also_for_columns_without_values(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    row_files.write(tmp_path / "x.parquet", ROWS)
    found = parquet.read_table(tmp_path / "x.parquet")
    assert found.to_pylist() == ROWS
    assert [str(field.type) for field in found.schema] == ["string", "string", "double", "bool", "string"]
    row_files.write(tmp_path / "y.parquet", [{"path": "a", "label": None}])
    assert str(parquet.read_schema(tmp_path / "y.parquet").field("label").type) == "string"


def test_what_stands_there_stays_unless_it_may_be_replaced(tmp_path):
    out = tmp_path / "x.csv"
    out.write_text("mine")
    with pytest.raises(LQFError, match="exists"):
        row_files.write(out, ROWS)
    assert out.read_text() == "mine"
    row_files.write(out, ROWS, overwrite=True)
    assert out.read_text("utf-8").startswith("path,label,probability,right,note")
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


@pytest.mark.parametrize("name", ["x.xlsx", "x", "csv"])
def test_other_kinds_are_refused(tmp_path, name):
    with pytest.raises(LQFError, match=r"\.csv or \.jsonl or \.parquet"):
        row_files.check(tmp_path / name, overwrite=False)


def test_parquet_needs_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependency, match="pip install pyarrow"):
        row_files.check(tmp_path / "x.parquet", overwrite=False)
    row_files.check(tmp_path / "x.csv", overwrite=False)
