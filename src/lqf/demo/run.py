"""The demo itself: a split, one climb from model to model, a test of what was kept, and a folder with everything in it.

    index.html           the page
    result.json          the same numbers
    model                the model, for `lqf predict` and `lqf evaluate`
    train.csv, test.csv  manifests of the cells, for `lqf fit` and `lqf evaluate`

The folder appears whole or not at all.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import lqf
from lqf.demo import solar
from lqf.demo.clock import Clock
from lqf.demo.figures import composition, model_figures, rung_figures, suspicious
from lqf.demo.folder import FORMAT, check_output, output_folder, write_manifest
from lqf.demo.page import Page
from lqf.demo.solar import Cell
from lqf.demo.testing import wrong_cells
from lqf.estimator import LQFClassifier
from lqf.fitting import Model
from lqf.fitting.report import last_kept
from lqf.storage import save
from lqf.utils.progress import SILENT, Progress

BACKBONE = "efficientnet_lite0"
FIT_SECONDS, ALL_SECONDS = 75.0, 110.0
"""Until the fit is done, and until tests of models on the way to the last one are done, from the beginning on."""


def run_demo(
    out: Path,
    *,
    n_train: int = 400,
    n_test: int = 500,
    n_shown: int = 12,
    size: int = 128,
    overwrite: bool = False,
    seed: int = 0,
    device: str = "auto",
    began: float | None = None,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Fit some solar cells as far as the time allows, test every model that was kept on others, write a page about it.

    Args:
        out: folder to write; it appears whole or not at all.
        n_train: cells to learn from.
        n_test: other cells, for the test.
        n_shown: how many suspicious labels to show.
        size: side of the images in pixels.
        overwrite: replace the folder of an earlier demo.
        seed: chooses the cells (and the folds of the linearisation point).
        device: "auto", "cpu", "cuda", …
        began: moment of `time.monotonic` from which on the time counts; default: now.
        progress: where to report.

    Returns:
        The content of ``result.json``.
    """
    out = Path(out)
    clock = Clock(time.monotonic() if began is None else began)
    check_output(out, overwrite)
    page = Page()  # what is missing is said before the work, not after it
    train, test = solar.split(solar.read_cells(), n_train, n_test, seed)
    progress.say(f"{len(train)} labelled solar cells to learn from, {len(test)} others for the test")
    if began is not None:
        clock.add("start", clock.total())
    model = LQFClassifier(BACKBONE, size=size, time_limit=FIT_SECONDS, seed=seed, device=device, strict=True)
    kept = _fit(model, train, clock, progress)
    wrong = wrong_cells(model, kept, test, clock, ALL_SECONDS, progress)
    result = {
        "format": FORMAT,
        "version": lqf.__version__,
        "backbone": BACKBONE,
        "size": size,
        "seed": seed,
        "threads": torch.get_num_threads(),
        "train": composition(train),
        "test": composition(test),
        **_story(model, wrong),
        "suspicious": suspicious(model, train, n_shown),
        "stages": clock.stages,
        "seconds": clock.total(),
        "out": out.as_posix(),
    }
    pictures = {c.id: c.path for c in train}
    with output_folder(out, overwrite) as temporary:
        save(_at(model.fitted_, out / "train.csv"), temporary / "model")
        write_manifest(temporary / "train.csv", train)
        write_manifest(temporary / "test.csv", test)
        (temporary / "index.html").write_text(page.render(result, pictures), encoding="utf-8")
        (temporary / "result.json").write_text(json.dumps(result, indent=1, allow_nan=False), encoding="utf-8")
    return result


def _fit(model: LQFClassifier, train: list[Cell], clock: Clock, progress: Progress) -> dict[str, Model]:
    """Every model that was kept on the way, by its rung; the last one is the model's own."""
    kept: dict[str, Model] = {}

    def keep(better: Model) -> None:
        kept[last_kept(better.report.rungs)["name"]] = better

    with clock.stage("fit") as stage:
        model.fit(solar.samples(train), keep=keep, began=clock.began, progress=progress)
        tried = [r for r in model.report_["rungs"] if r["seconds"] is not None]
        stage["parts"] = {r["name"]: r["seconds"] for r in tried}
    return kept


def _at(model: Model, manifest: Path) -> Model:
    """The model, which knows where its training data will be."""
    return replace(model, train=replace(model.train, source=str(manifest.resolve())))


def _story(model: LQFClassifier, wrong: dict[str, np.ndarray]) -> dict[str, Any]:
    """What was tried, kept and tested; the model against the head that it started from, on the same test cells."""
    report, name = model.report_, last_kept(model.report_["rungs"])["name"]
    last, first = wrong[name], wrong.get(next(r["name"] for r in report["rungs"] if r["kept"]))
    own = ("device", "effort", "error", "error_standard_error", "error_note", "next_rung")
    return {
        **{key: report[key] for key in own},
        "fit_seconds": FIT_SECONDS,
        "rungs": rung_figures(report["rungs"], report["n"], wrong),
        "model": {"name": name, **model_figures(model, last)},
        "repaired": None if first is None else int((first & ~last).sum()),
        "spoilt": None if first is None else int((last & ~first).sum()),
    }
