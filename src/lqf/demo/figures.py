"""The numbers of a demo as JSON values: errors, certificates, suspicious cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lqf.demo.solar import CLASSES, DEFECTIVE, Cell
from lqf.estimator import LQFClassifier
from lqf.evaluation.calibration import probabilities
from lqf.evaluation.metrics import standard_error


def suspicious(model: LQFClassifier, cells: Sequence[Cell], most: int) -> list[dict[str, Any]]:
    """Training cells whose label the other cells contradict, the strongest contradiction first."""
    loo = model.leave_one_out()
    p = probabilities(loo.outputs, model.fitted_.beta)[:, CLASSES.index(DEFECTIVE)]
    score = loo.suspicion()
    cell = {c.id: c for c in cells}
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


def model_figures(model: LQFClassifier, wrong: np.ndarray) -> dict[str, Any]:
    """One model's errors with their standard errors, and what its solve says about itself; ``wrong``: test cells."""
    report, n, error = model.report_, model.report_["n"], float(wrong.mean())
    own = ("solver", "unknowns", "weight_decay", "body_weight_decay", "relative_residual", "converged", "certificate")
    return {
        "test_error": error,
        "test_standard_error": standard_error(error, len(wrong)),
        "loo_error": report["loo_error"],
        "loo_standard_error": standard_error(report["loo_error"], n),
        "loo_level": report["loo_level"],
        "loo_note": report["loo_note"],
        **{name: report[name] for name in own},
    }


def composition(cells: Sequence[Cell]) -> dict[str, int]:
    """How many cells, how many defective, how many that the annotators doubted."""
    defective, unsure = (sum(x) for x in zip(*((c.label == DEFECTIVE, c.unsure) for c in cells), strict=True))
    return {"n": len(cells), "defective": defective, "unsure": unsure}
