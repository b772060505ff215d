"""How many flipped labels does an audit find? Its list, cleanlab's, and self-influence by K-FAC.

    python benchmarks/label_noise.py DATA [--flip 0.1] [--solver auto] [--size 224] [--per-class K] [--draws 3]

DATA is a folder with train/CLASS/*.jpg. A share of the labels is replaced by another class, chosen at random. The model
is fitted on what remains, and every method ranks the samples, the most suspicious first:

    audit                soft leave-one-out margin (`lqf audit`)
    hard margin          the best other leave-one-out score minus the label's own
    cleanlab, loo        cleanlab's self-confidence of the same leave-one-out probabilities
    cleanlab, 5 folds    cleanlab's self-confidence of logistic regression on the same features, five folds, penalty by
                         its log-loss
    head, 5 folds        margin of the closed-form head, five folds
    K-FAC                self-influence by the paper's K-FAC formula: rise of a sample's own loss without it

The result is the share of flipped labels within the first 10 % and 20 % of each list; chance gives 10 % and 20 %, and a
share of the labels below 10 % could not be found in a list of 10 % by definition. Without cleanlab (pip install
cleanlab) its lists are left out.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from common.hardware import hardware, write
from common.options import Options, settings_of
from common.subset import pictures

from lqf import LQFClassifier
from lqf.analysis.audit.labels import soft_margin
from lqf.data import Images, load_samples
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting.folds import stratified_folds
from lqf.fitting.select_ridge import Judge, choose_ridge
from lqf.linear.batch import usual_rows
from lqf.linear.targets import centre, encode
from lqf.reports.cleanlab import for_cleanlab
from lqf.runtime.device import resolve_device
from lqf.solvers import Head

SHARES = (0.1, 0.2)
METHODS = ("audit", "hard margin", "cleanlab, loo", "cleanlab, 5 folds", "head, 5 folds", "K-FAC")


def flip(labels: np.ndarray, share: float, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Labels of which a share is another class, and which those are."""
    n_classes = labels.max() + 1
    flipped = np.zeros(len(labels), bool)
    flipped[generator.permutation(len(labels))[: round(share * len(labels))]] = True
    other = (labels + generator.integers(1, n_classes, len(labels))) % n_classes
    return np.where(flipped, other, labels), flipped


def found(suspicion: np.ndarray, flipped: np.ndarray) -> dict[str, float]:
    """Share of the flipped labels within the first shares of the list; and the area under the ROC curve."""
    order = np.argsort(-suspicion, kind="stable")
    hits = {f"first {s:.0%}": float(flipped[order[: round(s * len(order))]].sum() / flipped.sum()) for s in SHARES}
    ranks = np.empty(len(order))
    ranks[order[::-1]] = np.arange(1, len(order) + 1)
    m, n = flipped.sum(), (~flipped).sum()
    return hits | {"auc": float((ranks[flipped].sum() - m * (m + 1) / 2) / (m * n))}


def by_cleanlab(labels: np.ndarray, pred_probs: np.ndarray) -> np.ndarray:
    """Cleanlab's own score, turned round."""
    from cleanlab.rank import get_label_quality_scores

    return -get_label_quality_scores(labels, pred_probs, method="self_confidence")


def logistic(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Out-of-sample probabilities of logistic regression by five folds, at the penalty with the best log-loss.

    Features are centred, scaled as a whole and rotated into the span of the samples, which changes nothing for an L2
    penalty and makes 32,896 columns as many as there are samples.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    z = z - z.mean(0)
    u, s, _ = np.linalg.svd(z / np.sqrt((z**2).sum(1).mean()), full_matrices=False)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    tried = [
        cross_val_predict(LogisticRegression(C=c, max_iter=500), u * s, y, cv=folds, method="predict_proba")
        for c in (1.0, 10.0, 100.0)
    ]
    return min(tried, key=lambda p: log_loss(y, p))


def folded_head(z: torch.Tensor, y: torch.Tensor, n_classes: int, alpha: float = 15.0) -> np.ndarray:
    """Margins of the closed-form head, five folds that leave together."""
    targets, w = encode(y, n_classes, alpha), torch.ones(len(y), dtype=torch.float64)
    fold = stratified_folds(torch.arange(len(y)), y, seed=0)
    head = Head.of(z.double(), targets - centre(n_classes, alpha), w, fold)
    judge = Judge(targets, y, w, 1)
    choice = choose_ridge(lambda _: head.ridge, head.residual, judge, [1.0], None)
    return LeaveOneOut(judge.outputs(choice.e_loo).cpu(), "exact", labels=y, weights=w).suspicion().numpy()


def self_influence(model: LQFClassifier, train: tuple[Any, Any], images: Images) -> np.ndarray:
    """Rise of every sample's own squared loss when it is left out, by K-FAC (for a head alone that is exact)."""
    device = resolve_device(model.device)
    outputs = model.fitted_.outputs(images, device=device, batch_size=usual_rows(device))
    loo = model.analyse(*train, method="kfac").leave_one_out()
    targets = encode(loo.labels, len(model.fitted_.classes), model.alpha)
    losses = [0.5 * (targets - f.double()).square().sum(1) for f in (loo.outputs, outputs)]
    return (losses[0] - losses[1]).numpy()


def one_draw(args: argparse.Namespace, draw: int) -> dict[str, Any]:
    """Flip, fit, rank by every method."""
    generator = np.random.default_rng(draw)
    names = sorted(p.name for p in (args.data / "train").iterdir() if p.is_dir())[: args.classes]
    paths, given = pictures(args.data / "train", names, args.per_class, generator)
    labels, flipped = flip(np.array([names.index(name) for name in given]), args.flip, generator)
    y = [names[k] for k in labels]
    model = LQFClassifier(seed=draw, **settings_of(args))
    began = time.perf_counter()
    loo = model.fit(paths, y).leave_one_out()
    fit_seconds = time.perf_counter() - began
    images = model.open(load_samples(paths, y, classes=model.fitted_.classes))
    z = model.features(images)
    ways: dict[str, Callable[[], np.ndarray]] = {
        "audit": lambda: soft_margin(model.fitted_, loo).numpy(),
        "hard margin": lambda: loo.suspicion().numpy(),
        "cleanlab, loo": lambda: by_cleanlab(**for_cleanlab(model)),
        "cleanlab, 5 folds": lambda: by_cleanlab(labels, logistic(z.numpy(), labels)),
        "head, 5 folds": lambda: folded_head(z, torch.tensor(labels), len(names)),
        "K-FAC": lambda: self_influence(model, (paths, y), images),
    }
    ranked = {}
    for name in args.methods:
        began = time.perf_counter()
        ranked[name] = found(ways[name](), flipped) | {"seconds": round(time.perf_counter() - began, 2)}
        print(draw, name, {k: round(v, 3) for k, v in ranked[name].items()}, flush=True)
    fit = {k: model.report_[k] for k in ("solver", "pooling", "loo_error", "loo_level", "n")}
    return {**fit, "flipped": int(flipped.sum()), "fit_seconds": round(fit_seconds, 1), "methods": ranked}


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32 --linearize stage7 --draws 1")
    out.add_data()
    out.add_settings("backbone", "weights", "size", "linearize", "solver", "device")
    out.add_argument("--classes", type=int, help="use the first so many classes")
    out.add_argument("--per-class", type=int)
    out.add_argument("--flip", type=float, default=0.1)
    out.add_argument("--draws", type=int, default=3)
    out.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS, metavar="NAME", help="default: all")
    out.add_argument("--name", help="of the JSON file; default: label_noise-DATA")
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    if find_spec("cleanlab") is None:
        print("cleanlab is not installed (pip install cleanlab): its lists are left out")
        args.methods = [name for name in args.methods if not name.startswith("cleanlab")]
    draws: list[dict[str, Any]] = []
    for draw in range(args.draws):
        draws.append(one_draw(args, draw))
        means = {
            name: {k: float(np.mean([d["methods"][name][k] for d in draws])) for k in draws[0]["methods"][name]}
            for name in draws[0]["methods"]
        }
        result = {
            "what": f"{args.data.name}, {args.backbone}, {args.flip:.0%} of the labels flipped",
            "bars": {"first 10%": 0.85, "first 20%": 0.97},
            "mean": means,
            "draws": draws,
            "hardware": hardware(resolve_device(args.device)),
        }
        path = write(args.name or f"label_noise-{args.data.name}", result, args.out)  # after every draw: they take long
    print(path)


if __name__ == "__main__":
    main()
