"""What `model.as_module()` costs beside its backbone's own forward pass, in PyTorch, and how exactly it is the model.

    python benchmarks/exported_module.py oxford_flowers102 --backbone resnet50 --weights r50.safetensors --size 224 \\
        --device cuda --limit-per-class 3 --classes 20 --batches 1 8 64 256 --compiled 64 --compiled-seconds 60

DATA is a folder with train/ and test/. A dense fit in one view on few images of some classes is turned into a module,
and its probabilities are compared with the model's on test images of all classes, in float32 without TF32. Then the
module, pictures in, and its two streams alone, network inputs in, are timed beside the backbone alone: as they are; as
captured by `torch.export`; recorded as CUDA graphs; and compiled. Milliseconds are medians of calls in turn, device
time included, in float32 without TF32 (as `predict` computes) and with it (then with channels last). What cannot be run
is told instead of its times.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.hardware import hardware, write
from common.options import Options
from common.subset import pictures
from torch import Tensor, nn

from lqf import LQFClassifier
from lqf.data import load_unlabelled
from lqf.export.files import largest_difference
from lqf.fitting import FittedModel
from lqf.linear.linearize import linearized_body
from lqf.runtime.device import computing_on, resolve_device
from lqf.runtime.precision import matmul_precision

NAMES = ("backbone", "weights", "size", "seed", "pooling", "device")
"""Settings."""
Run = Callable[[], Any]
WAYS = ("as it is", "captured", "recorded")
"""How a network is called; compiled besides, for some batches."""


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32 --limit-per-class 2 --checked 6 --runs 2 --batches 1 2 --device cpu")
    out.add_data()
    out.add_settings(*NAMES)
    out.add_argument("--limit-per-class", type=int, default=3, help="training images of each class")
    out.add_argument("--classes", type=int, help="so many of the classes; default: all")
    out.add_argument("--batches", nargs="+", type=int, default=[1, 8], help="pictures per call")
    out.add_argument("--compiled", nargs="*", type=int, default=[], help="batches for which networks are compiled too")
    out.add_argument("--compiled-seconds", type=float, default=60, help="no compilation begins after so many of them")
    out.add_argument("--checked", type=int, default=100, help="test images that are compared")
    out.add_argument("--runs", type=int, default=20, help="timed calls of each")
    return out


@dataclass
class Networks:
    """What is timed: each from an input of its own.

    Attributes:
        module: pictures -> probabilities.
        streams: inputs of the network -> z and J·δ.
        backbone: inputs of the network -> z.
        size: side of these inputs.
    """

    module: nn.Module
    streams: nn.Module
    backbone: nn.Module
    size: int

    def named(self) -> dict[str, nn.Module]:
        """By the name under which it is reported."""
        return {"module": self.module, "two streams": self.streams, "backbone": self.backbone}

    def given(self, name: str, batch: int, device: torch.device) -> Tensor:
        """An input: pictures are larger than the network's, and of another shape."""
        draw, side = torch.Generator().manual_seed(0), self.size
        if name == "module":
            shape = (batch, 3, side + side // 4, side + side // 2)
            return torch.randint(0, 256, shape, dtype=torch.uint8, generator=draw).to(device)
        return torch.randn(batch, 3, side, side, generator=draw).to(device)


def fitted(args: argparse.Namespace, some: list[str]) -> LQFClassifier:
    """The dense fit on some classes."""
    given = {name: getattr(args, name) for name in NAMES}
    generator = np.random.default_rng(args.seed)
    paths, labels = pictures(args.data / "train", some, args.limit_per_class, generator)
    model = LQFClassifier(**given, solver="dense", linearize="all", views="none", verbose=0)
    return model.fit([str(p) for p in paths], labels)


def networks_of(model: LQFClassifier, device: torch.device) -> Networks:
    """The module, its inside, and the backbone without a head."""
    assert isinstance(model.fitted_, FittedModel)
    module = model.as_module(str(device))
    (member,) = module.members
    streams = member.get_submodule("network")
    own = copy.deepcopy(model.fitted_.backbone.body)  # the model's goes where it predicts
    _, body = linearized_body(own.to(device))
    return Networks(module, streams, body.module, model.fitted_.preprocess.size)


def compared(model: LQFClassifier, test: list[Path], networks: Networks, device: torch.device) -> dict[str, Any]:
    """Largest difference of a probability to the model's, which is computed on the CPU."""
    assert isinstance(model.fitted_, FittedModel)
    images = model.open(load_unlabelled([str(p) for p in test]))
    module: Any = networks.module

    def run(x: Tensor, _: Tensor) -> Tensor:
        with matmul_precision(fast=False), torch.no_grad():
            return module(x.to(device))[0].cpu()  # type: ignore[no-any-return]

    return {"images": len(test), "difference": largest_difference(model.fitted_, run, module, images)}


def ready(way: str, network: nn.Module, x: Tensor) -> Run:
    """One call of the network on x."""
    if way == "as it is":
        return lambda: network(x)
    if way == "compiled":
        compiled = torch.compile(captured(network, x), dynamic=False)
        return lambda: compiled(x)
    program = captured(network, x)
    if way == "captured":
        return lambda: program(x)
    assert x.is_cuda, "only a GPU records"
    return recorded(lambda: program(x))


def captured(network: nn.Module, x: Tensor) -> nn.Module:
    """What `torch.export` makes of it."""
    return torch.export.export(network, (x,), strict=False).module()


def recorded(run: Run) -> Run:
    """The same as a CUDA graph."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = run()
    return lambda: (graph.replay(), kept)


def milliseconds(calls: dict[str, Run], runs: int, device: torch.device) -> dict[str, float]:
    """Median of each, called in turn after three calls that are not counted."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for k in range(runs + 3):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if k >= 3:
                taken[name].append(1000 * (time.perf_counter() - began))
    return {name: statistics.median(all_) for name, all_ in taken.items()}


def timed(networks: Networks, way: str, batch: int, runs: int, device: torch.device) -> dict[str, Any]:
    """Times of one way, and how many times the backbone's."""
    try:
        calls = {
            name: ready(way, network, networks.given(name, batch, device)) for name, network in networks.named().items()
        }
        took = milliseconds(calls, runs, device)
    except Exception as error:  # told where the times would be
        return {"not run": f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"}
    ratio = {name: took[name] / took["backbone"] for name in ("module", "two streams")}
    return {"milliseconds": took, "ratio": ratio}


def main() -> None:
    """Fit, compare, time; what is known is written after every part."""
    args = options().parse()
    device = resolve_device(args.device)
    some = sorted(p.name for p in (args.data / "train").iterdir() if p.is_dir())[: args.classes]
    test = sorted((args.data / "test").glob("*/*"))
    test = test[:: max(1, len(test) // args.checked)][: args.checked]
    result: dict[str, Any] = {"classes": len(some), "times": []}
    name = f"exported_module-{args.backbone.replace(':', '-')}-{device.type}"

    def save() -> None:
        write(name, {**result, "hardware": hardware(device)}, args.out)

    began = time.perf_counter()
    model = fitted(args, some)
    with computing_on(device), torch.no_grad():
        networks = networks_of(model, device)
        result["seconds to fit"] = time.perf_counter() - began
        result["compared"] = compared(model, test, networks, device)
        print(result, flush=True)
        save()
        ways = WAYS if device.type == "cuda" else WAYS[:2]
        cases = [(way, batch) for batch in args.batches for way in ways]
        for precision in ("float32", "tf32, channels last") if device.type == "cuda" else ("float32",):
            if precision != "float32":
                for network in networks.named().values():
                    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            begun = time.perf_counter()
            for way, batch in [*cases, *(("compiled", batch) for batch in args.compiled)]:
                if way == "compiled" and time.perf_counter() - begun > args.compiled_seconds:
                    continue
                with matmul_precision(fast=precision != "float32"):
                    row = {"precision": precision, "way": way, "batch": batch}
                    row |= timed(networks, way, batch, args.runs, device)
                result["times"].append(row)
                print(row, flush=True)
                save()


if __name__ == "__main__":
    main()
