"""How fast the dense dual's kernel is made: multiply-adds a second, against a large matrix product, in one run.

    python benchmarks/gram_rate.py                                                       # small, on the CPU
    python benchmarks/gram_rate.py --backbone resnet50 --weights r50.safetensors --device cuda --size 224 \\
        --n 1000 --classes 10

The kernel of m = N·C gradients of D weights is m²·D multiply-adds; it is symmetric, and with k tiles along a side
(k+1)/2k of them are made. `rate` counts those that are made, `useful rate` all m²·D. Everything is float32 without
TF32, as everything that is called exact.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from common.hardware import hardware, write
from common.options import Options
from common.peak import measured
from common.problem import outline
from common.synthetic import opened

from lqf.backbones import load_backbone
from lqf.kernels import gram
from lqf.runtime.device import resolve_device
from lqf.runtime.memory import available_bytes
from lqf.runtime.precision import matmul_precision
from lqf.settings import Settings
from lqf.solvers.planner import jacobian_bytes
from lqf.utils.text import byte_count

TILE = inspect.signature(gram.add_gram).parameters["tile"].default


class Stopwatch:
    """A function that adds up how long it took."""

    def __init__(self, function: Callable[..., Any], device: torch.device):
        self.function, self.device, self.seconds, self.calls = function, device, 0.0, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with measured(self.device) as m:
            out = self.function(*args, **kwargs)
        self.seconds, self.calls = self.seconds + m.seconds, self.calls + 1
        return out


def reference_rate(device: torch.device, side: int, repeats: int = 3) -> float:
    """Multiply-adds a second of a large square product in plain float32."""
    a, b = torch.randn(side, side, device=device), torch.randn(side, side, device=device)
    best = math.inf
    with matmul_precision(fast=False):
        for _ in range(repeats + 1):
            with measured(device) as m:
                a @ b
            best = min(best, m.seconds)
    return side**3 / best


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "--n 24 --size 32")
    out.add_settings("backbone", "weights", size=64, device="cpu")
    out.add_argument("--n", type=int, default=48)
    out.add_argument("--classes", type=int, default=4)
    out.add_argument("--budget", type=float, help="GB of the Jacobian held at a time; default: what a fit takes")
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    device = resolve_device(args.device)
    backbone = load_backbone(args.backbone, weights=args.weights)
    preprocess = backbone.preprocess(size=args.size)
    images = opened(args.n, args.classes, preprocess)
    problem = outline(Settings(head="random"), backbone, images, preprocess, device).quadratic
    c, d = problem.model.n_outputs, problem.model.body.size
    m = args.n * c
    budget = int(args.budget * 1e9) if args.budget else jacobian_bytes(problem, m, available_bytes(device))
    reference = reference_rate(device, 8192 if device.type == "cuda" else 1536)
    products = Stopwatch(gram.add_gram, device)
    with patch("lqf.kernels.gram.add_gram", products), measured(device) as whole:
        gram.body_kernel(problem, gram.every_output(problem), c, budget=budget)
    tiles = math.ceil(m / TILE)
    useful, made = m * m * d, m * m * d * (tiles + 1) / (2 * tiles)
    result = {
        "what": f"{args.backbone}, {args.size} px, N {args.n}, C {c}, D {d}: a kernel of {m}², float32 without TF32",
        "passes over the data": products.calls,
        "seconds": whole.seconds,
        "seconds, products": products.seconds,
        "seconds, gradients": whole.seconds - products.seconds,
        "multiply-adds": useful,
        "multiply-adds made": made,
        "rate of the products": made / products.seconds,
        "rate of the whole": made / whole.seconds,
        "useful rate of the whole": useful / whole.seconds,
        "reference rate": reference,
        "products over reference": made / products.seconds / reference,
        "whole over reference": made / whole.seconds / reference,
        "useful whole over reference": useful / whole.seconds / reference,
        "hardware": hardware(device),
    }
    print(result["what"])
    print(
        f"{whole.seconds:.1f} s: gradients {whole.seconds - products.seconds:.1f} s in {products.calls} passes, "
        f"products {products.seconds:.1f} s; {byte_count(budget)} of the Jacobian at a time"
    )
    for name in ("products over reference", "whole over reference", "useful whole over reference"):
        print(f"{name}: {result[name]:.2f}")
    print(write(f"gram_rate-{args.backbone.replace(':', '_')}-{args.device}", result, args.out))


if __name__ == "__main__":
    main()
