"""What fits, predictions and explanations do when a GPU gives them little memory: a smaller plan, or a sentence.

    python benchmarks/gpu_limits.py oxford_flowers102 --backbone resnet50 --weights r50.safetensors --size 224 \\
        --device cuda --classes 10 --limit-per-class 10 --gigabytes 0.1 0.2 0.3 0.5 1 2 4 16

DATA is a folder with train/ and test/. PyTorch's allocator is given so many gigabytes and nothing beyond. Every solver
is fitted under every limit; a model fitted without one then predicts and explains under every limit. What came of it
is `done`, with the plan and the peak; `refused`, with the sentence; or `failed`, which should not be. On a CPU, whose
memory cannot be limited so, the plans are made for so many gigabytes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from common.hardware import hardware, write
from common.options import Options
from common.subset import linked, pictures

from lqf import LQFClassifier, LQFError
from lqf.runtime.device import gpu_number, resolve_device
from lqf.runtime.out_of_memory import free_memory
from lqf.utils.progress import SILENT, Stage

NAMES = ("backbone", "weights", "size", "seed", "device")
"""Settings."""


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32 --limit-per-class 2 --gigabytes 1e-9 4 --device cpu --solvers dense pcg")
    out.add_data()
    out.add_settings(*NAMES)
    out.add_argument("--limit-per-class", type=int, default=10, help="training images of each class")
    out.add_argument("--classes", type=int, help="so many of the classes; default: all")
    out.add_argument("--gigabytes", nargs="+", type=float, default=[0.2, 0.5, 1, 4], help="limits")
    out.add_argument("--solvers", nargs="+", default=["auto", "dense", "pcg", "head"], help="that are fitted")
    out.add_argument("--seconds", type=float, default=90, help="nothing begins after so many")
    return out


class Said:
    """Remembers the sentences, and shows nothing."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, sentence: str) -> None:
        """Of memory among others."""
        self.said.append(sentence)

    note = say

    def stage(self, name: str, total: int | None = None, unit: str = "") -> AbstractContextManager[Stage]:
        """Nothing is counted."""
        return SILENT.stage(name, total, unit)

    def rung(self, name: str, seconds: float, rest: float) -> AbstractContextManager[None]:
        """Nor shown."""
        return SILENT.rung(name, seconds, rest)


@contextmanager
def limited(gigabytes: float, device: torch.device) -> Iterator[None]:
    """A block with so much memory."""
    free_memory()
    if device.type != "cuda":
        with mock.patch("lqf.runtime.memory.available_ram", return_value=int(1e9 * gigabytes)):
            yield
        return
    _, total = torch.cuda.mem_get_info(device)
    torch.cuda.reset_peak_memory_stats(device)
    number = gpu_number(device)
    torch.cuda.set_per_process_memory_fraction(min(1.0, 1e9 * gigabytes / total), number)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, number)


def outcome(act: Callable[[Said], dict[str, Any]], gigabytes: float, device: torch.device) -> dict[str, Any]:
    """What came of it."""
    said, began = Said(), time.perf_counter()
    try:
        with limited(gigabytes, device):
            row: dict[str, Any] = {"outcome": "done", **act(said)}
            if device.type == "cuda":
                row["peak gigabytes"] = torch.cuda.max_memory_reserved(device) / 1e9
    except LQFError as error:
        row = {"outcome": "refused", "sentence": str(error)}
    except Exception as error:  # told where the sentence would be
        row = {"outcome": "failed", "error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    words = [s for s in said.said if "memory" in s]
    return row | {"seconds": time.perf_counter() - began} | ({"said": words} if words else {})


def main() -> None:
    """Fit, predict and explain under every limit; what is known is written after every case."""
    args = options().parse()
    device, began = resolve_device(args.device), time.perf_counter()
    generator = np.random.default_rng(args.seed)
    names = sorted(p.name for p in (args.data / "train").iterdir() if p.is_dir())[: args.classes]
    chosen = pictures(args.data / "train", names, args.limit_per_class, generator)
    test = [str(p) for p in pictures(args.data / "test", names, 3, generator)[0]]
    result: dict[str, Any] = {"images": len(chosen[0]), "classes": len(names), "rows": []}

    def keep(what: str, gigabytes: float, act: Callable[[Said], dict[str, Any]]) -> None:
        if time.perf_counter() - began > args.seconds:
            return
        row = {"what": what, "gigabytes": gigabytes, **outcome(act, gigabytes, device)}
        result["rows"].append(row)
        print(row, flush=True)
        result["counts"] = Counter(r["outcome"] for r in result["rows"])
        name = f"gpu_limits-{args.backbone.replace(':', '-')}-{device.type}"
        write(name, {**result, "hardware": hardware(device)}, args.out)

    with tempfile.TemporaryDirectory() as folder:
        train = linked(chosen, Path(folder) / "train")
        saved = Path(folder) / "model"
        fit(args, "auto", train).save(saved)
        for gigabytes in args.gigabytes:
            keep("predict", gigabytes, lambda said: predicted(loaded(saved, args), test, said))
            keep("explain", gigabytes, lambda said: explained(loaded(saved, args), test[0], said))
        for gigabytes in args.gigabytes:
            for solver in args.solvers:
                keep(f"fit {solver}", gigabytes, lambda said, s=solver: planned(args, s, train, said))  # type: ignore[misc]
    print(dict(result["counts"]))


def fit(args: argparse.Namespace, solver: str, train: Path, said: Any = None) -> LQFClassifier:
    """A model in one view."""
    given = {name: getattr(args, name) for name in NAMES}
    return LQFClassifier(**given, solver=solver, views="none", verbose=0).fit(train, progress=said)


def loaded(saved: Path, args: argparse.Namespace) -> LQFClassifier:
    """One that knows nothing of earlier answers."""
    return LQFClassifier.load(saved, device=args.device, verbose=0)


def planned(args: argparse.Namespace, solver: str, train: Path, said: Said) -> dict[str, Any]:
    """What a fit did."""
    report = fit(args, solver, train, said).report_
    return {"solver": report["solver"], "plan": report["plan"]}


def predicted(model: LQFClassifier, test: list[str], said: Said) -> dict[str, Any]:
    """Whether predictions are numbers."""
    return {"finite": bool(np.isfinite(model.predict_proba(test, progress=said)).all())}


def explained(model: LQFClassifier, image: str, said: Said) -> dict[str, Any]:
    """What an explanation says of itself."""
    return {"sentence": repr(model.explain(image, progress=said))[:200]}


if __name__ == "__main__":
    main()
