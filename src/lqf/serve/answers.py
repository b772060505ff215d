"""What the page asks for, as JSON values; every question is one function of the session."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from lqf.analysis import Queries
from lqf.errors import LQFError
from lqf.reports.explanation import Push
from lqf.reports.explanations import explain
from lqf.serve.refused import Refused
from lqf.serve.session import Session

Json = dict[str, Any]
MOST_ROWS = 200
"""Images of one answer; the page asks for more as one scrolls."""
MOST_PUSHES = 12
"""Training units of each kind behind a prediction."""
COVERAGE = 0.9
"""Of prediction sets."""
ORDERS = ("given", "doubtful", "uncertain", "information")


def about(session: Session) -> Json:
    """The model, and what is known of it."""
    fit = session.analysis.model.report
    test = session.test
    return {
        "name": session.name,
        "what": session.analysis.model.what,
        "classes": list(session.classes),
        "train": len(session.labels),
        "test": None if test is None else len(test.labels),
        "error": session.error,
        "error_level": session.loo.level,
        "test_error": None if test is None else test.evaluation.error.value,
        "solver": fit.solver,
        "level": session.analysis.level,
        "note": session.analysis.note,
        "read_only": session.read_only,
        "pool": session.pool is not None,
        "out": session.out.name,
    }


def images(session: Session, which: str, query: Json) -> Json:
    """Some of the training or test images: of a class, wrong ones only, in an order."""
    rows = _order(session, which, query.get("order", "given"))
    labels, predicted, p = _outcome(session, which)
    name = query.get("class", "")
    if name:
        if name not in session.classes:
            raise Refused(404, "there is no such class")
        rows = rows[labels[rows] == session.classes.index(name)]
    if query.get("wrong") == "1":
        rows = rows[predicted[rows] != labels[rows]]
    start, most = _whole(query.get("start", "0")), min(_whole(query.get("most", "60")), MOST_ROWS)
    return {
        "n": len(rows),
        "start": start,
        "rows": [_row(session, which, int(i), labels, predicted, p) for i in rows[start : start + most]],
    }


def image(session: Session, which: str, i: int) -> Json:
    """One image: what it is taken for, and the training images behind that."""
    queries = session.queries(which, i)
    found = explain(session.analysis, queries, most=MOST_PUSHES)
    explained = found[0]
    label = session.classes[_outcome(session, which)[0][i]] if which in ("train", "test") else None
    known = session.samples(which, i)[0].ids[session.samples(which, i)[1]]
    return {
        "set": which,
        "n": i,
        "id": known,
        "label": label,
        "predicted": explained.predicted,
        "probability": explained.probability,
        "probabilities": list(explained.probabilities.items()),
        "against": explained.against,
        "share": explained.share,
        "towards": _pushes(session, explained.towards),
        "away": _pushes(session, explained.away),
        "level": found.level,
        "note": found.note,
        "prediction_set": None if which == "train" else _set(session, queries),
        "out_of_sample": _row(session, which, i, *_outcome(session, which)) if which == "train" else None,
    }


def suggested(session: Session) -> Json:
    """Images of the pool to label next, the most useful first."""
    found = session.suggested
    rows = zip(found.images.tolist(), found.ids, found.predicted, found.probabilities, strict=True)
    return {
        "of": len(found.samples),
        "level": found.level,
        "note": found.note,
        "rows": [{"n": n, "id": name, "predicted": label, "probability": float(p)} for n, name, label, p in rows],
    }


def summary(session: Session) -> Json:
    """Test error without the least informative, the most informative, and random training images."""
    return session.summary.to_dict()


def decays(session: Session) -> Json:
    """Error and cross-entropy at other weight decays of head and body."""
    path = session.path
    every = {(t.weight_decay, t.body_weight_decay): t for t in (*path.grid, path.current)}
    names = ("weight_decay", "body_weight_decay", "error", "loss")
    return {
        "by": path.by,
        "n": path.n,
        "level": path.level,
        "note": path.note,
        "current": {name: path.current.to_dict()[name] for name in names},
        "best": {name: path.best.to_dict()[name] for name in names},
        "grid": [{name: t.to_dict()[name] for name in names} for t in every.values()],
    }


def what_if(session: Session, which: str, i: int, without: Sequence[int], test: bool = True) -> Json:
    """The prediction of one image, and the errors, without some training images.

    That of the test set may be left for later: its kernel takes long, the first time.
    """
    began = time.perf_counter()
    n = len(session.labels)
    if not all(0 <= k < n for k in without):
        raise Refused(400, f"training images have numbers from 0 to {n - 1}")
    change: Json = {"without": sorted(set(without))}
    queries = session.queries(which, i)
    session.prepare(queries)
    found = session.analysis.what_if(queries, **change)
    p = found.probabilities[0]
    order = p.argsort(descending=True, stable=True)[:5].tolist()
    return {
        "without": change["without"],
        "predicted": found.predicted[0],
        "probability": float(p.max()),
        "probabilities": [[session.classes[k], float(p[k])] for k in order],
        "changed": bool(found.changed[0]),
        "level": found.level,
        "note": found.note,
        "leave_one_out": session.changed_error(change),
        "test": session.changed_test_error(change) if test else None,
        "seconds": time.perf_counter() - began,
    }


def labels(session: Session, query: Json) -> Json:
    """Labels that leave-one-out contradicts, the least credible first, and those that were corrected."""
    corrected = session.corrections.now
    rows = [r for r in session.suspects if r["predicted"] != r["label"] or r["index"] in corrected]
    start, most = _whole(query.get("start", "0")), min(_whole(query.get("most", "60")), MOST_ROWS)
    keys = ("id", "label", "predicted", "label_probability", "predicted_probability", "suspicious")
    return {
        "n": len(rows),
        "start": start,
        "rows": [{"n": r["index"], **{k: v for k, v in r.items() if k in keys}} for r in rows[start : start + most]],
        **corrections(session),
    }


def corrections(session: Session) -> Json:
    """What would be changed, and what that does to the leave-one-out error."""
    pending = session.corrections
    change = pending.change()
    return {
        "corrections": [{"n": i, "action": c.action, "label": c.label} for i, c in sorted(pending.now.items())],
        "steps": pending.steps,
        "leave_one_out": session.changed_error(change) if len(pending) else {"before": session.error, "after": None},
    }


def _set(session: Session, queries: Queries) -> Json | None:
    """Classes of which one is right with the chosen probability; None where nothing out of sample is known."""
    try:
        sets = session.model.predict_set(queries, COVERAGE, train=session.train, progress=session.progress)
    except LQFError as reason:
        return {"coverage": COVERAGE, "classes": None, "level": "", "note": str(reason)}
    names = [name for name, inside in zip(session.classes, sets.included[0], strict=True) if inside]
    return {"coverage": COVERAGE, "classes": names, "level": sets.level, "note": sets.note}


def _order(session: Session, which: str, order: str) -> np.ndarray:
    """Numbers of all images, in an order."""
    if order not in ORDERS:
        raise Refused(400, f"images are ordered by {', '.join(ORDERS)}")
    labels, predicted, p = _outcome(session, which)
    every = np.arange(len(labels))
    if order == "given":
        return every
    if order == "information":
        if which != "train":
            raise Refused(400, "only training images inform the model")
        return (-session.information).argsort(kind="stable")
    if order == "uncertain":
        return np.nan_to_num(p.max(1), nan=2.0).argsort(kind="stable")
    return np.nan_to_num(p[every, labels], nan=2.0).argsort(kind="stable")


def _outcome(session: Session, which: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels (N,), predictions (N,) and probabilities (N, n_classes): of training images without each of them."""
    if which == "train":
        return session.labels, session.loo.predicted.cpu().numpy(), session.probabilities
    if which == "test" and session.test is not None:
        return session.test.labels, session.test.predicted, session.test.probabilities
    raise Refused(404, "there are no such images; start with --test to have test images")


def _row(session: Session, which: str, i: int, labels: np.ndarray, predicted: np.ndarray, p: np.ndarray) -> Json:
    known = bool(np.isfinite(p[i]).all())
    return {
        "n": i,
        "id": session.samples(which, i)[0].ids[i],
        "label": session.classes[labels[i]],
        "predicted": session.classes[predicted[i]] if known else None,
        "probability": float(p[i, predicted[i]]) if known else None,
        "wrong": known and bool(predicted[i] != labels[i]),
    }


def _pushes(session: Session, pushes: Sequence[Push]) -> list[Json]:
    units = session.analysis.units
    return [
        {
            "n": push.sample,
            "name": push.name,
            "label": push.label,
            "samples": units.samples(units.names.index(push.name)).tolist(),
            "change": push.change,
            "probability": push.probability,
        }
        for push in pushes
    ]


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Refused(400, "a number from 0 up is expected")
    return int(text)
