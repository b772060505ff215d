"""Images per second of predictions in a file, beside a plain forward pass of the backbone on the same images.

    python benchmarks/batch_prediction.py DATA --size 224 --limit-per-class 2 --images 64 --runs 5
    python benchmarks/batch_prediction.py oxford_flowers102 --backbone resnet50 --weights r50.safetensors --size 224 \\
        --device cuda --classes 20 --limit-per-class 2 --images 2000 --runs 3

DATA is a folder with train/ and test/. Two models are fitted on few images in one view: a closed-form head, and the
whole network linearised, by the dense solver. Test images, repeated where there are fewer, are then predicted by
`predict_to_file`. The backbone alone, in eval mode and without a head, takes the same images in the same batches,
decoded by the same threads. Once from the files to the CSV, and once from decoded images to outputs. Runs are made in
turn, after one that is not counted; on a GPU without TF32, as predictions are, and the backbone also with it. Seconds
are those of the shortest run, since others may use the machine, and ratios are also given in processor time, which
others do not change much.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.hardware import hardware, write
from common.options import Options
from common.subset import linked, pictures

from lqf import LQFClassifier
from lqf.data import normalize, open_images
from lqf.data.named import name_images
from lqf.data.streaming import stream_images
from lqf.linear.batch import usual_rows
from lqf.runtime.device import resolve_device
from lqf.runtime.memory import cores
from lqf.runtime.precision import matmul_precision

NAMES = ("backbone", "weights", "size", "seed", "device")
"""Settings."""
ORDER = torch.contiguous_format
MODELS: dict[str, dict[str, Any]] = {
    "head": {"solver": "head"},
    "LQF": {"solver": "dense", "linearize": "all", "weight_decay": 1.0, "body_weight_decay": 1.0, "loo": "none"},
}


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32 --limit-per-class 2 --images 20 --runs 1")
    out.add_data()
    out.add_settings(*NAMES)
    out.add_argument("--limit-per-class", type=int, default=2, help="training images of each class")
    out.add_argument("--classes", type=int, help="so many of the classes; default: all")
    out.add_argument("--images", type=int, default=64, help="test images")
    out.add_argument("--runs", type=int, default=5, help="timed runs of each")
    out.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), help="that predict")
    return out


def copied(data: Path, n: int, folder: Path) -> Path:
    """So many test images, each a file of its own."""
    found = sorted(p for p in (data / "test").glob("*/*") if p.is_file())
    found = found[:: max(1, len(found) // n)]
    folder.mkdir()
    for i in range(n):
        image = found[i % len(found)]
        shutil.copy(image, folder / f"{i:06d}{image.suffix}")
    return folder


def calls(model: LQFClassifier, new: Path, out: Path) -> dict[str, Callable[[], Any]]:
    """The same images through the model and through its backbone, with and without decoding."""
    fitted, device = model.fitted_, resolve_device(model.device)
    preprocess, dtype, rows = fitted.preprocess, fitted.settings.torch_dtype, usual_rows(device)
    body = fitted.backbone.body.to(device=device, dtype=dtype).eval()
    samples, _ = name_images([new])
    held, ready = open_images(samples, preprocess), fitted.ready(device, rows, len(samples))

    def forward(pixels: torch.Tensor, order: torch.memory_format = ORDER, fast: bool = False) -> torch.Tensor:
        with torch.inference_mode(), matmul_precision(fast):
            x = normalize(pixels.to(device), preprocess, dtype).contiguous(memory_format=order)
            found: torch.Tensor = body(x).cpu()
        return found

    def plain(fast: bool = False) -> None:
        for part in stream_images(samples, preprocess, np.arange(len(samples)), rows, cores()):
            assert part.images is not None
            forward(part.images.batch(range(len(part.images))), fast=fast)

    def plain_held(order: torch.memory_format, fast: bool = False) -> None:
        for index in torch.arange(len(samples)).split(rows):
            forward(held.batch(index), order, fast)

    found = {
        "file": lambda: model.predict_to_file(new, out, overwrite=True),
        "backbone, decoding": plain,
        "outputs": lambda: ready.outputs(held),
        "backbone": lambda: plain_held(ORDER),
        "backbone, channels last": lambda: plain_held(torch.channels_last),
    }
    if device.type != "cuda":
        return found
    tf32 = {
        "backbone, decoding, TF32": lambda: plain(fast=True),
        "backbone, channels last, TF32": lambda: plain_held(torch.channels_last, fast=True),
    }
    return found | tf32


def seconds(calls: dict[str, Callable[[], Any]], runs: int) -> tuple[dict[str, float], dict[str, float]]:
    """The shortest of each, and the least processor time, called in turn."""
    wall, processor = (dict.fromkeys(calls, math.inf) for _ in range(2))
    for k in range(runs + 1):
        for name, call in calls.items():
            began, used = time.perf_counter(), time.process_time()
            call()
            if k:
                wall[name] = min(wall[name], time.perf_counter() - began)
                processor[name] = min(processor[name], time.process_time() - used)
    return wall, processor


def ratios(took: dict[str, float]) -> dict[str, float]:
    """The model's share of the backbone's images per second."""
    return {
        "from files to the CSV": took["backbone, decoding"] / took["file"],
        "without decoding": took["backbone"] / took["outputs"],
        "without decoding, channels last": took["backbone, channels last"] / took["outputs"],
    }


def main() -> None:
    """Fit both, time both; what is known is written after each."""
    args = options().parse()
    given = {name: getattr(args, name) for name in NAMES}
    device, rows = resolve_device(args.device), {}
    names = sorted(p.name for p in (args.data / "train").iterdir() if p.is_dir())[: args.classes]
    about = {"images": args.images, "threads of the network": torch.get_num_threads(), "threads that decode": cores()}
    with tempfile.TemporaryDirectory() as folder:
        some = pictures(args.data / "train", names, args.limit_per_class, np.random.default_rng(args.seed))
        train = linked(some, Path(folder) / "train")
        new = copied(args.data, args.images, Path(folder) / "new")
        for name, settings in ((name, MODELS[name]) for name in args.models):
            model = LQFClassifier(**given, **settings, views="none", pooling="avg", verbose=0).fit(train)
            wall, processor = seconds(calls(model, new, Path(folder) / "out.csv"), args.runs)
            rows[name] = {
                "images per second": {what: args.images / s for what, s in wall.items()},
                "ratio": ratios(wall),
                "ratio in processor time": ratios(processor),
            }
            print(name, rows[name], flush=True)
            result = {"models": rows, **about, "hardware": hardware(device)}
            write(f"batch_prediction-{args.backbone.replace(':', '-')}-{device.type}", result, args.out)


if __name__ == "__main__":
    main()
