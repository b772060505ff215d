"""What does a guarantee of privacy cost in accuracy, and how strong should the ridge of a private head be?

    python benchmarks/privacy.py DATA... [--size 224] [--seeds 20] [--epsilons 0.5 1 2 4 8 16 32] [--folds 5]

Every DATA is a folder with train/ and test/. Private heads on the features of the pretrained network (`lqf privatise`):

- parts: on folds of the training images, heads whose strength is the smallest at which the noise in an output is this
  part of the targets. `NOISE` of `lqf.changes.privacy.release` is the part with the lowest mean error over all data and
  budgets.
- test: the error on test images at the best part, over several draws of the noise, beside the head that was fitted
  without privacy, and the private one's problem without its noise.

δ is one over ten times the number of training images.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.hardware import hardware, write
from common.options import Options, settings_of
from torch import Tensor

from lqf import LQFClassifier
from lqf.changes.privacy.bounded import Bounded
from lqf.changes.privacy.gaussian import noise_multiplier, normal
from lqf.changes.privacy.release import Budget
from lqf.changes.privacy.sensitivity import sensitivity
from lqf.data import load_samples, open_images
from lqf.linear.model import with_one
from lqf.linear.targets import centre, encode, error_rate

PARTS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Labelled:
    """Features (n, p) and classes (n,) of some images."""

    z: Tensor
    y: Tensor
    classes: int

    def some(self, index: Tensor) -> Labelled:
        """Of these alone."""
        return Labelled(self.z[index], self.y[index], self.classes)


def private_error(train: Labelled, seen: Labelled, budget: Budget, part: float, *, noiseless: bool = False) -> float:
    """Of a head like `lqf privatise` makes."""
    n, k = len(train.y), train.classes
    target = 0.5 if k == 2 else math.sqrt(1 - 1 / k)
    mu = budget.strength(n, target, part) * n
    rows = with_one(train.z)
    rows = rows / rows.norm(dim=1, keepdim=True)
    r = encode(train.y, k, 1.0) - centre(k, 1.0)
    v = Bounded(None, rows, r, n, 1.0, target).solve(mu).T @ rows
    size = noise_multiplier(budget.epsilon, budget.delta) * sensitivity(n, mu, target=target)
    noise = 0.0 if noiseless else size * normal(v.numel(), budget.seed).view_as(v)
    return error_rate(with_one(seen.z) @ (v + noise).T, seen.y)


def by_folds(train: Labelled, epsilon: float, part: float, folds: int) -> float:
    """Mean error on the folds of the training images, each under noise of its own."""
    generator = torch.Generator().manual_seed(0)
    fold = torch.randperm(len(train.y), generator=generator) % folds
    budget = [Budget(epsilon, delta_of(train), seed=k) for k in range(folds)]
    errors = [
        private_error(train.some((fold != k).nonzero()[:, 0]), train.some((fold == k).nonzero()[:, 0]), b, part)
        for k, b in enumerate(budget)
    ]
    return float(np.mean(errors))


def delta_of(train: Labelled) -> float:
    """δ."""
    return 0.1 / len(train.y)


def tested(train: Labelled, test: Labelled, epsilon: float, part: float, seeds: int) -> dict[str, Any]:
    """Error over the draws of the noise: mean, the middle 90 % of draws, and without the noise."""
    delta = delta_of(train)
    errors = [private_error(train, test, Budget(epsilon, delta, seed=1000 + k), part) for k in range(seeds)]
    low, high = np.quantile(errors, [0.05, 0.95]).tolist()
    return {
        "error": float(np.mean(errors)),
        "standard_error_of_noise": float(np.std(errors, ddof=1) / math.sqrt(seeds)),
        "draws_5_to_95_percent": [low, high],
        "without_noise": private_error(train, test, Budget(epsilon, delta), part, noiseless=True),
        "weight_decay": Budget(epsilon, delta).strength(
            len(train.y), 0.5 if train.classes == 2 else math.sqrt(1 - 1 / train.classes), part
        ),
    }


def features(model: LQFClassifier, data: Path) -> tuple[Labelled, Labelled]:
    """Of the training images, as the fit kept them, and of the test images."""
    fitted = model.fitted_
    assert fitted.known is not None
    known = fitted.known.read(print)
    assert known is not None
    samples = load_samples(data / "test", classes=fitted.classes)
    images = open_images(samples, fitted.preprocess)
    k, z = len(fitted.classes), model.features(images).double()
    train = Labelled(known["features"].double(), torch.tensor(fitted.train.labels), k)
    return train, Labelled(z, torch.tensor(images.samples.labels), k)


def options() -> Options:
    """Command line."""
    parser = Options(__doc__, "DATA --size 32 --seeds 2 --epsilons 1 32 --folds 2")
    parser.add_data("+")
    parser.add_settings(size=224)
    parser.add_argument("--seeds", type=int, default=20, help="draws of the noise (default: 20)")
    parser.add_argument("--folds", type=int, default=5, help="of the training images (default: 5)")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1, 2, 4, 8, 16, 32], help="budgets")
    return parser


def whole(data: Path, size: int) -> tuple[Labelled, Labelled, float]:
    """Training and test images, and the test error of the head without privacy."""
    model = LQFClassifier(solver="head", pooling="avg", views="none", size=size, device="cpu", verbose=0)
    model.fit(data / "train")
    train, test = features(model, data)
    return train, test, error_rate(with_one(test.z) @ model.fitted_.head.double().T, test.y)


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    began, epsilons = time.perf_counter(), args.epsilons
    sets = {data.name: whole(data, settings_of(args)["size"]) for data in args.data}
    parts = {
        name: {f"{e:g}": {f"{p:g}": by_folds(train, e, p, args.folds) for p in PARTS} for e in epsilons}
        for name, (train, _, _) in sets.items()
    }
    every = {f"{p:g}": float(np.mean([by[f"{p:g}"] for of in parts.values() for by in of.values()])) for p in PARTS}
    part = min(PARTS, key=lambda p: every[f"{p:g}"])
    found = {}
    for name, (train, test, error) in sets.items():
        found[name] = {
            "images": len(train.y),
            "test_images": len(test.y),
            "classes": train.classes,
            "delta": delta_of(train),
            "without_privacy": error,
            "standard_error_of_test": math.sqrt((1 - error) * error / len(test.y)),
            "by_epsilon": {f"{e:g}": tested(train, test, e, part, args.seeds) for e in epsilons},
        }
        print(name, {e: round(v["error"], 3) for e, v in found[name]["by_epsilon"].items()}, flush=True)
    result = {
        "what": f"efficientnet_lite0, {args.size} px, private heads on the average of the last feature map",
        "problem": ", ".join(sets),
        "mean error on folds of the training images by part": every,
        "error on folds by data, epsilon and part": parts,
        "part": part,
        "test": found,
        "seconds": round(time.perf_counter() - began),
        "hardware": hardware(CPU),
    }
    print(write("privacy-efficientnet_lite0-cpu", result, args.out))


if __name__ == "__main__":
    main()
