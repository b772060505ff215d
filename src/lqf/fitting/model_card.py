"""The README.md of a model folder: what the model is, how good, on which data, and how it came about.

Its head is that of Hugging Face's model cards, so that a folder can be uploaded as it is.
"""

from __future__ import annotations

import html
import json
import platform
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
import torch

from lqf.fitting.fitted_model import FittedModel
from lqf.fitting.report import FitReport
from lqf.fitting.stack import Model, Stack
from lqf.utils.text import capitalized, clean, counted, duration, number, percent

CLASSES = 100
"""So many have a line of their own."""
LEVELS = {
    "exact": "by a factorisation, to floating-point precision",
    "solved": "by an iterative solver, with a measured residual",
    "estimated": "an estimate",
}


def model_card(model: Model, version: str) -> str:
    """Markdown.

    Args:
        model: what is saved.
        version: of this library.
    """
    report = model.report
    parts = [
        _front(model),
        f"# Image classifier: {_classes(model.classes)}",
        f"{capitalized(model.what)}, fitted by [lqf](https://pypi.org/project/lqf-torch/), Linear Quadratic "
        "Fine-Tuning.",
        "## How good",
        _errors(report),
        "## Data",
        _data(model),
        "## What was tried",
        _tried(report),
        "## How it was solved",
        _solved(model),
        "## Limits",
        _limits(model),
        "## Use",
        _use(),
        "## Versions",
        f"lqf {version}, torch {torch.__version__.partition('+')[0]}, numpy {np.__version__}, Python "
        f"{platform.python_version()}.",
    ]
    return "\n\n".join(parts) + "\n"


def _front(model: Model) -> str:
    tags = ["image-classification", "lqf", "linear-quadratic-fine-tuning"]
    lines = ["library_name: lqf", "pipeline_tag: image-classification", f"tags: {json.dumps(tags)}"]
    error = model.report.error if model.report.error is not None else model.report.loo_error
    if error is not None:
        lines += [
            "model-index:",
            f"- name: {json.dumps(_plain(model.what))}",
            "  results:",
            "  - task: {type: image-classification}",
            f"    dataset: {{type: images, name: {json.dumps(_source(model))}}}",
            f"    metrics: [{{type: accuracy, name: Expected accuracy on new images, value: {1 - error:.4f}}}]",
        ]
    return "\n".join(["---", *lines, "---"])


def _errors(report: FitReport) -> str:
    lines = []
    if report.error is not None and report.error_standard_error is not None:
        low, high = _interval(report.error, report.error_standard_error)
        note = f" ({report.error_note})" if report.error_note else ""
        lines.append(
            f"- Expected error on new images like these: **{percent(report.error)}**, "
            f"95 % interval {low} to {high}{note}."
        )
    if report.loo_error is not None and report.loo_standard_error is not None:
        low, high = _interval(report.loo_error, report.loo_standard_error)
        how = ", ".join(filter(None, [report.loo_level, report.loo_note]))
        lines.append(
            f"- Leave-one-out error of this model: {percent(report.loo_error)}, 95 % interval {low} to {high} ({how})."
        )
    if report.balanced_error is not None:
        lines.append(f"- Mean of the classes' errors: {percent(report.balanced_error)}.")
    if report.error_unknown:
        return f"{capitalized(report.error_unknown)}; measure it with `lqf evaluate` on labelled images."
    if not lines:
        return "The error on new images is not known; measure it with `lqf evaluate` on labelled images."
    return "\n".join([*lines, "- No test set was used."])


def _interval(error: float, se: float) -> tuple[str, str]:
    return percent(max(0.0, error - 1.96 * se)), percent(min(1.0, error + 1.96 * se))


def _data(model: Model) -> str:
    if model.report.privacy is not None:
        return _released(model.report, model.report.privacy)
    table, counts = model.train, np.bincount(model.train.labels, minlength=len(model.classes))
    lines = [f"{counted(len(table.ids), 'image')} of {counted(len(model.classes), 'class')}, from {_source(model)}."]
    if model.report.skipped:
        lines.append(f"{counted(len(model.report.skipped), 'image')} could not be read and were left out.")
    if model.report.weighted:
        lines.append("Images have unequal weights, in the objective and in the errors above.")
    if table.groups is not None:
        lines.append(f"Images of one group ({counted(len(set(table.groups)), 'group')}) were left out together.")
    rows = [(name, f"{n:,}") for name, n in zip(model.classes, counts, strict=True)]
    more = [("…", counted(len(rows) - CLASSES, "more class"))] if len(rows) > CLASSES else []
    return " ".join(lines) + "\n\n" + _table(("class", "images"), [*rows[:CLASSES], *more])


def _released(report: FitReport, privacy: dict[str, Any]) -> str:
    """What may be said of images that are private."""
    covered = ", ".join(privacy["not_private"])
    lines = [
        f"{counted(report.n, 'image')} of {counted(len(report.classes), 'class')}.",
        f"The model is ({privacy['epsilon']:g}, {privacy['delta']:g})-differentially private: {privacy['neighbours']}.",
        f"Not covered by that: {covered}." if covered else "",
        "" if privacy["secure_noise"] else "Its noise came from a seed that somebody knows, so it protects nothing.",
    ]
    return " ".join(line for line in lines if line)


def _tried(report: FitReport) -> str:
    if report.rungs:
        rows = [
            (r["name"], percent(r["error"]), number(r["loss"]), "yes" if r["kept"] else f"no: {r['why']}")
            for r in report.rungs
        ]
        text = "One model after another, judged on images that it had not seen; the last one kept is this model."
        return f"{text}\n\n" + _table(("model", "error", "cross-entropy", "kept"), rows)
    if report.choices:
        choices = [(c["what"], _kept(c["kept"]), _compared(c["tried"])) for c in report.choices]
        return "Chosen by leave-one-out on the training images.\n\n" + _table(("choice", "kept", "compared"), choices)
    return "Nothing was chosen automatically."


def _kept(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value)


def _compared(tried: Any) -> str:
    return ", ".join(map(str, tried)) if isinstance(tried, dict) else counted(len(tried), "value")


def _solved(model: Model) -> str:
    r = model.report
    body = "" if r.body_weight_decay is None else f", body {number(r.body_weight_decay)}"
    lines = [
        f"- Planned as {r.plan}." if r.plan else "",
        f"- Weight decay: head {number(r.weight_decay)}{body}. Pooling: {r.pooling}. Views: {r.views}"
        + (f", of predictions {r.predict_views}" if r.predict_views else "")
        + ".",
        f"- Certificate: {r.certificate}." if r.certificate else "",
        *(f"- Constraint: {c['what']}." for c in (r.constraints or {}).get("constraints", ())),
        f"- Level: {r.level}, {LEVELS.get(r.level, '')}." if r.level in LEVELS else "",
        f"- {duration(r.seconds)} on {r.device}.",
    ]
    return "\n".join(line for line in lines if line)


def _limits(model: Model) -> str:
    errors, private = (model.report.error, model.report.loo_error), model.report.privacy is not None
    known = any(error is not None for error in errors)
    lines = [
        f"- {'The errors above hold' if known else 'It was made'} for images drawn like the training images. On images "
        "from elsewhere, of other cameras or other times, errors may be far higher; measure them.",
        f"- An image of none of the {len(model.classes)} classes is given one of them all the same.",
        "- Probabilities are not calibrated."
        if private or not known
        else "- Probabilities are calibrated by one temperature, on images left out; not for images unlike these.",
    ]
    if not model.report.converged:
        lines.append("- The solver had not converged when it stopped.")
    small = int((np.bincount(model.train.labels, minlength=len(model.classes)) < 10).sum())
    if small and not private:
        lines.append(f"- {counted(small, 'class')} with fewer than ten images: little is known about them.")
    if isinstance(model, Stack) and not all(m.solved for m in model.members):
        lines.append("- A fine-tuned member answers no questions about training images.")
    elif isinstance(model, FittedModel) and not model.solved:
        lines.append("- A fine-tuned network answers no questions about training images.")
    return "\n".join(lines)


def _use() -> str:
    return """```
pip install lqf-torch
```

```python
import lqf

model = lqf.load("FOLDER")      # this folder
model.predict("new.jpg"), model.explain("new.jpg")
```

```
lqf predict FOLDER IMAGE…
lqf explain FOLDER IMAGE… -o why.html
```"""


# --- text -------------------------------------------------------------------------------------------------------------


def _classes(names: Sequence[str]) -> str:
    shown = [_plain(name) for name in names[:4]]
    return ", ".join(shown) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _source(model: Model) -> str:
    """The folder's or file's own name; where it lies is nobody else's business."""
    return _plain(PurePath(model.train.source).name) if model.train.source else "data in memory"


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *([_plain(str(v)) for v in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str) -> str:
    """Neither HTML nor Markdown, on one line."""
    return html.escape(html.unescape(clean(text)), quote=False).replace("|", "\\|").replace("`", "'")
