"""The demo itself: a split, three fits, one test, and a folder with everything in it.

    index.html           the page
    result.json          the same numbers
    model                the LQF model, for `lqf predict` and `lqf evaluate`
    train.csv, test.csv  manifests of the cells, for `lqf fit` and `lqf evaluate`

The folder appears whole or not at all.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

import lqf
from lqf.data import with_views
from lqf.demo import solar
from lqf.demo.figures import composition, model_figures, suspicious
from lqf.demo.folder import FORMAT, check_output, output_folder, write_manifest
from lqf.demo.page import Page
from lqf.demo.solar import Cell
from lqf.demo.words import NAMES
from lqf.estimator import LQFClassifier
from lqf.utils.progress import SILENT, Progress

BACKBONE = "efficientnet_lite0"
DOES = {
    "head": "closed-form head: the last layer alone, on frozen features",
    "bilinear": "bilinear head: the same on the root of the last map's covariance",
    "lqf": "LQF: every layer, linearised; pooling chosen by leave-one-out",
}


def run_demo(
    out: Path,
    *,
    n_train: int = 400,
    n_test: int = 800,
    n_shown: int = 12,
    size: int = 128,
    overwrite: bool = False,
    seed: int = 0,
    device: str = "auto",
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Fit closed-form heads and LQF to some solar cells, test all on others, and write a page about it.

    Args:
        out: Folder to write; it appears whole or not at all.
        n_train: Cells to learn from.
        n_test: Other cells, for the test.
        n_shown: How many suspicious labels to show.
        size: Side of the images in pixels.
        overwrite: Replace the folder of an earlier demo.
        seed: Chooses the cells (and the folds of the linearisation point).
        device: "auto", "cpu", "cuda", …
        progress: Where to report.

    Returns:
        The content of ``result.json``.
    """
    out = Path(out)
    check_output(out, overwrite)
    page = Page()  # what is missing is said before the work, not after it
    train, test = solar.split(solar.read_cells(), n_train, n_test, seed)
    progress.say(f"{len(train)} labelled solar cells to learn from, {len(test)} others for the test")
    clock = Clock()
    common: dict[str, Any] = {"size": size, "seed": seed, "device": device, "strict": True}
    models = {
        "head": LQFClassifier(BACKBONE, solver="head", pooling="avg", **common),
        "bilinear": LQFClassifier(BACKBONE, solver="head", pooling="bilinear", **common),
        "lqf": LQFClassifier(BACKBONE, solver="dense", **common),
    }
    wrong = _fit_and_test(models, train, test, clock, progress)
    full = models["lqf"]
    by_full, by_head = wrong["lqf"], wrong["bilinear" if full.report_["pooling"] == "bilinear" else "head"]
    result = {
        "format": FORMAT,
        "version": lqf.__version__,
        "backbone": BACKBONE,
        "size": size,
        "seed": seed,
        "device": full.report_["device"],
        "threads": torch.get_num_threads(),
        "train": composition(train),
        "test": composition(test),
        "models": {key: model_figures(model, wrong[key]) for key, model in models.items()},
        "pooling": full.report_["choices"][0],
        "repaired": int((by_head & ~by_full).sum()),
        "spoilt": int((by_full & ~by_head).sum()),
        "suspicious": suspicious(full, train, n_shown),
        "stages": clock.stages,
        "seconds": clock.total(),
        "out": out.as_posix(),
    }
    pictures = {c.id: c.path for c in train}
    with output_folder(out, overwrite) as temporary:
        full.save(temporary / "model")
        write_manifest(temporary / "train.csv", train)
        write_manifest(temporary / "test.csv", test)
        (temporary / "index.html").write_text(page.render(result, pictures), encoding="utf-8")
        (temporary / "result.json").write_text(json.dumps(result, indent=1, allow_nan=False), encoding="utf-8")
    return result


def _fit_and_test(
    models: dict[str, LQFClassifier], train: Sequence[Cell], test: Sequence[Cell], clock: Clock, progress: Progress
) -> dict[str, np.ndarray]:
    """Fit all; which test cells each gets wrong, (n_test,) bool. All see the same test cells."""
    for key, model in models.items():
        progress.say(DOES[key])
        with clock.stage(f"{NAMES[key]}: fit") as stage:
            model.fit(solar.samples(train), progress=progress)
            stage["parts"] = model.report_["stages"]
    progress.say(f"test: {len(test)} cells that none has seen")
    with clock.stage("read the test cells"):
        images = models["lqf"].open(solar.samples(test), strict=True, progress=progress)
    wrong = {}
    for key, model in models.items():
        with clock.stage(f"{NAMES[key]}: test"):
            seen = with_views(images, model.fitted_.preprocess)
            wrong[key] = model.scores(seen, progress=progress)[0] != images.samples.labels
    return wrong


class Clock:
    """Seconds of every stage, in order."""

    def __init__(self) -> None:
        self.stages: list[dict[str, Any]] = []
        self._began = time.perf_counter()

    @contextmanager
    def stage(self, name: str) -> Iterator[dict[str, Any]]:
        """Time a stage; its entry is handed out for more to be written into it."""
        entry: dict[str, Any] = {"name": name}
        began = time.perf_counter()
        yield entry
        entry["seconds"] = round(time.perf_counter() - began, 3)
        self.stages.append(entry)

    def total(self) -> float:
        """Seconds since the beginning."""
        return round(time.perf_counter() - self._began, 3)
