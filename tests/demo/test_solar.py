"""The demo's data: found without being imported, and split fairly."""

import sys
from collections import Counter
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from lqf.demo import solar
from lqf.demo.solar import Cell, shares, split
from lqf.errors import LQFError, MissingDependency

STRATA = {("mono", 0.0): 59, ("poly", 0.0): 92, ("mono", 1 / 3): 12, ("poly", 2 / 3): 5, ("poly", 1.0): 40}
CELLS = [
    Cell(f"images/{kind}-{defect:.2f}-{i:03d}.png", Path("nowhere"), defect, kind)
    for (kind, defect), n in STRATA.items()
    for i in range(n)
]


def strata(cells):
    return Counter((c.kind, c.defect) for c in cells)


def test_split_is_disjoint_and_has_the_sizes_asked_for():
    train, test = split(CELLS, 50, 100)
    assert (len(train), len(test)) == (50, 100)
    assert len({c.id for c in train} | {c.id for c in test}) == 150


def test_split_depends_on_the_seed_and_not_on_the_order():
    assert split(CELLS, 50, 100, seed=3) == split(CELLS[::-1], 50, 100, seed=3)
    assert split(CELLS, 50, 100, seed=3) != split(CELLS, 50, 100, seed=4)


def test_split_is_the_same_on_every_machine():
    train, test = split(CELLS, 3, 2, seed=0)
    assert [Path(c.id).stem for c in train] == ["mono-0.00-034", "poly-0.00-072", "poly-1.00-009"]
    assert [Path(c.id).stem for c in test] == ["mono-0.00-012", "poly-0.00-077"]


@pytest.mark.parametrize("part", [0, 1])
def test_split_keeps_the_mixture(part):
    chosen = split(CELLS, 50, 100)[part]
    for stratum, n in strata(CELLS).items():
        assert abs(strata(chosen)[stratum] - n * len(chosen) / len(CELLS)) < 1.5


def test_all_cells_can_be_used_and_no_more():
    train, test = split(CELLS, 108, 100)
    assert strata(train) + strata(test) == strata(CELLS)
    with pytest.raises(LQFError, match="208"):
        split(CELLS, 109, 100)


@pytest.mark.parametrize(("sizes", "n"), [([1, 1, 1], 2), ([5, 0, 3], 8), ([10, 20, 70], 33), ([4], 0)])
def test_shares_add_up_and_fit(sizes, n):
    counts = shares(sizes, n)
    assert sum(counts) == n
    assert all(0 <= k <= size for k, size in zip(counts, sizes, strict=True))


@pytest.mark.parametrize(
    ("defect", "label", "annotated", "unsure"),
    [
        (0.0, "functional", "0", False),
        (0.3333333333333333, "functional", "1/3", True),
        (0.6666666666666666, "defective", "2/3", True),
        (1.0, "defective", "1", False),
    ],
)
def test_what_an_annotation_means(defect, label, annotated, unsure):
    cell = Cell("a", Path("a"), defect, "mono")
    assert (cell.label, cell.annotated, cell.unsure) == (label, annotated, unsure)


def test_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr(solar, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match="pip install elpv-dataset"):
        solar.read_cells()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package folder whose labels.csv a test writes."""
    spec = ModuleSpec("elpv_dataset", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(solar, "find_spec", lambda name: spec)
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "labels.csv"


def test_labels_are_read_by_columns_of_any_width(package):
    package.write_text("images/a.png  1.0                 mono\nimages/b.png  0.3333333333333333  poly\n\n")
    first, second = solar.read_cells()
    assert first == Cell("images/a.png", package.parent / "images/a.png", 1.0, "mono")
    assert (second.kind, second.annotated) == ("poly", "1/3")


@pytest.mark.parametrize("text", [None, "", "images/a.png 1.0\n", "images/a.png much mono\n"])
def test_damaged_package_is_a_sentence(package, text):
    if text is not None:
        package.write_text(text)
    with pytest.raises(LQFError, match="force-reinstall elpv-dataset"):
        solar.read_cells()


def test_the_real_package_is_read_without_importing_it():
    if solar.find_spec("elpv_dataset") is None:
        pytest.skip("needs elpv-dataset")
    before = "elpv_dataset" in sys.modules
    cells = solar.read_cells()
    assert ("elpv_dataset" in sys.modules) == before
    assert len(cells) == 2624
    assert Counter(c.annotated for c in cells) == {"0": 1508, "1/3": 295, "2/3": 106, "1": 715}
    assert all(c.path.is_file() for c in cells[::200])
