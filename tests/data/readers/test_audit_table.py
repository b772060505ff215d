"""A table of an audit is told from a manifest, and the manifests beside it are named."""

import pytest

from lqf.analysis.audit import duplicates, informative, labels
from lqf.data import load_samples
from lqf.data.readers.audit_table import MANIFESTS
from lqf.errors import LQFError

TABLES = {
    "labels": (*labels.SUSPECT_COLUMNS, "path"),
    "duplicates": (*duplicates.COLUMNS, "path", "other_path"),
    "information": (*informative.COLUMNS, "path"),
    "confusions": labels.CONFUSION_COLUMNS,
}


@pytest.mark.parametrize("with_paths", [True, False])
@pytest.mark.parametrize("name", TABLES)
def test_every_table_of_an_audit_says_what_it_is(name, with_paths, tmp_path):
    columns = [c for c in TABLES[name] if with_paths or "path" not in c]
    file = tmp_path / "any.csv"
    file.write_text(",".join(columns) + "\n")
    with pytest.raises(LQFError, match=rf"any.csv` is the table of {name} of an audit, not a manifest; .*`lqf audit"):
        load_samples(file)
    for manifest in MANIFESTS:
        (tmp_path / manifest).write_text("path,label\n")
    with pytest.raises(LQFError) as told:
        load_samples(file)
    for manifest, what in MANIFESTS.items():
        assert f"`{tmp_path / manifest}` ({what})" in str(told.value)


@pytest.mark.parametrize("more", ["information", "rank,predicted,share", "was"])
def test_a_manifest_may_have_columns_of_the_same_names(tree, more):
    root = tree({"a.png": 0, "b.png": 1})
    cells = "," * more.count(",")
    (root / "list.csv").write_text(f"path,label,{more}\na.png,x,{cells}\nb.png,y,{cells}\n")
    assert len(load_samples(root / "list.csv")) == 2
