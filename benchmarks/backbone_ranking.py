"""Does leave-one-out before any training rank backbones as they come out after fitting? And LogME?

    python benchmarks/backbone_ranking.py DATA… --backbones NAME[=FILE]… [--size 160] [--per-class N]

DATA is a folder with train/ and test/. Backbones are ranked on some training images as `lqf select` does it; then every
one is fitted to the same images, and its error and cross-entropy on test images say what the order was: the head alone,
or with `--after fit` whatever `lqf fit --effort EFFORT` comes to, the network's change included. `@PX` behind a
timm name builds a transformer whose size is fixed for images of so many pixels. `spoilt:` before a name says that its
weights were damaged on purpose or by accident: it must come last.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.hardware import hardware, write
from common.options import Options
from common.subset import Labelled, pictures
from torch import nn

import lqf
from lqf import LQFClassifier
from lqf.backbones.imports import import_library
from lqf.backbones.weights import read_state
from lqf.evaluation.calibration import log_loss
from lqf.linear.targets import error_rate
from lqf.runtime.device import resolve_device
from lqf.selection import Selection

SPOILT = "spoilt:"
FEWEST = 3
"""Backbones that have an order worth comparing."""


@dataclass(frozen=True)
class Entry:
    """A backbone as it was named on the command line."""

    name: str
    weights: str | None
    given: str | nn.Module
    size: int | None
    spoilt: bool

    @classmethod
    def of(cls, text: str, size: int | None) -> Entry:
        """Read [spoilt:]NAME[@PX][=FILE]."""
        spoilt = text.startswith(SPOILT)
        name, _, weights = text.removeprefix(SPOILT).partition("=")
        architecture, _, pixels = name.partition("@")
        if not pixels:
            return cls(name, weights or None, text.removeprefix(SPOILT), size, spoilt)
        timm = import_library("timm")
        net = timm.create_model(architecture.removeprefix("timm:"), img_size=int(pixels), num_classes=2)
        net.load_state_dict(_resampled(read_state(Path(weights)), net), strict=False)
        return cls(name, weights, net, int(pixels), spoilt)

    def fitted(self, train: Labelled, args: argparse.Namespace) -> LQFClassifier:
        """On the training images."""
        own = {} if isinstance(self.given, nn.Module) else {"weights": self.weights}
        network = self.given if isinstance(self.given, nn.Module) else self.name
        chosen = {"pooling": args.pooling, "verbose": 0, "device": args.device}
        if args.after == "head":
            chosen |= {"solver": "head", "views": "none"}
        else:
            chosen |= {"effort": args.effort, "time_limit": args.time_limit}
        return LQFClassifier(network, size=self.size, **own, **chosen).fit(*train)


def _resampled(state: dict[str, torch.Tensor], net: Any) -> dict[str, torch.Tensor]:
    """Positions for another number of patches, as timm does it for its own weights."""
    layers = import_library("timm").layers
    positions = layers.resample_abs_pos_embed(state["pos_embed"], net.patch_embed.grid_size)
    return state | {"pos_embed": positions}


def measured(entry: Entry, train: Labelled, test: Labelled, args: argparse.Namespace) -> dict[str, Any]:
    """What leave-one-out says before, and what test images say after the fit."""
    before: Selection = lqf.select(*train, backbones=[entry.given], size=entry.size, device=args.device)
    model = entry.fitted(train, args)
    opened = model.open(lqf.data.load_samples(*test, classes=model.classes_))
    outputs = model.fitted_.outputs(opened, device=resolve_device(args.device), batch_size=16).double()
    labels = torch.tensor(opened.samples.labels)
    found = before.best.to_dict() | {
        "name": entry.name,
        "weights": Path(entry.weights).name if entry.weights else None,
        "spoilt": entry.spoilt,
        "pooling": model.fitted_.report.pooling,
        "fitted_loss": _loss_left_out(model) if args.after == "head" else None,
        "fitted": [rung["name"] for rung in model.report_["rungs"] if rung["kept"]],
        "fit_seconds": model.report_["seconds"],
        "test_error": error_rate(outputs, labels, torch.ones(len(labels))),
        "test_loss": log_loss(outputs, labels, model.fitted_.beta),
    }
    print(
        f"  {entry.name:<32s} left out {found['loss']:.3f} / {found['error']:6.1%}   LogME {found['log_me']:+.3f}   "
        f"test {found['test_loss']:.3f} / {found['test_error']:6.1%}   {found['seconds']:.1f} s   {found['fitted']}",
        flush=True,
    )
    return found


def _loss_left_out(model: LQFClassifier) -> float:
    """What the fitted head says about its own training images, each left out: `lqf select --pooling auto`."""
    loo = model.leave_one_out()
    return log_loss(loo.outputs, loo.labels, model.fitted_.beta)


def correlations(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Spearman's and Kendall's rank correlation of each forecast with each outcome; 1: the same order."""
    from scipy.stats import kendalltau, spearmanr

    forecasts = {"loss": 1, "error": 1, "log_me": -1, "fitted_loss": 1}
    if any(row["fitted_loss"] is None for row in rows):
        del forecasts["fitted_loss"]
    out = {}
    for forecast, sign in forecasts.items():
        for outcome in ("test_loss", "test_error"):
            a, b = ([row[name] for row in rows] for name in (forecast, outcome))
            a = [sign * value for value in a]
            out[f"{forecast} -> {outcome}"] = {
                "spearman": round(float(spearmanr(a, b).statistic), 3),
                "kendall": round(float(kendalltau(a, b).statistic), 3),
            }
    return out


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Correlations with and without the spoilt ones, whether these come last, and what the first choice costs."""
    if len(rows) < FEWEST:
        return {}
    sound, spoilt = [r for r in rows if not r["spoilt"]], [r for r in rows if r["spoilt"]]
    lowest = min(r["test_loss"] for r in rows)
    out: dict[str, Any] = {"all": correlations(rows)}
    if len(sound) >= FEWEST:
        out["without the spoilt"] = correlations(sound)
    for forecast, sign in (("loss", 1), ("log_me", -1), ("fitted_loss", 1)):
        if any(row[forecast] is None for row in rows):
            continue
        first = min(rows, key=lambda r: sign * r[forecast])
        out[f"first by {forecast}"] = {
            "name": first["name"],
            "test_loss_above_the_lowest": round(first["test_loss"] - lowest, 4),
            "test_error": first["test_error"],
        }
        if spoilt and sound:
            last = max(sign * r[forecast] for r in sound)
            out[f"spoilt come last by {forecast}"] = all(sign * r[forecast] > last for r in spoilt)
    return out


def earlier(name: str, files: list[Path]) -> list[dict[str, Any]]:
    """What was measured on a set by other runs, with the same images."""
    found = (json.loads(path.read_text())["sets"] for path in files)
    return [row for sets in found if name in sets for row in sets[name]["backbones"]]


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --backbones efficientnet_lite0 mobilenet_v2=random resnet50=random --size 32")
    out.add_data("+")
    out.add_argument("--backbones", nargs="*", default=[], metavar="NAME[=FILE]")
    out.add_argument("--size", type=int, default=160, help="side of every network's input (default: 160)")
    out.add_argument("--per-class", type=int, help="training images of every class")
    out.add_argument("--test-per-class", type=int, help="test images of every class")
    out.add_settings(pooling="auto", device="cpu", effort="auto", time_limit=None)
    out.add_argument("--after", choices=("head", "fit"), default="head", help="what is fitted afterwards")
    out.add_argument(
        "--earlier", type=Path, nargs="+", default=[], metavar="FILE", help="JSON of runs on other backbones"
    )
    out.add_argument("--name", default="backbone_ranking")
    return out


def _after(args: argparse.Namespace) -> str:
    if args.after == "head":
        return f"the head that `lqf fit` begins with (pooling {args.pooling}, one view)"
    return f"the whole of `lqf fit --effort {args.effort}`"


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    entries = [Entry.of(text, args.size) for text in args.backbones]
    sets = {}
    for data in args.data:
        names = sorted(p.name for p in (data / "train").iterdir() if (data / "test" / p.name).is_dir())
        generator = np.random.default_rng(0)
        train = pictures(data / "train", names, args.per_class, generator)
        test = pictures(data / "test", names, args.test_per_class, generator)
        print(
            f"{data.name}: {len(train[0])} training and {len(test[0])} test images of {len(names)} classes", flush=True
        )
        rows = [*earlier(data.name, args.earlier), *(measured(entry, train, test, args) for entry in entries)]
        problem = {"classes": len(names), "training_images": len(train[0]), "test_images": len(test[0])}
        sets[data.name] = problem | {"backbones": rows, "ranks": summary(rows)}
        print(f"  {sets[data.name]['ranks']}")
        written = {
            "what": f"leave-one-out of closed-form heads and LogME on averages, before; {_after(args)}, after; "
            f"{args.size} px",
            "sets": sets,
            "hardware": hardware(resolve_device(args.device)),
        }
        path = write(args.name, written, args.out)
    print(path)


if __name__ == "__main__":
    main()
