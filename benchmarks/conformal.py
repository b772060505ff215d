"""Coverage and size of conformal sets on test images: jackknife+ beside split conformal and a last-layer Laplace.

    python benchmarks/conformal.py DATA… --size 128 --features FOLDER

Every DATA is a folder with train/ and test/. All methods get the same features of EfficientNet-Lite0, averaged over
positions, which are made once (`--features` keeps them). A closed-form head is fitted to them, with everything chosen
automatically. Sets are made of training images alone:

    jackknife+, minmax, jackknife   all training images, by exact leave-one-out (`LQFClassifier.predict_set`)
    by class                        jackknife+ within every class
    split                           a head on one half, calibrated on the other; the mean of ten divisions
    laplace                         a logistic head (its penalty by three folds) with a Kronecker-factored Laplace
                                    approximation, probit; sets of the most probable classes whose probabilities add up
                                    to the coverage. Where laplace-torch is installed, up to ten classes: it forms
                                    the last layer's Jacobian, 50 MB an image for 102 classes

`oracle_size` is the mean size of sets −log p ≤ q with the q that covers exactly as many test images as were asked for:
what the probabilities of a method are worth, whatever chose the threshold.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.embedded import Part, embedded, halves, head_on, inputs
from common.hardware import hardware, write
from common.options import Options

from lqf import LQFClassifier
from lqf.analysis import Units
from lqf.evaluation.intervals import wilson
from lqf.evaluation.reliability import calibration_error, reliability
from lqf.uncertainty.conformal import p_values, voices
from lqf.uncertainty.scores import score

COVERAGES = (0.8, 0.9, 0.95)
SPLITS = 10
MOST_CLASSES = 10
"""Of the Laplace approximation."""
WAYS: dict[str, dict[str, Any]] = {
    "jackknife+": {"way": "jackknife+"},
    "minmax": {"way": "minmax"},
    "jackknife": {"way": "jackknife"},
    "by class": {"way": "jackknife+", "by_class": True},
}


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32")
    out.add_data("+")
    out.add_settings(backbone="efficientnet_lite0", size=128)
    out.add_argument("--features", type=Path, help="folder that keeps the features for the next run")
    return out


def of_sets(included: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Coverage with its interval by the number of test images, mean size, and empty sets."""
    share = float(included[np.arange(len(y)), y].mean())
    low, high = wilson(share, len(y))
    sizes = included.sum(1)
    return {
        "covered": round(share, 4),
        "interval": [round(low, 4), round(high, 4)],
        "size": round(float(sizes.mean()), 3),
        "empty": round(float((sizes == 0).mean()), 4),
    }


def of_probabilities(p: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Error, log loss, calibration error, and what the sets would be with the threshold that just covers."""
    right, own = p.argmax(1) == y, p[np.arange(len(y)), y]
    found = {
        "error": round(float(1 - right.mean()), 4),
        "log_loss": round(float(-np.log(own.clip(1e-300)).mean()), 4),
        "calibration_error": round(calibration_error(reliability(p.max(1), right)) or 0.0, 4),
    }
    sizes = {str(c): round(float((p >= np.quantile(own, 1 - c)).sum(1).mean()), 3) for c in COVERAGES}
    return {**found, "oracle_size": sizes}


def by_split(train: Part, test: Part, divisions: int = SPLITS) -> dict[str, Any]:
    """Split conformal, the mean of several divisions."""
    began, every = time.perf_counter(), []
    for seed in range(divisions):
        fit, calibrate = (train.take(rows) for rows in halves(train.y, seed))
        model = head_on(fit)
        asked = score("probability", model.fitted_.beta)
        e, scores = (
            asked(torch.tensor(model.decision_function(inputs(p.x))).view(len(p), -1)) for p in (calibrate, test)
        )
        units = Units.of(tuple(map(str, range(len(calibrate)))))
        labels = torch.tensor(calibrate.y)
        weights = voices(units, labels, scores.shape[1], torch.ones(len(labels), dtype=torch.bool), by_class=False)
        every.append(p_values(e.gather(1, labels[:, None])[:, 0], scores[None], units.member, weights).numpy())
    seconds = (time.perf_counter() - began) / divisions
    rows = {str(c): [of_sets(p > 1 - c + 1e-9, test.y) for p in every] for c in COVERAGES}
    mean = {
        c: {k: round(float(np.mean([r[k] for r in some])), 4) for k in ("covered", "size", "empty")}
        for c, some in rows.items()
    }
    return {"seconds": round(seconds, 3), **mean}


def by_laplace(train: Part, test: Part) -> dict[str, Any] | None:
    """A logistic head with a Laplace approximation; None where laplace-torch is not installed, or classes are many."""
    if importlib.util.find_spec("laplace") is None or train.y.max() >= MOST_CLASSES:
        return None
    from laplace import Laplace
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.preprocessing import StandardScaler
    from torch.utils.data import DataLoader, TensorDataset

    began = time.perf_counter()
    scale = StandardScaler().fit(train.x)
    x, asked = (torch.tensor(scale.transform(p.x), dtype=torch.float32) for p in (train, test))
    fit = LogisticRegressionCV(Cs=[1e-4, 1e-3, 1e-2], cv=3, scoring="neg_log_loss", max_iter=100)
    fit.fit(x.numpy(), train.y)
    w, b = fit.coef_, fit.intercept_
    if len(w) == 1:
        w, b = np.concatenate([0 * w, w]), np.concatenate([0 * b, b])
    head = torch.nn.Linear(x.shape[1], len(w))
    head.load_state_dict({"weight": torch.tensor(w, dtype=torch.float32), "bias": torch.tensor(b, dtype=torch.float32)})
    la = Laplace(torch.nn.Sequential(torch.nn.Identity(), head), "classification", "last_layer", "kron")
    la.fit(DataLoader(TensorDataset(x, torch.tensor(train.y)), batch_size=256))
    la.optimize_prior_precision(method="marglik")
    with torch.no_grad():
        p = torch.cat([la(some, link_approx="probit") for some in asked.split(8)]).double().numpy()
    seconds = time.perf_counter() - began
    order = np.argsort(-p, 1, kind="stable")
    before = np.take_along_axis(p, order, 1).cumsum(1) - np.take_along_axis(p, order, 1)
    sets = {}
    for c in COVERAGES:
        included = np.zeros_like(p, dtype=bool)
        np.put_along_axis(included, order, before < c, 1)
        sets[str(c)] = of_sets(included, test.y)
    return {"seconds": round(seconds, 3), **sets, **of_probabilities(p, test.y)}


def measured(train: Part, test: Part) -> dict[str, Any]:
    """All methods on one data set."""
    seconds, model = timed(lambda: head_on(train))
    asked = inputs(test.x)
    result: dict[str, Any] = {"train": len(train), "test": len(test), "classes": len(model.classes_)}
    result["fit_seconds"] = round(seconds, 3)
    result["probabilities"] = of_probabilities(model.predict_proba(asked), test.y)
    opened, _ = timed(lambda: model.analyse(inputs(train.x)))
    result["seconds_to_open"] = round(opened, 3)
    for name, how in WAYS.items():
        result[name] = by_jackknife(model, asked, test.y, how)
    return {**result, "split": by_split(train, test), "laplace": by_laplace(train, test)}


def by_jackknife(model: LQFClassifier, asked: np.ndarray, y: np.ndarray, how: dict[str, Any]) -> dict[str, Any]:
    """Sets of the model itself."""
    seconds, sets = timed(lambda: model.predict_set(asked, **how))
    rows: dict[str, Any] = {str(c): of_sets(sets.at(c).included, y) for c in COVERAGES}
    for c, row in rows.items():
        limit = sets.at(float(c)).limit
        rows[c] = row if limit is None else {**row, "limit": limit}
    return {"seconds": round(seconds, 3), "level": sets.level, **rows}


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and the result."""
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def main() -> None:
    """Measure, print, write."""
    args = options().parse()
    versions = {p: importlib.metadata.version(p) for p in ("laplace-torch",) if importlib.util.find_spec("laplace")}
    result: dict[str, Any] = {"hardware": hardware(torch.device("cpu")), "versions": versions, "data": {}}
    for data in args.data:
        train, test = embedded(data, args.features, backbone=args.backbone, size=args.size)
        row = result["data"][data.name] = measured(train, test)
        print(data.name, row["probabilities"], flush=True)
        for name in (*WAYS, "split", "laplace"):
            sets = row[name]
            if sets is not None:
                shown = "  ".join(f"{sets[str(c)]['covered']:.3f} ({sets[str(c)]['size']:.2f})" for c in COVERAGES)
                print(f"  {name:<12} {shown}  {sets['seconds']:.2f} s", flush=True)
        print(write("conformal", result, args.out), flush=True)


if __name__ == "__main__":
    main()
