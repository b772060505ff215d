"""Is a model better without the labels that an audit takes to be wrong, or with its predictions in their place?

    python benchmarks/cleaned_labels.py DATA… [--images 300] [--size 128] [--draws 3]

DATA are folders with train/ and test/. Some of the labels are replaced by another class, chosen at random, and a
closed-form head is fitted on them all. Labels that its leave-one-out contradicts with at least some probability for
another class (`lqf.analysis.audit.labels.SURE` is the bound that `lqf audit` has) are left out, or replaced by the
prediction, and the head is fitted again: test errors, and how many of the labels were wrong. For comparison, the bound
is put on the label's own probability, which says less about the prediction.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.hardware import hardware, write
from common.options import Options
from common.subset import pictures
from torch import Tensor

from lqf.backbones import load_backbone
from lqf.data import load_samples, open_images
from lqf.evaluation.calibration import calibrate, probabilities
from lqf.fitting.select_ridge import Judge, choose_ridge
from lqf.linear import sweep
from lqf.linear.batch import usual_rows
from lqf.linear.inputs import Inputs
from lqf.linear.linearize import linearized_body
from lqf.linear.model import with_one
from lqf.linear.targets import centre, decide, encode, error_rate
from lqf.runtime.device import resolve_device
from lqf.solvers import Head

SHARES = (0.0, 0.05, 0.1, 0.2)
ALPHA = 15.0
RULES = {
    "contradicted": lambda own, other: own < other,
    **{f"another class has {b:.0%}": lambda own, other, b=b: other >= b for b in (0.5, 0.7, 0.8, 0.9)},
    "the label has less than 10%": lambda own, other: own < 0.1,
}


def head(z: Tensor, y: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """V of the closed-form head whose weight decay leave-one-out chooses, and its leave-one-out outputs."""
    targets, w = encode(y, n_classes, ALPHA), torch.ones(len(y), dtype=torch.float64)
    head = Head.of(z, targets - centre(n_classes, ALPHA), w, torch.arange(len(y)))
    judge = Judge(targets, y, w, 1)
    choice = choose_ridge(lambda _: head.ridge, head.residual, judge, [1.0])
    return head.solve(choice.mu), judge.outputs(choice.e_loo)


def error(v: Tensor, z: Tensor, y: Tensor, n_classes: int) -> float:
    """Test error of a head."""
    return error_rate(with_one(z) @ v.T + centre(n_classes, ALPHA), y)


def one_draw(train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], share: float, draw: int) -> dict[str, Any]:
    """Flip, fit, take labels out by every rule, fit again."""
    (z, y), n_classes = train, int(train[1].max()) + 1
    generator = np.random.default_rng(draw)
    wrong = torch.zeros(len(y), dtype=torch.bool)
    wrong[generator.permutation(len(y))[: round(share * len(y))]] = True
    other = (y + torch.from_numpy(generator.integers(1, n_classes, len(y)))) % n_classes
    given = torch.where(wrong, other, y)
    v, outputs = head(z, given, n_classes)
    p, predicted = probabilities(outputs, calibrate(outputs, given)), decide(outputs)
    own, best = p.gather(1, given[:, None])[:, 0], p.gather(1, predicted[:, None])[:, 0]
    found = {}
    for name, rule in RULES.items():
        out = (predicted != given) & rule(own, best)
        replaced = torch.where(out, predicted, given)
        found[name] = {
            "out": int(out.sum()),
            "of them wrong": int((out & wrong).sum()),
            "error without": error(head(z[~out], given[~out], n_classes)[0], *test, n_classes),
            "error relabelled": error(head(z, replaced, n_classes)[0], *test, n_classes),
        }
    return {"images": len(y), "wrong": int(wrong.sum()), "error": error(v, *test, n_classes), "rules": found}


def features(data: Path, args: argparse.Namespace) -> list[tuple[Tensor, Tensor]]:
    """Features and labels of some training images, the same number of each class, and of as many test images."""
    names = sorted(p.name for p in (data / "train").iterdir() if p.is_dir())
    backbone = load_backbone(args.backbone, weights=args.weights)
    preprocess = backbone.preprocess(size=args.size, squash=False, views="none")
    body, device, parts = linearized_body(backbone.body.float(), "all")[1], resolve_device(args.device), []
    for part in ("train", "test"):
        there = [name for name in names if (data / part / name).is_dir()]
        paths, labels = pictures(data / part, there, max(2, args.images // len(names)), np.random.default_rng(0))
        images = open_images(load_samples(paths, labels, classes=names), preprocess)
        inputs = Inputs(images, preprocess, device=device, dtype=torch.float32, batch_size=usual_rows(device))
        z = sweep.features(body, inputs, collect=torch.device("cpu")).double()
        parts.append((z, torch.from_numpy(images.samples.labels.copy())))
    return parts


def total(draws: list[dict[str, Any]]) -> dict[str, Any]:
    """Means of errors, sums of labels, in all sets and draws."""
    rules = {
        name: {
            "out": sum(d["rules"][name]["out"] for d in draws),
            "of them wrong": sum(d["rules"][name]["of them wrong"] for d in draws),
            **{k: float(np.mean([d["rules"][name][k] for d in draws])) for k in ("error without", "error relabelled")},
        }
        for name in RULES
    }
    sums = {k: sum(d[k] for d in draws) for k in ("images", "wrong")}
    return {**sums, "error": float(np.mean([d["error"] for d in draws])), "rules": rules}


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32 --images 12 --draws 1")
    out.add_data("+")
    out.add_settings("backbone", "weights", "device", size=128)
    out.add_argument("--images", type=int, default=300, help="training images of every set (default: 300)")
    out.add_argument("--draws", type=int, default=3, help="of the labels that are flipped (default: 3)")
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    sets = {data.name: features(data, args) for data in args.data}
    by_share = {}
    for share in SHARES:
        of_set = {
            name: total([one_draw(*parts, share, draw) for draw in range(args.draws if share else 1)])
            for name, parts in sets.items()
        }
        by_share[f"{share:.0%} flipped"] = {"all": total(list(of_set.values())), **of_set}
        every = by_share[f"{share:.0%} flipped"]["all"]
        shown = {name: round(found["error without"], 3) for name, found in every["rules"].items()}
        print(f"{share:.0%} flipped: error {every['error']:.3f}; without those where", shown, flush=True)
    device = resolve_device(args.device)
    result = {
        "what": f"closed-form heads on {args.backbone} at {args.size} px, labels flipped, left out and replaced",
        "flipped": by_share,
        "hardware": hardware(device),
    }
    print(write(f"cleaned_labels-{args.backbone}-{device.type}", result, args.out))


if __name__ == "__main__":
    main()
