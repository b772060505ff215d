"""Depthwise convolutions: milliseconds and GB/s of each kernel and of PyTorch's own operations, in one run.

    python benchmarks/depthwise.py                                                # small, PyTorch's alone
    python benchmarks/depthwise.py --device cuda --batch 128                      # float32, TF32 allowed
    python benchmarks/depthwise.py --device cuda --batch 128 --precision float16
    python benchmarks/depthwise.py --device cuda --batch 128 --network ConvNeXt-T --tune   # other tiles, too

The layers are those of ConvNeXt-T and of EfficientNet-B0 at 224 pixels. Bytes are those that have to be moved at least:
every activation that goes in or out, once. On a GPU every operation is recorded and replayed, as in a fit.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from common.hardware import hardware, write
from common.options import Options
from torch import Tensor

from lqf.fast.ops.depthwise import _plain, _tangent, _vjp
from lqf.fast.replay import cuda_graph
from lqf.fast.triton import depthwise as depthwise_kernels
from lqf.fast.triton.depthwise import Window, kernels_for
from lqf.runtime.device import resolve_device
from lqf.runtime.precision import matmul_precision

Layer = tuple[int, int, int, int, int]
LAYERS: dict[str, list[Layer]] = {  # channels, pixels, kernel, stride, how many of them
    "ConvNeXt-T": [(96, 56, 7, 1, 3), (192, 28, 7, 1, 3), (384, 14, 7, 1, 9), (768, 7, 7, 1, 3)],
    "EfficientNet-B0": [
        *[(32, 112, 3, 1, 1), (96, 112, 3, 2, 1), (144, 56, 3, 1, 1), (144, 56, 5, 2, 1), (240, 28, 5, 1, 1)],
        *[(240, 28, 3, 2, 1), (480, 14, 3, 1, 2), (480, 14, 5, 1, 1), (672, 14, 5, 1, 2), (672, 14, 5, 2, 1)],
        *[(1152, 7, 5, 1, 3), (1152, 7, 3, 1, 1)],
    ],
}
TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
TUNED: dict[str, list[Any]] = {
    "DOWN": [{2: 1, 4: 1}, {2: 2, 4: 2}],
    "TILE": [{2: t, 4: t} for t in (2048, 4096, 8192)],
    "STRIP": [8, 1024],
}
"""Values to try of constants of `depthwise_kernels`, all together, and of those for gradients at the weights."""
TUNED_WEIGHT: dict[str, list[Any]] = {"WEIGHT_TILE": [512, 1024, 2048], "WEIGHT_PROGRAMS": [2112, 4224, 8448]}


def operations(layer: Layer, batch: int, dtype: torch.dtype, device: torch.device) -> dict[str, dict[str, Any]]:
    """Name -> the operation by the kernels (where they run), the same by PyTorch, and the bytes it has to move."""
    c, pixels, k, stride, _ = layer
    window: Window = (stride, k // 2)
    made = {"dtype": dtype, "device": device}
    x, dx = (torch.randn(batch, c, pixels, pixels, **made).contiguous(memory_format=torch.channels_last) for _ in "12")
    w, dw, b, db = (torch.randn(s, **made) for s in ((c, 1, k, k), (c, 1, k, k), (c,), (c,)))
    g = torch.randn_like(_plain(x, w, b, window))
    by: Any = kernels_for(x, w)
    vjp = lambda *needs: _vjp(x, w, window, g, needs)  # noqa: E731
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any], list[Tensor]]] = {
        "value": (lambda: by.value(x, w, b, window), lambda: _plain(x, w, b, window), [x, g]),
        "tangent": (
            lambda: by.tangent(x, w, window, dx, dw, db),
            lambda: _tangent(x, w, window, dx, dw, db),
            [x, dx, g],
        ),
        "gradient at the input": (lambda: by.pull_input(x, w, window, g), lambda: vjp(True, False, False), [x, g]),
        "gradient at the weights": (
            lambda: by.pull_weight(x, w, window, g, bias=True),
            lambda: vjp(False, True, True),
            [x, g],
        ),
    }
    return {
        name: {"kernel": ours if by else None, "PyTorch": theirs, "bytes": sum(t.nbytes for t in moved)}
        for name, (ours, theirs, moved) in pairs.items()
    }


def milliseconds(function: Callable[[], Any], device: torch.device, rounds: int) -> float:
    """Median of one call, recorded where that is possible."""
    function()
    if device.type != "cuda":
        return 1e3 * statistics.median(_seconds(function) for _ in range(rounds))
    torch.cuda.synchronize(device)
    replay = cuda_graph(lambda: (function(),))
    times = []
    for _ in range(rounds + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in "12")
        begin.record()
        replay()
        end.record()
        torch.cuda.synchronize(device)
        times.append(begin.elapsed_time(end))
    return statistics.median(times[1:])


def _seconds(function: Callable[[], Any]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def measure(args: argparse.Namespace, device: torch.device) -> list[dict[str, Any]]:
    """One row per network, layer and operation."""
    rows = []
    for network in args.network:
        for layer in LAYERS[network]:
            what = dict(zip(("channels", "pixels", "K", "stride", "layers"), layer, strict=True))
            for name, op in operations(layer, args.batch, TYPES[args.precision], device).items():
                row: dict[str, Any] = {"network": network, **what, "operation": name}
                for by in ("kernel", "PyTorch"):
                    if op[by] is not None:
                        ms = milliseconds(op[by], device, args.rounds)
                        row[by] = {"milliseconds": ms, "GB/s": op["bytes"] / ms / 1e6}
                rows.append(row)
                print(
                    f"{network} {layer[:4]} {name}: "
                    + ", ".join(_said(by, row.get(by)) for by in ("kernel", "PyTorch"))
                )
    return rows


def _said(by: str, figures: dict[str, float] | None) -> str:
    return (
        f"{by} {figures['milliseconds']:.3f} ms ({figures['GB/s']:.0f} GB/s)" if figures else f"{by}: does not run here"
    )


def totals(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Milliseconds of all layers of a network together, by operation."""
    out: dict[str, dict[str, float]] = {}
    for row in rows:
        for by in ("kernel", "PyTorch"):
            if by in row:
                sums = out.setdefault(f"{row['network']}, {by}", {})
                ms = row["layers"] * row[by]["milliseconds"]
                sums[row["operation"]] = sums.get(row["operation"], 0.0) + ms
    return out


@contextmanager
def constants(values: dict[str, Any]) -> Iterator[None]:
    """Other values of the kernels' constants, for a while."""
    before = {name: getattr(depthwise_kernels, name) for name in values}
    for name, value in values.items():
        setattr(depthwise_kernels, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(depthwise_kernels, name, value)


def tune(args: argparse.Namespace, device: torch.device) -> list[dict[str, Any]]:
    """Milliseconds of every network's kernels for every choice of the constants."""
    rows: list[dict[str, Any]] = []
    for table, weights in ((TUNED, False), (TUNED_WEIGHT, True)):
        for chosen in itertools.product(*table.values()):
            values = dict(zip(table, chosen, strict=True))
            for network in args.network:
                with constants(values):
                    sums = _by_kernel(LAYERS[network], weights, args, device)
                rows.append({"network": network, **values, **sums})
                print(network, values, {name: round(ms, 3) for name, ms in sums.items()})
    return rows


def _by_kernel(layers: list[Layer], weights: bool, args: argparse.Namespace, device: torch.device) -> dict[str, float]:
    sums: dict[str, float] = {}
    for layer in layers:
        for name, op in operations(layer, args.batch, TYPES[args.precision], device).items():
            if name.endswith("weights") == weights:
                sums[name] = sums.get(name, 0.0) + layer[-1] * milliseconds(op["kernel"], device, args.rounds)
    return sums


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "--batch 1 --rounds 1 --network EfficientNet-B0")
    out.add_settings(device="cpu")
    out.add_argument("--batch", type=int, default=2)
    out.add_argument("--network", nargs="+", default=list(LAYERS), choices=LAYERS)
    out.add_argument("--rounds", type=int, default=5)
    out.add_argument("--precision", default="float32", choices=TYPES)
    out.add_argument("--tune", action="store_true", help="also the kernels with other tiles (on a GPU)")
    return out


def main() -> None:
    """Measure and write JSON."""
    parser = options()
    args = parser.parse()
    device = resolve_device(args.device)
    if args.tune and device.type != "cuda":
        parser.error(f"--tune measures the kernels, which do not run on {device}; give --device cuda")
    with matmul_precision(fast=True), torch.no_grad():
        rows = measure(args, device)
        tuned = tune(args, device) if args.tune else None
    result = {
        "what": f"depthwise convolutions, batch {args.batch}, {args.precision} (TF32 allowed), channels last",
        "milliseconds of all layers": totals(rows),
        "layers": rows,
        "other tiles": tuned,
        "hardware": hardware(device),
    }
    for name, sums in result["milliseconds of all layers"].items():
        print(f"{name:26s} " + ", ".join(f"{op} {ms:.2f} ms" for op, ms in sums.items()))
    print(write(f"depthwise-{args.device}-{args.precision}", result, args.out))


if __name__ == "__main__":
    main()
