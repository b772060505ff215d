"""The numbers of a demo as JSON values: rungs, errors, certificates, suspicious cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lqf.demo.solar import CLASSES, DEFECTIVE, Cell
from lqf.estimator import LQFClassifier
from lqf.evaluation.calibration import probabilities
from lqf.evaluation.metrics import standard_error
from lqf.reports.rungs import unknowns


def suspicious(model: LQFClassifier, cells: Sequence[Cell], most: int) -> list[dict[str, Any]]:
    """Training cells whose label the other cells contradict, the strongest contradiction first."""
    loo = model.leave_one_out()
    p = probabilities(loo.outputs, model.fitted_.beta)[:, CLASSES.index(DEFECTIVE)]
    score = loo.suspicion().nan_to_num(0.0)
    cell = {c.name: c for c in cells}
    ids = model.fitted_.train.ids
    rows = [int(i) for i in score.argsort(descending=True)[:most] if score[i] > 0]
    return [_suspect(cell[ids[i]], float(p[i])) for i in rows]


def _suspect(cell: Cell, probability: float) -> dict[str, Any]:
    return {
        "id": cell.id,
        "kind": cell.kind,
        "label": cell.label,
        "annotated": cell.annotated,
        "annotated_probability": cell.defect,
        "unsure": cell.unsure,
        "loo_probability": probability,
    }


def rung_figures(rungs: Sequence[Mapping[str, Any]], n: int, wrong: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Every rung as the fit reports it, with the standard error of its error on ``n`` cells, and what the test of its
    model says, where there was one; ``wrong``: test cells.
    """
    return [
        {**rung, "standard_error": _standard_error(rung["error"], n), **_tested(wrong.get(rung["name"]))}
        for rung in rungs
    ]


def _tested(wrong: np.ndarray | None) -> dict[str, float | None]:
    error = None if wrong is None else float(wrong.mean())
    return {"test_error": error, "test_standard_error": _standard_error(error, 0 if wrong is None else len(wrong))}


def _standard_error(error: float | None, n: int) -> float | None:
    return None if error is None else standard_error(error, n)


def model_figures(model: LQFClassifier, wrong: np.ndarray) -> dict[str, Any]:
    """The model's test error, and what its solve says about itself; ``wrong``: test cells."""
    report = model.report_
    own = ("solver", "weight_decay", "body_weight_decay", "relative_residual", "converged", "certificate")
    return {
        **_tested(wrong),
        "unknowns": unknowns(model.fitted_),
        **{name: report[name] for name in ("loo_error", "loo_standard_error", "loo_level", "loo_note", *own)},
    }


def composition(cells: Sequence[Cell]) -> dict[str, int]:
    """How many cells, how many defective, how many that the annotators doubted."""
    defective, unsure = (sum(x) for x in zip(*((c.label == DEFECTIVE, c.unsure) for c in cells), strict=True))
    return {"n": len(cells), "defective": defective, "unsure": unsure}
