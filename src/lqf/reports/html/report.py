"""The report of a fitted model: everything that is known about it and its data, on one page."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

import lqf
from lqf.analysis.audit.audit import Audit
from lqf.analysis.audit.informative import ends_of_classes
from lqf.evaluation.balance import effective_number
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.evaluation.metrics import standard_error
from lqf.fitting import Model, Stack
from lqf.fitting.class_weights import as_they_come
from lqf.fitting.fitted_model import FINETUNING
from lqf.fitting.report import FitReport
from lqf.reports import weighting
from lqf.reports.evaluation import Answered, Tested, left_out
from lqf.reports.explanation import Explanation
from lqf.reports.html import plots, tables, words
from lqf.reports.html.environment import number, percent, render, sentence
from lqf.reports.html.gallery import Gallery
from lqf.reports.html.heatmap import heatmap
from lqf.reports.rungs import members, rung_rows, unknowns
from lqf.reports.shift import Shift

MOST_SUSPECTS, MOST_PAIRS, MOST_CLASSES, EACH = 24, 9, 8, 4
"""Pictures of a page: suspicious labels, pairs of copies, classes with informative images, images of each kind."""


def report_page(
    fitted: Model,
    loo: LeaveOneOut,
    audit: Audit,
    *,
    name: str,
    test: Tested | None = None,
    shift: Shift | None = None,
    cases: tuple[list[Explanation], str] | None = None,
) -> str:
    """The page.

    Args:
        fitted: the model.
        loo: its leave-one-out.
        audit: of its training data.
        name: title.
        test: a test set's predictions.
        shift: how it differs from the training set.
        cases: explanations of some test images (`Explanation.query` is the row in the test set), and their level.
    """
    fit, classes = fitted.report, fitted.classes
    out = left_out(fitted, loo)
    result = None if test is None else test.result
    train_pictures = Gallery(audit.samples)
    calibration, sets, quality = _calibration(out, test)
    judged, plain = test or out, as_they_come(fitted, loo)
    far = words.far_above(plain.error, fit.n, result)
    return render(
        "report.html.jinja",
        name=name,
        version=lqf.__version__,
        date=datetime.date.today().isoformat(),
        fit=fit,
        levels=audit.levels,
        test=result,
        figures=_figures(fit, loo, audit, result),
        calibration=calibration,
        calibration_sets=sets,
        rungs=rung_rows(fit.rungs),
        measured=tables.measured(out.result, result),
        matrices=_matrices(out, test),
        whole=heatmap(classes, judged.evaluation.confusion) if len(classes) > tables.WHOLE else None,
        pairs=tables.confused_pairs(classes, judged.labels, judged.predicted),
        class_table=tables.class_table(classes, out.result, result),
        shift=_shift(classes, fitted.train.labels, out.result, test, shift, train_pictures),
        suspects=suspect_rows(audit, train_pictures),
        duplicates=duplicate_rows(audit, train_pictures),
        ends=_ends(audit, train_pictures),
        cases=_cases(cases, test, train_pictures),
        poolings=_poolings(fit.choices),
        decays=_decays(fit.choices),
        residuals=plots.residual_plot(fit.history),
        facts=_facts(fitted),
        notes=" ".join(_notes(audit)),
        words={
            "lead": words.lead(fit),
            "warning": words.warning(fit, plain.error, result, shift),
            "tried": words.tried(fit),
            "further": words.further(fit),
            "judged": words.judged() + weighting.of_choices(fit.to_dict()),
            "measured": words.measured(),
            "errors": words.whole_choice(fit)
            + words.errors(loo.error, effective_number(loo.weights), loo.level, loo.note, result)
            + weighting.sentence(fit.to_dict()),
            "calibration": words.calibration(*quality),
            "shift": words.shifted(shift, far),
            "labels": words.labels(audit),
            "duplicates": words.duplicates(audit),
            "information": words.information(),
            "cases": words.cases(),
            "chosen": words.chosen(fit.choices),
            "certificate": _certificate(fit),
        },
    )


def _figures(fit: FitReport, loo: LeaveOneOut, audit: Audit, test: dict[str, Any] | None) -> list[dict[str, str]]:
    figures = []
    if test is not None:
        of = f"{test['n']:,} test images"
        figures.append({"name": "test error", "value": percent(test["error"]), "note": of})
    if fit.error is not None and fit.error_standard_error is not None:
        known = weighting.how(fit.to_dict(), str(fit.error_note))
        note = f"on unseen images, ± {words.points(fit.error_standard_error)}; {known}"
        figures.append({"name": "expected error", "value": percent(fit.error), "note": note})
    known = weighting.how(fit.to_dict(), loo.level)
    solver = "of the main member" if fit.solver == "stack" else f"solver {fit.solver}"
    figures += [
        {"name": "leave-one-out error", "value": percent(loo.error), "note": f"{fit.n:,} images, {known}"},
        {"name": "contradicted labels", "value": f"{len(audit.contradicted):,}", "note": "by leave-one-out"},
        {"name": "relative residual", "value": number(fit.relative_residual), "note": solver},
    ]
    return figures


def _calibration(
    out: Answered, test: Tested | None
) -> tuple[dict[str, Any], list[dict[str, str]], tuple[float | None, str]]:
    """The plot, its legend, and the calibration error with what it was measured on."""
    sets = [("leave-one-out", "loo", out.reliability())]
    last = (out.evaluation.calibration_error.value, "leave-one-out")
    if test is not None:
        sets.append(("test", "test", test.reliability()))
        last = (test.evaluation.calibration_error.value, "test set")
    return plots.reliability_plot(sets), [{"name": name, "css": css} for name, css, _ in sets], last


def _matrices(out: Answered, test: Tested | None) -> list[dict[str, Any]]:
    named = [("Confusions on the test set", test), ("Confusions in leave-one-out", out)]
    return [
        {"title": title, "matrix": tables.confusion_matrix(of.classes, of.labels, of.predicted)}
        for title, of in named
        if of is not None
    ]


def _shift(
    classes: tuple[str, ...],
    labels: np.ndarray,
    out: dict[str, Any],
    test: Tested | None,
    shift: Shift | None,
    train_pictures: Gallery,
) -> dict[str, Any] | None:
    if test is None:
        return None
    rows = tables.class_table(classes, out, test.result)["rows"]
    rows = [r | {"worse": _worse(r)} for r in rows if (r["test"] or 0) > (r["loo"] or 0)]
    rows.sort(key=lambda r: (r["loo"] or 0) - (r["test"] or 0))
    if shift is None:
        return {"rows": rows[:6], "plot": None, "examples": []}
    plot = plots.shift_plot(*(v[np.isfinite(v)].tolist() for v in (shift.train, shift.test)))
    examples = _extremes(classes, labels, test, shift, train_pictures) if shift.visible else []
    separation = {"auc": shift.auc, "standard_error": shift.standard_error}
    return {"rows": rows[:6], "plot": plot, "examples": examples, **separation}


def _worse(row: dict[str, Any]) -> bool:
    """Whether a class's test error exceeds its leave-one-out error by more than chance (two standard errors)."""
    loo, test = row["loo"] or 0.0, row["test"]
    chance = math.hypot(standard_error(loo, row["n"]), standard_error(test, row["test_n"]))
    return test - loo > 2 * chance


def _extremes(
    classes: tuple[str, ...], labels: np.ndarray, test: Tested, shift: Shift, train_pictures: Gallery
) -> list[dict[str, Any]]:
    """Of the classes with most test images: those of each set that are least like the other."""
    test_pictures = Gallery(test.images.samples)
    sizes = np.bincount(test.labels, minlength=len(classes))
    found = []
    for k in (-sizes).argsort(kind="stable")[:3].tolist():
        train = [i for i in shift.train.argsort(kind="stable") if labels[i] == k and np.isfinite(shift.train[i])]
        new = [i for i in (-shift.test).argsort(kind="stable") if test.labels[i] == k and np.isfinite(shift.test[i])]
        if train and new:
            found.append(
                {
                    "name": classes[k],
                    "train": [
                        {"picture": train_pictures(i), "id": train_pictures.samples.ids[i]} for i in train[:EACH]
                    ],
                    "test": [{"picture": test_pictures(i), "id": test.images.samples.ids[i]} for i in new[:EACH]],
                }
            )
    return found


def suspect_rows(audit: Audit, pictures: Gallery, most: int = MOST_SUSPECTS) -> dict[str, Any]:
    """Contradicted labels with their pictures."""
    rows = [r | {"picture": pictures(r["index"])} for r in audit.contradicted[:most]]
    return tables.cut(rows, len(audit.contradicted))


def duplicate_rows(audit: Audit, pictures: Gallery, most: int = MOST_PAIRS) -> dict[str, Any]:
    """Pairs of copies with their pictures, those with different labels first."""
    pairs = sorted(audit.duplicates, key=lambda r: (r["label"] == r["other_label"], -r["similarity"]))
    rows = [r | {"picture": pictures(r["index"]), "other_picture": pictures(r["other_index"])} for r in pairs[:most]]
    return tables.cut(rows, len(pairs))


def _ends(audit: Audit, pictures: Gallery) -> dict[str, Any]:
    """The classes come in the order of their most informative sample."""
    ends = ends_of_classes(audit.information, EACH)
    rows = [
        {
            "name": name,
            "most": [r | {"picture": pictures(r["index"])} for r in most],
            "least": [r | {"picture": pictures(r["index"])} for r in least],
        }
        for name, (most, least) in list(ends.items())[:MOST_CLASSES]
    ]
    return tables.cut(rows, len(ends))


def _cases(
    cases: tuple[list[Explanation], str] | None, test: Tested | None, train_pictures: Gallery
) -> dict[str, Any] | None:
    if cases is None or test is None or not cases[0]:
        return None
    test_pictures = Gallery(test.images.samples, side=320)
    return {"rows": [case_view(e, test_pictures, train_pictures) for e in cases[0]], "level": cases[1]}


def case_view(explanation: Explanation, query_pictures: Gallery, train_pictures: Gallery) -> dict[str, Any]:
    """An explanation with pictures, for the template."""
    view = asdict(explanation) | {"picture": query_pictures(explanation.query)}
    view["probabilities"] = {
        k: p for k, p in explanation.probabilities.items() if p >= 0.005 or k == explanation.explained
    }
    for side in ("towards", "away"):
        view[side] = [p | {"picture": train_pictures(p["sample"])} for p in view[side]]
    return view


def _poolings(choices: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    for choice in choices:
        if isinstance(choice["tried"], dict):
            rows = [{"name": k, "kept": k == choice["kept"], **t} for k, t in choice["tried"].items()]
            return {"what": choice["what"], "rows": rows}
    return None


def _decays(choices: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    drawn = [(c, plots.decay_plot(c), words.one_decay(c)) for c in choices if isinstance(c["tried"], list)]
    drawn += [(c, plots.stages_plot(c), words.decays_of_stages(c)) for c in choices if "strengths" in c]
    return [{"what": c["what"], "plot": plot, "caption": caption} for c, plot, caption in drawn]


def _certificate(fit: FitReport) -> str:
    return sentence(f"of the main member: {fit.certificate}" if fit.solver == "stack" else fit.certificate)


def _facts(fitted: Model) -> list[dict[str, str]]:
    fit = fitted.report
    decay = number(fit.weight_decay)
    if fit.body_weight_decay not in (None, fit.weight_decay):
        decay = f"{decay} (head), {number(fit.body_weight_decay)} (body)"
    trained = fit.solver == FINETUNING
    if trained:
        decay = f"{decay} (of the head that it began with)"
    stacked, of_main = ("", "") if not isinstance(fitted, Stack) else (_members(fitted), " of the main member")
    pairs = {
        "members": stacked,
        f"solver{of_main}": fit.plan,
        "unknowns": f"{unknowns(fitted):,}",
        f"linearisation point{of_main}": "" if trained else fit.point or "none (the head alone)",
        f"weight decay{of_main}": decay,
        "class weights": weighting.class_weights(fit.to_dict()),
        f"input{of_main}": f"{fitted.preprocess.size} × {fitted.preprocess.size} px"
        + (f", {fitted.preprocess.n_views} views" if fitted.preprocess.n_views > 1 else ""),
        "skipped images": f"{len(fit.skipped):,}" if fit.skipped else "",
        "time": f"{fit.seconds:.1f} s on {fit.device}",
    }
    return [{"name": name, "value": value} for name, value in pairs.items() if value]


def _members(stack: Stack) -> str:
    return members(dict(zip(stack.names, stack.shares, strict=True)))


def _notes(audit: Audit) -> list[str]:
    named = {"leave_one_out": "Leave-one-out", "information": "Information", "similarity": "Similarity"}
    return [
        f"{named[key]} is {answer['level']}" + (f": {answer['note']}." if answer["note"] else ".")
        for key, answer in audit.levels.items()
    ]
