"""Reports of any size without a fit: made-up outputs of made-up samples that share a few pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from PIL import Image

from lqf.analysis.audit.audit import Audit
from lqf.analysis.audit.duplicates import near_duplicates
from lqf.analysis.audit.informative import by_information
from lqf.analysis.audit.labels import confused_classes, suspects
from lqf.data import Preprocess, Samples
from lqf.data.sources import PictureSource
from lqf.evaluation.calibration import probabilities
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import FittedModel, TrainingTable
from lqf.fitting.report import FitReport
from lqf.linear.ridge import Ridge
from lqf.linear.targets import decide
from lqf.reports.evaluation import Tested
from lqf.reports.explanation import Explanation, Push
from lqf.reports.html.report import report_page
from lqf.reports.shift import Shift
from lqf.settings import Settings
from lqf.solvers.solution import Step

LEVEL = {"level": "exact", "note": "the linearisation point held fixed"}


def _samples(n: int, classes: tuple[str, ...], prefix: str) -> Samples:
    pictures = [Image.effect_noise((80, 60), 20 + 30 * k).convert("RGB") for k in range(4)]
    labels = np.arange(n) % len(classes)
    source = PictureSource("synthetic", pictures, labels % 4)
    ids = tuple(f"{prefix}/{classes[y]}/image_{i:05d}.jpg" for i, y in enumerate(labels))
    return Samples(ids, classes, labels, np.ones(n), None, source)


def _outputs(labels: np.ndarray, n_classes: int, skill: float, rng: np.random.Generator) -> torch.Tensor:
    f = rng.normal(size=(len(labels), n_classes))
    f[np.arange(len(labels)), labels] += skill
    return torch.tensor(f[:, 1:] - f[:, :1] if n_classes == 2 else f)


def _report(n: int, classes: tuple[str, ...], loo: LeaveOneOut) -> FitReport:
    decays = [10.0**k for k in range(-3, 4)]
    tried = [{"weight_decay": d, "loo_error": 0.1 + 0.01 * abs(k), "loss": 0.5} for k, d in enumerate(decays)]
    pooling = {"avg": {"loo_error": 0.2, "loss": 0.6}, "bilinear": {"loo_error": 0.1, "loss": None}}
    return FitReport(
        n=n,
        classes=classes,
        backbone="efficientnet_lite0",
        plan="pcg: 1.2 GB, about 40 s",
        point="crossfit",
        form="centred",
        pooling="bilinear",
        views="flip",
        moved=None,
        choices=(
            {"what": "pooling", "kept": "bilinear", "tried": pooling},
            {"what": "weight decay (head)", "kept": 1.0, "tried": tried},
        ),
        solver="pcg",
        level="solved",
        ridge=Ridge(n, 2.0 * n),
        weight_decay=1.0,
        body_weight_decay=2.0,
        relative_residual=1.3e-2,
        passes=12,
        converged=True,
        certificate="reached the tolerance 2.0e-02: relative residual 1.3e-02 after 12 passes over the data",
        history=tuple(Step(k, k, None if k % 3 == 1 else 0.5**k) for k in range(1, 13)),
        unknowns=3_400_000,
        loo_error=loo.error,
        loo_standard_error=loo.standard_error,
        loo_level=loo.level,
        loo_note=loo.note,
        head_loo_error=0.1,
        point_ridge=1.0,
        device="cpu",
        processes=1,
        skipped=(),
        seconds=41.0,
    )


def _explanation(query: int, samples: Samples, n_train: int) -> Explanation:
    label = samples.classes[samples.labels[query]]
    push = tuple(Push(f"t{i}", i, samples.classes[0], 1 + i % 2, -0.1, 0.9) for i in range(min(6, n_train)))
    other = next((c for c in samples.classes if c != label), label)
    return Explanation(samples.ids[query], query, label, 0.93, {label: 0.93}, label, label, other, 0.93, push, push[:1])


def page(
    n: int,
    classes: tuple[str, ...],
    *,
    n_test: int = 0,
    name: str = "synthetic",
    copies: int = 3,
    fit: Mapping[str, Any] | None = None,
) -> str:
    """A report on n training images; with n_test, on a test set from another distribution.

    ``fit``: other values of the fit's report.
    """
    rng, train = np.random.default_rng(0), _samples(n, classes, "train")
    outputs = _outputs(train.labels, len(classes), 2.5, rng)
    labels = torch.tensor(train.labels)
    loo = LeaveOneOut(outputs, "estimated", "by refits", labels=labels, weights=torch.ones(n))
    table = TrainingTable(train.ids, train.labels, train.weights, None, tuple(map(str, range(n))))
    fitted = FittedModel(
        None, Preprocess(size=96), classes, 15.0, 0.0, torch.zeros(1, 1), torch.zeros(1, 1), "all", torch.zeros(0),
        1.0, table, loo, replace(_report(n, classes, loo), **fit or {}), Settings(),
    )  # fmt: skip  # type: ignore[arg-type]
    audit = Audit(
        suspects=suspects(fitted, loo),
        duplicates=near_duplicates(fitted, [(i, i + 1, 0.99) for i in range(min(copies, n - 1))]),
        information=by_information(fitted, torch.tensor(rng.gamma(1.0, size=n))),
        confusions=confused_classes(fitted, loo),
        classes=classes,
        samples=train,
        loo_error=loo.error,
        levels=dict.fromkeys(("leave_one_out", "information", "similarity"), LEVEL),
    )
    if not n_test:
        return report_page(fitted, loo, audit, name=name)
    test = _samples(n_test, classes, "test")
    outputs = _outputs(test.labels, len(classes), 0.8, rng)
    guessed = decide(outputs).numpy()
    p = probabilities(outputs, 1.0).numpy()
    images: Any = type("Images", (), {"samples": test})()
    tested = Tested(
        classes=classes,
        labels=test.labels,
        predicted=guessed,
        probabilities=p,
        weights=test.weights,
        images=images,
        all_samples=test,
    )
    shift = Shift(0.93, 0.01, rng.normal(size=n), 2 + rng.normal(size=n_test))
    cases = [_explanation(q, test, n) for q in tested.cases()]
    return report_page(fitted, loo, audit, name=name, test=tested, shift=shift, cases=(cases, "exact"))
