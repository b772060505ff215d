"""A whole fit, by effort, against one run of ordinary fine-tuning (30 epochs, bf16), on the same images.

    python benchmarks/whole_fit.py                                                     # small, on the CPU
    python benchmarks/whole_fit.py --backbone resnet50 --weights r50.safetensors --device cuda \\
        --size 224 --data flowers --n 1000 --effort standard best

Every run is a process of its own. Counted are its start (imports, opening the device), loading the network,
compilation, and all of the fit; not counted, for both alike, are making and decoding the images, which is reported by
itself, and saving. The reference is the faster of NLFT with recorded steps and compiled. Take real images: where
nothing is left to gain, a climb is over early.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.hardware import hardware, write
from common.options import Options
from common.synthetic import labels_of, pictures

from lqf.backbones import Backbone, load_backbone
from lqf.data import Images, Preprocess, load_samples, open_images
from lqf.fitting import Context, climb
from lqf.fitting.within_time import spread_over_classes
from lqf.linear.batch import usual_rows
from lqf.linear.targets import error_rate
from lqf.runtime.device import resolve_device
from lqf.settings import Settings
from lqf.training.finetune import FineTuning
from lqf.utils.progress import terminal_progress

Run = dict[str, Any]
KEPT = ("solver", "rungs", "error", "stages", "passes", "relative_residual", "converged", "output_gap", "history")


def fit_lqf(args: argparse.Namespace, backbone: Backbone, train: Images, test: Images, preprocess: Preprocess) -> Run:
    """`lqf fit --effort …`."""
    device = resolve_device(args.device)
    context = Context(Settings(effort=args.worker.removeprefix("lqf ")), device, progress=terminal_progress())
    fitted = climb(train, backbone, preprocess, context)
    seconds, report = time.perf_counter(), fitted.report.to_dict()
    outputs = fitted.outputs(test, device=device, batch_size=usual_rows(device))
    return {"after": seconds, "test_error": error_rate(outputs, labels_of(test)), **{k: report[k] for k in KEPT}}


def fit_nlft(
    args: argparse.Namespace, backbone: Backbone, train: Images, test: Images, preprocess: Preprocess, compiled: bool
) -> Run:
    """One run of ordinary fine-tuning."""
    recipe = FineTuning(args.learning_rate, epochs=args.epochs, batch_size=args.batch, compile=compiled)
    tuned = recipe.fit(backbone, train, preprocess, device=resolve_device(args.device))
    after = time.perf_counter()
    return {"after": after, "test_error": tuned.error(test), "losses": tuned.losses, "training": tuned.seconds}


def work(args: argparse.Namespace) -> Run:
    """One measured run, in this process."""
    device = resolve_device(args.device)
    torch.zeros(1, device=device)
    start = time.time() - args.began
    backbone_at = time.perf_counter()
    backbone = load_backbone(args.backbone, weights=args.weights, leaky=args.worker.startswith("lqf"))
    loading = time.perf_counter() - backbone_at
    preprocess = backbone.preprocess(size=args.size)
    train, test, decoding = images(args, preprocess)
    began = time.perf_counter()
    if args.worker.startswith("lqf"):
        result = fit_lqf(args, backbone, train, test, preprocess)
    else:
        result = fit_nlft(args, backbone, train, test, preprocess, args.worker == "nlft compiled")
    fitting = result.pop("after") - began
    times = {"start": start, "loading": loading, "fitting": fitting, "decoding, not counted": decoding}
    return {"n": len(train), "seconds": start + loading + fitting, "times": times, **result}


def images(args: argparse.Namespace, preprocess: Preprocess) -> tuple[Images, Images, float]:
    """Training and test images, and the seconds that decoding the former took."""
    if args.data is None:
        samples = load_samples(*pictures(args.n[0], args.classes, preprocess.stored))
        held_out = load_samples(*pictures(args.test, args.classes, preprocess.stored, seed=1))
    else:
        every = load_samples(args.data / "train")
        samples = every.select(np.sort(spread_over_classes(every.labels, seed=0)[: args.n[0]]))
        held_out = load_samples(args.data / "test", classes=samples.classes)
    began = time.perf_counter()
    train = open_images(samples, preprocess)
    decoding = time.perf_counter() - began
    return train, open_images(held_out, preprocess), decoding


def in_own_process(worker: str, n: int, words: list[str]) -> Run:
    """Run this script once more as a worker."""
    command = [sys.executable, __file__, *words, "--worker", worker, "--n", str(n), "--began", repr(time.time())]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def compare(args: argparse.Namespace, n: int) -> Run:
    """All runs for one number of images, and the ratios."""
    ways = {"both": ["nlft", "nlft compiled"], "recorded": ["nlft"], "compiled": ["nlft compiled"]}[args.nlft]
    climbs = [f"lqf {effort}" for effort in args.effort]
    row: Run = {}
    for worker in [*ways, *climbs]:
        run = row[worker] = in_own_process(worker, n, args.words)
        times = ", ".join(f"{k} {v:.1f}" for k, v in run["times"].items())
        print(f"{n:6d} images  {worker:14s} {run['seconds']:8.1f} s ({times})  test error {run['test_error']:.1%}")
        for rung in run.get("rungs", ()):
            print(f"{'':16s}{rung['name']:20s} {rung['seconds']} s ({rung['predicted_seconds']}) {rung['why']}")
        sys.stdout.flush()
    reference = min(ways, key=lambda way: row[way]["seconds"])
    ratios = {climb: row[climb]["seconds"] / row[reference]["seconds"] for climb in climbs}
    print(f"{n:6d} images  over {reference}: {', '.join(f'{k} {v:.2f}' for k, v in ratios.items())}", flush=True)
    return {"n": n, "reference": reference, "ratios": ratios, "runs": row}


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "--n 16 --test 40 --size 32 --epochs 2 --effort quick")
    out.add_settings("backbone", "weights", size=64, device="cpu")
    out.add_argument("--n", type=int, nargs="+", default=[48])
    out.add_argument("--test", type=int, default=200, help="test images, of synthetic data")
    out.add_argument("--classes", type=int, default=4)
    out.add_argument("--data", type=Path, help="a folder with train/ and test/ instead of synthetic images")
    out.add_argument("--epochs", type=int, default=30, help="of NLFT")
    out.add_argument("--batch", type=int, default=128, help="of NLFT")
    out.add_argument("--learning-rate", type=float, default=0.01, help="of NLFT")
    out.add_argument("--effort", nargs="+", choices=["quick", "standard", "best"], default=["standard"])
    out.add_argument("--nlft", choices=["both", "recorded", "compiled"], default="recorded")
    out.add_argument("--name", default="whole_fit")
    out.add_argument("--worker", help=argparse.SUPPRESS)
    out.add_argument("--began", type=float, help=argparse.SUPPRESS)
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    if args.worker:
        print(json.dumps(work(args)))
        return
    rows = [compare(args, n) for n in args.n]
    what = {k: getattr(args, k) for k in ("backbone", "size", "classes", "epochs", "batch")}
    data = args.data.name if args.data else "synthetic"
    result = {**what, "data": data, "rows": rows}
    name = f"{args.name}-{data}-{args.backbone.replace(':', '_')}-{args.device}"
    print(write(name, result | {"hardware": hardware(resolve_device(args.device))}, args.out))


if __name__ == "__main__":
    main()
