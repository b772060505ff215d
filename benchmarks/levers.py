"""What every lever of a climb is worth, alone and together: out of sample and on the test set.

    python benchmarks/levers.py DATA… --backbone efficientnet_lite0 --size 96 --images 150 --outputs FOLDER

    python benchmarks/levers.py DATA… --backbone timm:NAME --state vit.safetensors --size 112 --variants both-one

DATA is a folder with train/ and test/. One climb for each of `VARIANTS`, by `benchmarks/climbs.py`; a variant whose
outputs are in the folder already is not fitted again. Two models are compared sample by sample: the difference of
their cross-entropies, positive where the second is better, with its standard error. Out of sample every sample's
temperature comes from the other samples; on the test set it is that of the fitted model, from training images.
--state has the weights of a vision transformer that was trained at another size.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import climbs
import torch
from common.hardware import hardware, write
from common.options import Options
from safetensors.torch import load_file
from torch import Tensor, nn

from lqf.backbones.imports import import_library
from lqf.data import load_samples
from lqf.evaluation.calibration import calibrate, log_losses
from lqf.evaluation.paired import cross_fitted_losses, gain
from lqf.linear.targets import error_rate
from lqf.runtime.device import resolve_device

ONE_VIEW: dict[str, Any] = {"views": "none", "only": ["head", "LQF"]}
VARIANTS: dict[str, dict[str, Any]] = {
    "avg-one": {**ONE_VIEW, "pooling": "avg", "strengths": "one"},
    "avg-stages": {**ONE_VIEW, "pooling": "avg", "strengths": "stages"},
    "both-one": {**ONE_VIEW, "pooling": "both", "strengths": "one"},
    "both-stages": {**ONE_VIEW, "pooling": "both", "strengths": "stages"},
    "probe": {**ONE_VIEW, "pooling": "both", "strengths": "stages", "head": "probe"},
    "all": {},
}
"""Settings of each climb."""
Named = tuple[str, str]
COMPARED: dict[str, tuple[Named, Named]] = {
    "both poolings, head": (("avg-one", "head"), ("both-one", "head")),
    "eight views, head": (("all", "head"), ("all", "head, 8 views")),
    "network, averages, one strength": (("avg-one", "head"), ("avg-one", "LQF")),
    "network, averages, one per stage": (("avg-one", "head"), ("avg-stages", "LQF")),
    "network, both, one strength": (("both-one", "head"), ("both-one", "LQF")),
    "network, both, one per stage": (("both-one", "head"), ("both-stages", "LQF")),
    "network, both, one per stage, one head for all rows": (("both-one", "head"), ("probe", "LQF")),
    "fine-tuned": (("all", "head"), ("all", "fine-tuned")),
    "all, over the head in eight views": (("all", "head, 8 views"), ("all", "kept")),
    "all": (("avg-one", "head"), ("all", "kept")),
}
"""Two models each: variant and rung."""
Row = dict[str, Any]
Outputs = dict[str, Tensor]
"""By "out of sample/RUNG" and "test/RUNG"; "labels" and "test labels"."""


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32 --images 24 --effort standard --time-limit 60")
    out.add_data("+")
    out.add_settings("backbone", "weights", "size", "device", "seed", effort="standard", time_limit="3h")
    out.add_argument("--images", type=int, default=150, help="training images, the same number of every class")
    out.add_argument("--variants", nargs="+", choices=[*VARIANTS], default=[*VARIANTS], help="climbs; default: all")
    out.add_argument("--state", type=Path, help="weights of the transformer that --backbone names")
    out.add_argument("--outputs", type=Path, help="folder for the outputs of all climbs")
    return out


def transformer(name: str, size: int, state: Path) -> nn.Module:
    """A vision transformer of timm for images of a size, with weights that may have been trained at another one."""
    timm = import_library("timm")
    from timm.layers import resample_abs_pos_embed, set_fused_attn

    set_fused_attn(False)  # forward-mode derivatives have no rule for it
    network = timm.create_model(name, img_size=size, num_classes=2)
    weights = load_file(state)
    weights["pos_embed"] = resample_abs_pos_embed(weights["pos_embed"], network.patch_embed.grid_size)
    missing = network.load_state_dict(weights, strict=False).missing_keys
    assert missing == ["head.weight", "head.bias"], missing
    return network


def outputs(data: Path, variant: str, args: argparse.Namespace, folder: Path) -> Outputs:
    """Of all rungs of a climb, made now or found in the folder."""
    path, classes = folder / variant / f"{data.name}.safetensors", len(load_samples(data / "train").classes)
    if not path.exists():
        settings = {"limit_per_class": math.ceil(args.images / classes), "pooling": "auto", "views": "auto"}
        settings |= {"strengths": "auto", "head": "crossfit", "only": None, "outputs": path.parent}
        climbs.measured(data, argparse.Namespace(**vars(args) | settings | VARIANTS[variant]))
    return load_file(path)


def compared(before: tuple[Outputs, str], after: tuple[Outputs, str]) -> Row:
    """Gain of one model over another, and the errors of both, out of sample and in test."""
    out: Row = {}
    for part, labels in (("out of sample", "labels"), ("test", "test labels")):
        y = before[0][labels]
        pair = [(rows[f"{part}/{name}"].double(), _losses(rows, name, part)) for rows, name in (before, after)]
        found = ~torch.stack([losses for _, losses in pair]).isnan().any(0)
        gained = gain(pair[0][1], pair[1][1], torch.ones(len(y)))
        out[part] = {
            "errors": [error_rate(f[found], y[found]) for f, _ in pair],
            "gain": {"mean": gained.mean, "standard_error": gained.standard_error},
        }
    return out


def _losses(rows: Outputs, name: str, part: str) -> Tensor:
    """(N,) cross-entropy of every sample."""
    f, y = rows[f"out of sample/{name}"].double(), rows["labels"]
    if part == "out of sample":
        return cross_fitted_losses(f, y, torch.ones(len(y)).double(), torch.arange(len(y)) % 5)
    known = ~f.isnan().any(1)
    return log_losses(rows[f"test/{name}"].double(), rows["test labels"], calibrate(f[known], y[known]))


def measured(data: Path, args: argparse.Namespace, folder: Path) -> Row:
    """All comparisons on one data set; None where a climb did not try the rung."""
    found = {variant: outputs(data, variant, args, folder) for variant in args.variants}
    any_one = found[args.variants[0]]
    rows: Row = {"data": data.name, "n": len(any_one["labels"]), "n_test": len(any_one["test labels"])}
    for name, pair in COMPARED.items():
        (first, one), (second, other) = pair
        tried = all(f"test/{rung}" in found.get(variant, {}) for variant, rung in pair)
        rows[name] = compared((found[first], one), (found[second], other)) if tried else None
    return rows


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    folder, named = args.outputs or (args.out or climbs.RESULTS) / "outputs", args.backbone
    if args.state:
        args.backbone = transformer(named.removeprefix("timm:"), int(args.size), args.state)
    rows = [measured(data, args, folder) for data in args.data]
    name = f"levers-{named.replace(':', '-')}-{resolve_device(args.device).type}"
    write(name, {"rows": rows, "hardware": hardware(resolve_device(args.device))}, args.out)
    for row in rows:
        for lever in COMPARED:
            if row[lever]:
                g = {part: row[lever][part]["gain"] for part in ("out of sample", "test")}
                said = "  ".join(f"{p} {v['mean']:+.3f} ± {v['standard_error']:.3f}" for p, v in g.items())
                print(f"{row['data']:22} {lever:52} {said}")


if __name__ == "__main__":
    main()
