"""How models, explanations, audits and what-ifs look in a notebook: parts of the report, each whole by itself."""

from __future__ import annotations

from typing import Any

from lqf.analysis import WhatIf
from lqf.analysis.audit.audit import Audit
from lqf.evaluation.calibration import probabilities
from lqf.fitting import FittedModel, Model, Stack
from lqf.linear.targets import decide
from lqf.reports.explanations import Explanations
from lqf.reports.html.environment import percent, render, scoped_style
from lqf.reports.html.gallery import Gallery
from lqf.reports.html.report import case_view, duplicate_rows, suspect_rows
from lqf.reports.html.words import points
from lqf.reports.rungs import rung_rows
from lqf.utils.notebook import view_of
from lqf.utils.text import capitalized

MOST_CASES, MOST_SUSPECTS, MOST_PAIRS, MOST_ROWS = 8, 12, 6, 20
"""Rows of a view: a notebook keeps the pictures of every cell."""


@view_of(FittedModel, Stack)
def model_view(model: Model, kind: str = "", arguments: str = "") -> str:
    """A fitted model: what it is, its errors, and what was tried on the way.

    Args:
        model: the model.
        kind: its class; default: its own.
        arguments: of the estimator that fitted it.
    """
    return _view(
        "model",
        kind=kind or type(model).__name__,
        title=capitalized(model.what),
        figures=_figures(model),
        rungs=rung_rows(model.report.rungs),
        arguments=arguments,
    )


def unfitted_view(kind: str, arguments: str) -> str:
    """An estimator before its fit."""
    return _view("model", kind=kind, title="Not fitted yet", figures=[], rungs=[], arguments=arguments)


@view_of(Explanations)
def explanations_view(explained: Explanations) -> str:
    """Predictions with the training images behind them."""
    queries, train = Gallery(explained.queries, side=240), Gallery(explained.train, side=128)
    cases = [case_view(e, queries, train) for e in explained.items[:MOST_CASES]]
    return _view("explanations", cases=cases, level=explained.level, left_out=len(explained) - len(cases))


@view_of(Audit)
def audit_view(audit: Audit) -> str:
    """Labels that look wrong, and near-duplicates."""
    pictures = Gallery(audit.samples, side=128)
    other = sum(r["label"] != r["other_label"] for r in audit.duplicates)
    figures = [
        _figure("contradicted labels", f"{len(audit.contradicted):,}", "by leave-one-out"),
        _figure("near-duplicates", f"{len(audit.duplicates):,}", f"{other or 'none'} with different labels"),
        _figure("leave-one-out error", percent(audit.loo_error), audit.levels["leave_one_out"]["level"]),
    ]
    return _view(
        "audit",
        n=len(audit.suspects),
        figures=figures,
        levels=audit.levels,
        suspects=suspect_rows(audit, pictures, MOST_SUSPECTS),
        duplicates=duplicate_rows(audit, pictures, MOST_PAIRS),
    )


@view_of(WhatIf)
def what_if_view(what: WhatIf) -> str:
    """Predictions before and after, those that change first."""
    order = what.changed.long().argsort(descending=True, stable=True).tolist()[:MOST_ROWS]
    pictures = None if what.samples is None else Gallery(what.samples, side=96)
    before, after = probabilities(what.before, what.beta), what.probabilities
    was = decide(what.before)
    rows = [
        {
            "id": what.query_ids[q],
            "picture": "" if pictures is None else pictures(q),
            "before": what.classes[int(was[q])],
            "before_probability": float(before[q, was[q]]),
            "after": what.predicted[q],
            "after_probability": float(after[q].max()),
            "changed": bool(what.changed[q]),
        }
        for q in order
    ]
    return _view(
        "what_if",
        n=len(what.query_ids),
        changed=int(what.changed.sum()),
        level=what.level,
        rows=rows,
        pictures=any(r["picture"] for r in rows),
        left_out=len(what.query_ids) - len(rows),
    )


def _figures(model: Model) -> list[dict[str, str]]:
    fit, figures = model.report, []
    if fit.error is not None and fit.error_standard_error is not None:
        note = f"on unseen images, ± {points(fit.error_standard_error)}"
        figures.append(_figure("expected error", percent(fit.error), note))
    if fit.loo_error is not None:
        figures.append(_figure("leave-one-out error", percent(fit.loo_error), fit.loo_level or ""))
    side = model.preprocess.size
    return [
        *figures,
        _figure("images", f"{fit.n:,}", f"{side} × {side} px"),
        _figure("classes", f"{len(model.classes):,}", f"{fit.seconds:.1f} s on {fit.device}"),
    ]


def _figure(name: str, value: str, note: str) -> dict[str, str]:
    return {"name": name, "value": value, "note": note}


def _view(name: str, **context: Any) -> str:
    return render(f"notebook_{name}.html.jinja", style=scoped_style(), **context)
