"""The demo's data: electroluminescence images of solar cells, from the PyPI package `elpv-dataset`.

Experts annotated every cell with a defect probability (0, 1/3, 2/3 or 1) and its kind (mono- or polycrystalline). The
demo's label is "defective" where that probability is above 1/2; the probability itself no model ever sees. The images
are CC BY-NC-SA: the user installs the package, nothing is copied from it into this one.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from lqf.data import Samples, load_samples
from lqf.errors import LQFError, MissingDependency
from lqf.utils.text import clean

PACKAGE = "elpv-dataset"
DEFECTIVE, FUNCTIONAL = CLASSES = ("defective", "functional")


@dataclass(frozen=True)
class Cell:
    """One solar cell.

    Attributes:
        id: path inside the package's data folder.
        path: the image.
        defect: the annotated defect probability.
        kind: "mono" or "poly".
    """

    id: str
    path: Path
    defect: float
    kind: str

    @property
    def name(self) -> str:
        """Its id as a sample, which a manifest with whole paths gives it, too."""
        return clean(self.path.resolve())

    @property
    def label(self) -> str:
        """What the models are given."""
        return DEFECTIVE if self.defect > 0.5 else FUNCTIONAL

    @property
    def annotated(self) -> str:
        """The defect probability as the annotators gave it: 0, 1/3, 2/3 or 1."""
        return str(Fraction(self.defect).limit_denominator(3))

    @property
    def unsure(self) -> bool:
        """Whether the annotators left a doubt."""
        return 0 < self.defect < 1


def read_cells() -> list[Cell]:
    """Every cell of the installed package, in its order."""
    table = data_folder() / "labels.csv"
    try:
        lines = table.read_text(encoding="utf-8").splitlines()
        cells = [_cell(table.parent, line) for line in lines if line.strip()]
    except (OSError, ValueError) as e:
        raise LQFError(f"`{table}` cannot be used ({e}); run `pip install --force-reinstall {PACKAGE}`") from e
    if not cells:
        raise LQFError(f"`{table}` lists no cell; run `pip install --force-reinstall {PACKAGE}`")
    return cells


def data_folder() -> Path:
    """Where the package keeps its images; it is found, not imported."""
    spec = find_spec("elpv_dataset")
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependency(PACKAGE, "`lqf demo` (2,624 images of solar cells, 91 MB)")
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def _cell(folder: Path, line: str) -> Cell:
    columns = line.split()
    if len(columns) != 3:
        raise ValueError(f"expected a path, a probability and a kind, found {line!r}")
    return Cell(columns[0], folder / columns[0], float(columns[1]), columns[2])


def split(cells: Sequence[Cell], n_train: int, n_test: int, seed: int = 0) -> tuple[list[Cell], list[Cell]]:
    """Training and test cells, disjoint, with the mixture of kinds and annotations that all cells have.

    Inside a stratum (kind, annotation) the cells are ranked by sha256(seed, id): training takes the first, the test the
    next ones. So the choice is the same on every machine, and a larger training set contains a smaller one's strata.
    """
    if n_train + n_test > len(cells):
        raise LQFError(f"{n_train} + {n_test} cells were asked for; {PACKAGE} has {len(cells)}")
    strata: dict[tuple[str, float], list[Cell]] = defaultdict(list)
    for cell in sorted(cells, key=lambda c: hashlib.sha256(f"{seed}/{c.id}".encode()).digest()):
        strata[cell.kind, cell.defect].append(cell)
    ranked = [strata[key] for key in sorted(strata)]
    of_train = shares([len(s) for s in ranked], n_train)
    of_test = shares([len(s) - k for s, k in zip(ranked, of_train, strict=True)], n_test)
    train = [c for s, k in zip(ranked, of_train, strict=True) for c in s[:k]]
    test = [c for s, k, m in zip(ranked, of_train, of_test, strict=True) for c in s[k : k + m]]
    return sorted(train, key=lambda c: c.id), sorted(test, key=lambda c: c.id)


def shares(sizes: Sequence[int], n: int) -> list[int]:
    """``n`` divided in proportion to ``sizes``: rounded down, the rest to the largest remainders."""
    quotas = np.array(sizes) * n / max(1, sum(sizes))
    counts = np.floor(quotas).astype(int)
    counts[np.argsort(counts - quotas, kind="stable")[: n - counts.sum()]] += 1
    return counts.tolist()


def samples(cells: Sequence[Cell]) -> Samples:
    """The cells as a table for `LQFClassifier`."""
    paths, labels, names = zip(*((c.path, c.label, c.name) for c in cells), strict=True)
    return load_samples(list(paths), labels, ids=names, classes=CLASSES)
