"""What one product Jᵀ(Jv) costs: against `torch.func`, curvlinops, and against one ordinary training step, in one run.

    python benchmarks/product_cost.py                                    # EfficientNet-Lite0 on the CPU
    python benchmarks/product_cost.py --backbone resnet50 --weights r50.safetensors --device cuda --batch 128 --compile

All variants take turns in every round, so that a busy machine slows all of them alike; the ratio of medians counts.
"""

from __future__ import annotations

import argparse
import copy
import inspect
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from hardware import hardware, write
from torch import Tensor, nn
from torch.func import functional_call, jvp, vjp

from lqf.backbones import load_backbone
from lqf.linearize import Linearization
from lqf.precision import matmul_precision


def variants(body: nn.Module, x: Tensor) -> dict[str, Callable[[], object]]:
    """The things that are timed, each for one batch x."""
    linear = Linearization(body)
    v = torch.randn(linear.size, device=x.device) * 1e-2
    weights, tangents = linear.weights(), linear.layout.views(v)
    labels = torch.zeros(len(x), dtype=torch.long, device=x.device)
    trained = {n: w.clone().requires_grad_() for n, w in weights.items()}
    optimiser = torch.optim.SGD(trained.values(), lr=1e-6, momentum=0.9)

    def call(w: dict[str, Tensor]) -> Tensor:
        return functional_call(body, w, (x,))

    def with_torch_func() -> object:
        jv = jvp(call, (weights,), (tangents,))[1]
        pull = vjp(call, weights)[1]
        return pull(jv)

    def training_step() -> None:
        optimiser.zero_grad()
        nn.functional.cross_entropy(call(trained), labels).backward()
        optimiser.step()

    return {
        "training step": training_step,
        "fused product": lambda: linear.fused(x, v, lambda _, dz: dz),
        "torch.func jvp + vjp": with_torch_func,
        "J·v alone": lambda: linear.jvp(x, v),
        "Jᵀ·u alone": lambda: linear.vjp(x, torch.ones_like),
    }


Functions = dict[str, Callable[[], object]]


def curvlinops_product(body: nn.Module, x: Tensor) -> Functions:
    """The same product by curvlinops: its GGN for the summed squared error is 2·JᵀJ."""
    if find_spec("curvlinops") is None:
        print("curvlinops is not installed; its product is left out")
        return {}
    from curvlinops import GGNLinearOperator

    own = copy.deepcopy(body).requires_grad_()
    targets = torch.zeros_like(body(x))
    ggn = GGNLinearOperator(
        own, nn.MSELoss(reduction="sum"), list(own.parameters()), [(x, targets)], check_deterministic=False
    )
    v = torch.randn(Linearization(body).size, device=x.device) * 1e-2
    ours, theirs = Linearization(body).fused(x, v, lambda _, dz: dz)[1], (ggn @ v) / 2
    print(f"curvlinops: relative difference of the product {float((theirs - ours).norm() / ours.norm()):.1e}")
    return {"curvlinops GGN": lambda: ggn @ v}


def compiled_variants(body: nn.Module, x: Tensor) -> Functions:
    """Through torch.compile: the training step, and the product where `Linearization` offers it (``compile=True``)."""
    own = copy.deepcopy(body).requires_grad_()
    forward = torch.compile(own)
    labels = torch.zeros(len(x), dtype=torch.long, device=x.device)
    optimiser = torch.optim.SGD(own.parameters(), lr=1e-6, momentum=0.9, fused=x.is_cuda)

    def training_step() -> None:
        optimiser.zero_grad()
        nn.functional.cross_entropy(forward(x), labels).backward()
        optimiser.step()

    out: Functions = {"training step, compiled": training_step}
    if "compile" in inspect.signature(Linearization).parameters:
        options: dict[str, Any] = {"compile": True}
        linear = Linearization(body, **options)
        v = torch.randn(linear.size, device=x.device) * 1e-2
        out["fused product, compiled"] = lambda: linear.fused(x, v, lambda _, dz: dz)
    return out


def measure(functions: Functions, device: torch.device, rounds: int) -> dict[str, dict[str, float]]:
    """Median seconds, and peak bytes beyond what was held before (CUDA), of every variant."""
    seconds: dict[str, list[float]] = {n: [] for n in functions}
    peak: dict[str, float] = {}
    for round_ in range(rounds + 1):  # the first warms up
        for name, function in functions.items():
            before = _reset(device)
            began = time.perf_counter()
            function()
            _wait(device)
            if round_:
                seconds[name].append(time.perf_counter() - began)
            if device.type == "cuda":
                peak[name] = torch.cuda.max_memory_allocated(device) - before
    return {n: {"seconds": statistics.median(s), "peak_bytes": peak.get(n, 0.0)} for n, s in seconds.items()}


def _reset(device: torch.device) -> float:
    if device.type != "cuda":
        return 0.0
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    return float(torch.cuda.memory_allocated(device))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    """Measure and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--weights")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tf32", action="store_true", help="allow TensorFloat-32 on the GPU")
    parser.add_argument("--compile", action="store_true", help="also through torch.compile")
    parser.add_argument("--out", type=Path, help="folder for the JSON; default benchmarks/results")
    args = parser.parse_args()
    device = torch.device(args.device)
    body = load_backbone(args.backbone, weights=args.weights).body.to(device)
    x = torch.randn(args.batch, 3, args.size, args.size, device=device)
    with matmul_precision(args.tf32):
        functions = variants(body, x) | curvlinops_product(body, x)
        if args.compile:
            functions |= compiled_variants(body, x)
        times = measure(functions, device, args.rounds)
    step, fused = times["training step"], times["fused product"]
    result = {
        "what": f"{args.backbone}, {args.size} px, batch {args.batch}, {'tf32' if args.tf32 else 'float32'}",
        "fused over training step": fused["seconds"] / step["seconds"],
        "torch.func over fused": times["torch.func jvp + vjp"]["seconds"] / fused["seconds"],
        "memory, fused over training step": fused["peak_bytes"] / step["peak_bytes"] if step["peak_bytes"] else None,
        "relative to the training step": {n: t["seconds"] / step["seconds"] for n, t in times.items()},
        "variants": times,
        "hardware": hardware(device),
    }
    for name, t in times.items():
        print(f"{name:24s} {1e3 * t['seconds']:8.1f} ms   {t['seconds'] / step['seconds']:5.2f} × a training step")
    kind = args.device + ("-tf32" if args.tf32 else "") + ("-compile" if args.compile else "")
    print(write(f"product_cost-{args.backbone}-{kind}", result, args.out))


if __name__ == "__main__":
    main()
