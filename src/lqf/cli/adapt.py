"""`lqf adapt SOURCE -o FILE`: let a backbone get used to leaky ReLU on the data it was trained on."""

from __future__ import annotations

import argparse
import shlex
import time
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lqf.cli import options
from lqf.errors import LQFError
from lqf.settings import Setup
from lqf.utils.progress import Progress
from lqf.utils.text import counted, duration, facts, number, percent

if TYPE_CHECKING:
    from lqf.backbones import Backbone
    from lqf.data import Images

SUMMARY = "train a converted backbone on its source data for an epoch"
OWN = ("epochs", "learning_rate", "batch_size", "seed")
"""Options that are arguments of `lqf.training.adapt` and have their defaults there."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """SOURCE -o FILE."""
    parser.usage = "lqf adapt SOURCE -o FILE.safetensors [options]"
    parser.add_argument("source", metavar="SOURCE", help="labelled images, e.g. ImageNet's training folder")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the .safetensors file to write")
    options.add_overwrite(parser)
    options.add_settings(parser, Setup, only=("backbone", "weights", "size"))
    parser.add_argument(
        "--epochs", type=int, metavar="N", help="passes over the images (default: one, as in the paper)"
    )
    parser.add_argument("--learning-rate", type=float, metavar="η", help="of SGD with momentum 0.9")
    parser.add_argument("--batch-size", type=int, metavar="N", help="images per step")
    options.add_device(parser)
    parser.add_argument("--seed", type=int, metavar="N", help="of order and random views")


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Train, write the file."""
    began = time.perf_counter()
    out = _target(args)
    from lqf.training.adapt import adapt, save_adapted

    backbone, images = _open(args, progress)
    given = {name: getattr(args, name) for name in OWN if hasattr(args, name)}
    adapted = adapt(backbone, images, progress=progress, **given)
    out.parent.mkdir(parents=True, exist_ok=True)
    save_adapted(adapted, out, overwrite=args.overwrite)
    return {
        "file": out,
        "backbone": adapted.backbone,
        "n": len(images),
        "classes": len(images.samples.classes),
        "losses": adapted.losses,
        "errors": adapted.errors,
        "skipped": images.skipped,
        "seconds": time.perf_counter() - began,
    }


def _target(args: argparse.Namespace) -> Path:
    out = options.output_path(args.output)
    if out.suffix != ".safetensors":
        raise LQFError(f"`{out}` is not the name of a .safetensors file; give `{out.with_suffix('.safetensors')}`")
    if out.is_dir():
        raise LQFError(f"`{out}` is a folder; give the name of a file to write")
    if out.exists() and not args.overwrite:
        raise LQFError(f"`{out}` exists; choose another file, or give --overwrite to replace it")
    return out


def _open(args: argparse.Namespace, progress: Progress) -> tuple[Backbone, Images]:
    """The network on its device, and the source images as it sees them."""
    from lqf.backbones import load_backbone
    from lqf.data import check_trainable, load_samples, open_images
    from lqf.runtime.device import resolve_device

    setup = Setup(**{f.name: getattr(args, f.name) for f in fields(Setup) if hasattr(args, f.name)})
    device = resolve_device(setup.device)
    samples = load_samples(args.source, progress=progress)
    check_trainable(samples)
    backbone = load_backbone(setup.backbone, weights=setup.weights, seed=getattr(args, "seed", 0))
    backbone.body.to(device)
    return backbone, open_images(samples, backbone.preprocess(size=setup.size), progress=progress)


def show(result: dict[str, Any]) -> str:
    """What it did, and how to use the file."""
    epochs = zip(result["losses"], result["errors"], strict=True)
    lines = facts(
        [
            *(
                (f"epoch {k}", f"loss {number(x)}, error {percent(e)} while it ran")
                for k, (x, e) in enumerate(epochs, 1)
            ),
            ("skipped", counted(len(result["skipped"]), "image") if result["skipped"] else ""),
            ("time", duration(result["seconds"])),
            ("written to", str(result["file"])),
        ]
    )
    weights = shlex.quote(str(result["file"]))
    return "\n".join(
        [
            f"Adapted {result['backbone']} on {counted(result['n'], 'image')} of {result['classes']} classes.\n",
            *lines,
            f"\nNext:  lqf fit TRAIN -o RUN --backbone {result['backbone']} --weights {weights}",
        ]
    )
