"""Small fits whose every number is recorded: what they are, and what is kept of each.

Only what a user sees is called, so that the recordings hold whatever is moved inside: `record.py` writes them,
`test_golden.py` compares. Everything is float64 on one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fits import convnet, pictures
from lqf import LQFClassifier
from lqf.runtime.distributed import joined
from recorder import Interrupting

N = 22
FIXED = {"solver": "pcg", "tol": 1e-9, "max_passes": 60, "weight_decay": 1.0, "body_weight_decay": 3.0}
COMMON = {"unconverged": "keep", "size": 10, "views": "none", "device": "cpu", "dtype": "float64", "batch_size": 5}
FITS: dict[str, dict[str, Any]] = {
    "head": {"solver": "head"},
    "head-views-auto": {"solver": "head", "views": "auto", "size": 8},
    "dense": {"solver": "dense"},
    "dense-probe": {"solver": "dense", "head": "probe"},
    "dense-ten": {"solver": "dense", "views": "ten", "size": 8},
    "dense-views-auto": {"solver": "dense", "views": "auto", "size": 8},
    "pcg": {**FIXED, "draws": 1},
    "pcg-chosen": {"solver": "pcg", "max_passes": 8},
    "pcg-plain": {**FIXED, "preconditioner": "none", "loo": "none"},
    "pcg-kernel": {**FIXED, "loo": "kernel"},
    "views": {**FIXED, "views": "flip", "size": 8},
    "resized": {**FIXED, "views": "resized", "size": 8},
    "bilinear": {**FIXED, "pooling": "bilinear", "pool_channels": 3},
    "bilinear-chosen": {"solver": "dense", "pooling": "auto", "pool_channels": 4},
    "bilinear-reduction": {**FIXED, "pooling": "bilinear", "pool_channels": 3, "linearize_reduction": True},
    "w0": {**FIXED, "form": "w0", "batch_size": 2},
    "w0-dense": {"solver": "dense", "form": "w0", "head": "random"},
    "prefix": {**FIXED, "linearize": "deep", "head": "probe"},
    "several": {**FIXED, "head": "several"},
    "means": {**FIXED, "head": "means"},
    "heavy": {"solver": "dense", "head": "heavy"},
    "relinearised": {**FIXED, "relinearize": 1, "body_weight_decay": 30.0},
    "relinearised-dense": {"solver": "dense", "relinearize": 2, "body_weight_decay": 30.0, "loo": "folds"},
    "relinearised-kernel": {"solver": "dense", "relinearize": 1, "body_weight_decay": 30.0, "loo": "kernel"},
    "finetuned": {"solver": "dense", "finetune_first": 2, "minibatch": 5, "loo": "folds"},
    "sgd": {"solver": "sgd", "epochs": 4, "minibatch": 5, "weight_decay": 1.0, "body_weight_decay": 3.0},
    "adam": {"solver": "adam", "epochs": 4, "minibatch": 5, "weight_decay": 1.0, "body_weight_decay": 3.0},
    "grouped": {"solver": "dense"},
    "binary": {"solver": "dense"},
}
SHARED = ("head", "dense", "pcg", "views", "bilinear", "relinearised", "w0", "prefix")
"""Those that two processes fit, too."""
ANALYSED = {"head": "auto", "dense": "auto", "pcg": "auto", "views": "auto", "w0": "auto", "grouped": "auto"}
KFAC = ("pcg",)
MODELS = ("relinearised", "bilinear", "grouped")
"""Those that were saved."""
TIMES = ("seconds", "stages", "plan")
"""What of a report depends on the machine's speed."""


def data(case: str) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Pictures, labels, and weights and groups where the case has them."""
    x, y = pictures(N, 2 if case == "binary" else 3)
    if case != "grouped":
        return x, y, {}
    return x, y, {"sample_weight": np.linspace(0.5, 2, N), "groups": [f"g{i // 6}{k}" for i, k in enumerate(y)]}


def model_of(case: str) -> LQFClassifier:
    """Not fitted yet."""
    return LQFClassifier(**{"backbone": convnet(), **COMMON, **FITS[case]})


def fitted(case: str, **options: Any) -> LQFClassifier:
    """Fitted; options as of `fit`."""
    x, y, more = data(case)
    return model_of(case).fit(x, y, **more, **options)


def kept(model: LQFClassifier) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The report without times, and all tensors of a fitted model with its predictions."""
    report = {k: v for k, v in model.report_.items() if k not in TIMES}
    report["history"] = [{k: v for k, v in step.items() if k != "seconds"} for step in report["history"]]
    new = pictures(6, seed=7)[0]
    f = model.fitted_
    tensors = {"head": f.head, "point": f.point, "delta": f.delta, "beta": torch.tensor(f.beta, dtype=torch.float64)}
    tensors["outputs"] = torch.from_numpy(model.decision_function(new))
    tensors["probabilities"] = torch.from_numpy(model.predict_proba(new))
    if f.loo is not None:
        tensors["loo"] = f.loo.outputs
    return report, {k: v.contiguous() for k, v in tensors.items()}


def answers(
    case: str, method: str = "auto", model: LQFClassifier | None = None
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Labels and numbers of all questions about a model (default: a new fit of the case)."""
    model = fitted(case) if model is None else model
    x, y, _ = data(case)
    new, truth = pictures(4, seed=7)
    a = model.analyse(x, y, method=method)
    queries = a.queries(new, truth)
    influence, information, loo = a.influence(queries), a.information(queries), a.leave_one_out()
    levels = {"influence": influence, "information": information, "leave_one_out": loo}
    tensors = {"effects": influence.effects, "information": information.values, "left_out": loo.outputs}
    if method != "kfac":
        some, what = a.leave_one_out([0, 3]), a.what_if(queries, without=[1], relabel={2: 0}, weights={5: 2.0})
        chosen = a.influence(queries, units=[0, 2])
        own = a.information()
        levels |= {"some": some, "what_if": what, "chosen": chosen, "own": own}
        tensors |= {"some": some.outputs, "what_if": what.outputs, "chosen": chosen.effects, "own": own.values}
        tensors["leaving"], tensors["leaving_own"] = a.leaving(queries, steps=4), a.leaving(steps=4)
        curve = a.curve(queries, least=tensors["leaving"], most=tensors["leaving"].flip(0), shares=(0.3,), repeats=2)
        tensors["curve"] = torch.tensor([*curve.least, *curve.most, *curve.random], dtype=torch.float64)
    tensors["similarity"] = a.similarity().matrix
    levels_and_notes = {name: [result.level, result.note] for name, result in levels.items()}
    return levels_and_notes, {k: v.contiguous() for k, v in tensors.items()}


def resumed(folder: Path, case: str = "pcg", at: int = 5) -> LQFClassifier:
    """Interrupted in the solve, and continued from its checkpoint."""
    file = folder / f"{case}.checkpoint"
    try:
        fitted(case, checkpoint=file, progress=Interrupting("solving", at))
    except KeyboardInterrupt:
        return fitted(case, checkpoint=file, resume=True)
    raise AssertionError("the solve was over before it was interrupted")


def by_two(write: Callable[[str, dict[str, Any], dict[str, Tensor]], None]) -> None:
    """One of two processes, the first of which writes what they find."""
    with joined("cpu") as world:
        for case in SHARED:
            found = kept(fitted(case, world=world))
            if world.rank == 0:
                write(f"{case}-by-two", *found)
