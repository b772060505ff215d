"""Makes docs/pictures/why.png: a real explanation, of a solar cell of `lqf demo`'s data.

    python docs/make_pictures.py
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import lqf
from lqf.demo import solar

HERE = Path(__file__).resolve().parent
SHOWN = "cell0214"


def main() -> None:
    """Cells as a folder of classes, a closed-form head, one explanation."""
    train, _ = solar.split(solar.read_cells(), 400, 500, 0)
    shown = next(c.path for c in solar.read_cells() if Path(c.path).stem == SHOWN)
    with tempfile.TemporaryDirectory() as folder:
        for cell in train:
            path = Path(folder) / "cells" / cell.label / Path(cell.path).name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(cell.path)
        model = lqf.LQFClassifier(solver="head", views="flip", size=128, seed=0).fit(Path(folder) / "cells")
        (Path(folder) / "new.png").symlink_to(shown)
        with contextlib.chdir(folder):
            model.explain("new.png", top=5).save(HERE / "pictures" / "why.png", overwrite=True)


if __name__ == "__main__":
    main()
