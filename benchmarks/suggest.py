"""Does it pay to choose what to label? Test error as labels are added, by chance, by margin and by information.

    python benchmarks/suggest.py DATA… [--ways …] [--rounds 8] [--seeds 10] [--size 160] [--held-out]

DATA is a folder with train/ and test/. Every image passes the network once; then the closed-form head is fitted to two
random images per class, `model.suggest` names as many images as there are classes, or 20 where these are fewer, their
labels are added, and so on. With --held-out half of the training images of every class stand for the test images:
defaults are chosen on those. Writes JSON, and a picture with --picture; with --earlier FILE… results of earlier runs
are in both.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.hardware import RESULTS, hardware, write
from common.options import Options
from common.subset import Labelled, pictures
from torch import nn

from lqf import LQFClassifier
from lqf.backbones import load_backbone
from lqf.data import load_samples, open_images
from lqf.fitting import Context, TrainingSet
from lqf.fitting.encoder import Encoder
from lqf.runtime.device import resolve_device
from lqf.settings import Settings

RANDOM = "random"
FEWEST = 20
"""Images of a round, at least."""
T_95 = {5: 2.776, 8: 2.365, 10: 2.262, 20: 2.093}
"""97.5 % quantile of Student's t for a mean of so many seeds."""
Features = tuple[np.ndarray, np.ndarray]


def features(images: Labelled, args: argparse.Namespace) -> Features:
    """What the head sees of every image, and its label; of images with the same contents the first."""
    backbone = load_backbone(args.backbone, weights=args.weights)
    preprocess = backbone.preprocess(size=args.size)
    opened = open_images(load_samples(*images), preprocess)
    context = Context(Settings(solver="head", views="none"), resolve_device(args.device))
    z = Encoder(TrainingSet.of(opened, preprocess, context), backbone).features().cpu().numpy()
    first = np.sort(np.unique(z, axis=0, return_index=True)[1])
    return z[first], np.array(opened.samples.labels)[first]


def parts(data: Path, args: argparse.Namespace) -> tuple[Features, Features]:
    """The pool and the images it is judged by."""
    names = sorted(p.name for p in (data / "train").iterdir() if p.is_dir())
    generator = np.random.default_rng(0)
    pool = features(pictures(data / "train", names, None, generator), args)
    if not args.held_out:
        return pool, features(pictures(data / "test", names, None, generator), args)
    half = np.zeros(len(pool[1]), bool)
    for k in range(len(names)):
        mine = generator.permutation(np.flatnonzero(pool[1] == k))
        half[mine[: len(mine) // 2]] = True
    return (pool[0][half], pool[1][half]), (pool[0][~half], pool[1][~half])


def curve(pool: Features, test: Features, way: str, seed: int, rounds: int) -> tuple[list[int], list[float]]:
    """Numbers of labels and test errors after every round."""
    (z, y), generator = pool, np.random.default_rng(seed)
    classes = int(y.max()) + 1
    known = np.concatenate([generator.permutation(np.flatnonzero(y == k))[:2] for k in range(classes)])
    width, step = z.shape[1], max(FEWEST, classes)
    sizes, errors = [], []
    for _ in range(rounds + 1):
        network = nn.Sequential(nn.Flatten(), nn.Linear(width, 2))
        chosen = {"solver": "head", "views": "none", "tensors": "normalized", "device": "cpu", "verbose": 0}
        model = LQFClassifier(network, **chosen).fit(z[known], y[known])
        sizes.append(len(known))
        errors.append(float((model.predict(test[0]) != test[1]).mean()))
        rest = np.setdiff1d(np.arange(len(y)), known)
        k = min(step, len(rest))
        if k == 0:
            break
        if way == RANDOM:
            new = generator.permutation(rest)[:k]
        else:
            new = rest[model.suggest(z[rest], k, by=way, train=z[known]).images.numpy()]
        known = np.concatenate([known, new])
    return sizes, errors


def interval(values: np.ndarray) -> dict[str, Any]:
    """Mean over seeds with its 95 % interval by Student's t."""
    spread = T_95.get(len(values), 1.96) * values.std(ddof=1) / len(values) ** 0.5
    mean = float(values.mean())
    return {"mean": round(mean, 5), "low": round(mean - float(spread), 5), "high": round(mean + float(spread), 5)}


def measured(data: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Curves of all ways, and by how much each one's mean error over the rounds is below chance and margin."""
    pool, test = parts(data, args)
    classes = int(pool[1].max()) + 1
    print(f"{data.name}: {classes} classes, pool of {len(pool[1])}, judged by {len(test[1])}", flush=True)
    found: dict[str, np.ndarray] = {}
    for way in args.ways:
        runs = [curve(pool, test, way, seed, args.rounds) for seed in range(args.seeds)]
        sizes, found[way] = runs[0][0], np.array([errors for _, errors in runs])
        line = " ".join(f"{e:6.1%}" for e in found[way].mean(0))
        print(f"  {way:<12s} {line}   mean {found[way][:, 1:].mean():.2%}", flush=True)
    areas = {way: errors[:, 1:].mean(1) for way, errors in found.items()}
    return {
        "classes": classes,
        "pool": len(pool[1]),
        "judged_by": len(test[1]),
        "labels": sizes,
        "curves": {way: [interval(e) for e in errors.T] for way, errors in found.items()},
        "mean_error": {way: interval(a) for way, a in areas.items()},
        "below": {
            other: {way: interval(areas[other] - areas[way]) for way in areas if way != other}
            for other in (RANDOM, "uncertainty")
            if other in areas
        },
    }


def draw(sets: dict[str, Any], path: Path) -> None:
    """One panel per data set."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(sets), figsize=(3.6 * len(sets), 3.2), squeeze=False)
    for axis, (name, found) in zip(axes[0], sets.items(), strict=True):
        for way, points in found["curves"].items():
            mean, low, high = ([100 * p[key] for p in points] for key in ("mean", "low", "high"))
            label = "margin" if way == "uncertainty" else way
            (line,) = axis.plot(found["labels"], mean, label=label)
            axis.fill_between(found["labels"], low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        axis.set(title=name, xlabel="labelled images")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("test error, %")
    axes[0][-1].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32 --rounds 1 --seeds 2 --ways random uncertainty information both")
    out.add_data("*")
    out.add_settings("backbone", "weights", device="cpu")
    out.add_argument("--size", type=int, default=160, help="side of the network's input (default: 160)")
    out.add_argument("--ways", nargs="+", default=[RANDOM, "uncertainty", "information", "both"])
    out.add_argument("--rounds", type=int, default=8)
    out.add_argument("--seeds", type=int, default=10)
    out.add_argument("--held-out", action="store_true", help="judge by half of the training images")
    out.add_argument("--picture", action="store_true")
    out.add_argument("--earlier", type=Path, nargs="+", default=[], metavar="FILE", help="JSON of earlier runs")
    out.add_argument("--name", default="suggest")
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    torch.set_num_threads(1)
    sets: dict[str, Any] = {}
    for path in args.earlier:
        before = json.loads(path.read_text())
        sets |= {name: {"hardware": before["hardware"]} | found for name, found in before["sets"].items()}
    sets |= {data.name: measured(data, args) for data in args.data}
    judged = "the other half of the training images" if args.held_out else "all test images"
    result = {
        "what": f"closed-form head of {args.backbone} at {args.size} px; error on {judged}; 95 % intervals over "
        f"{args.seeds} random starts of two images per class",
        "sets": sets,
        "hardware": hardware(resolve_device(args.device)),
    }
    if args.picture:
        draw(sets, (args.out or RESULTS) / f"{args.name}.png")
    print(write(args.name, result, args.out))


if __name__ == "__main__":
    main()
