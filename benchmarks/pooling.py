"""Bilinear pooling: the memory it adds to a product, and its root by eigendecompositions against Newton's iterations.

    python benchmarks/pooling.py                                                         # small, on the CPU
    python benchmarks/pooling.py --backbone resnet50 --weights r50.safetensors --device cuda --batch 128

Memory is the peak of J·v and Jᵀ·u beyond what is held before, without recording, with average and with bilinear
pooling. The root's derivatives both ways are compared with those of eigendecompositions in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from common.hardware import hardware, write
from common.options import Options
from common.peak import measured
from torch import Tensor
from torch.func import jvp, vjp

from lqf.backbones import Backbone, load_backbone
from lqf.backbones.average_pool import find_average_pool, with_bilinear_pool
from lqf.backbones.bilinear_pool import covariance_root
from lqf.backbones.matrix_root import matrix_inverse, matrix_root
from lqf.fast import FastLinearization
from lqf.linear.linearize import Linearization
from lqf.runtime.device import resolve_device
from lqf.runtime.precision import matmul_precision
from lqf.utils.text import byte_count

WAYS = {"eigendecomposition": False, "Newton": True}


def product_peak(backbone: Backbone, x: Tensor, dtype: torch.dtype) -> dict[str, float]:
    """Seconds and bytes of one product."""
    body = FastLinearization(Linearization(backbone.body), dtype, x[:2], recorded=False)
    v = 1e-2 * torch.randn(body.size, device=x.device)
    for _ in range(2):  # the first warms up
        with measured(x.device) as m, matmul_precision(fast=True):
            body.vjp(x, body.jvp(x, v)[1])
    return {"seconds": m.seconds, "bytes": float(m.beyond)}


def root(y: Tensor, newton: bool) -> Callable[[Tensor], Tensor]:
    """covariance_root with one way or the other."""

    def call(maps: Tensor) -> Tensor:
        ways = {"matrix_root": matrix_root, "matrix_inverse": matrix_inverse}
        with patch.multiple("lqf.backbones.bilinear_pool", **{n: partial(f, newton=newton) for n, f in ways.items()}):
            return covariance_root(maps)

    return call


def compare_roots(y: Tensor, rounds: int = 3) -> dict[str, Any]:
    """Milliseconds of value, J·v and Jᵀ·u, and their relative errors, for maps y (B, k, L)."""
    dy, exact = torch.randn_like(y), root(y, newton=False)
    few = slice(0, min(len(y), 16))
    _, tangent = jvp(exact, (y[few].double(),), (dy[few].double(),))
    out: dict[str, Any] = {}
    for name, newton in WAYS.items():
        call = root(y, newton=newton)
        s, ds = jvp(call, (y,), (dy,))
        pull = vjp(call, y)[1]
        adjoint = float((pull(s)[0].double() * dy).sum() / (s.double() * ds).sum() - 1)
        steps: dict[str, Callable[[], Any]] = {
            "value": lambda call=call: call(y),
            "J·v": lambda call=call: jvp(call, (y,), (dy,)),
            "Jᵀ·u": lambda call=call, s=s: vjp(call, y)[1](s),
        }
        out[name] = {"milliseconds": {k: 1e3 * _best(f, y.device, rounds) for k, f in steps.items()}}
        out[name]["relative error of J·v"] = float((ds[few].double() - tangent).norm() / tangent.norm())
        out[name]["adjoint identity, relative"] = abs(adjoint)
    return out


def _best(function: Callable[[], Any], device: torch.device, rounds: int) -> float:
    seconds = []
    for _ in range(rounds + 1):
        with measured(device) as m:
            function()
        seconds.append(m.seconds)
    return min(seconds[1:])


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "--size 96 --batch 4 --channels 64")
    out.add_settings("backbone", "weights", size=224, device="cpu")
    out.add_argument("--batch", type=int, default=8)
    out.add_argument("--channels", type=int, default=256)
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    device = resolve_device(args.device)
    backbone = load_backbone(args.backbone, weights=args.weights)
    backbone.body.to(device)
    x = torch.randn(args.batch, 3, args.size, args.size, device=device)
    pool = find_average_pool(backbone.body, x[:2])
    assert pool is not None
    rows = torch.linalg.qr(torch.randn(pool.channels, args.channels))[0].T.to(device)
    pooled = with_bilinear_pool(backbone, pool.name, rows, args.channels)
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    products = {"average": product_peak(backbone, x, dtype), "bilinear": product_peak(pooled, x, dtype)}
    extra = products["bilinear"]["bytes"] - products["average"]["bytes"]
    maps = torch.randn(args.batch, args.channels, pool.positions, device=device)
    roots = compare_roots(maps)
    for name, m in products.items():
        print(f"{name:9s} product {1e3 * m['seconds']:8.1f} ms, peak {byte_count(m['bytes'])}")
    print(f"bilinear pooling adds {byte_count(abs(extra))}{' less' if extra < 0 else ''}")
    for name, r in roots.items():
        times = ", ".join(f"{k} {ms:.1f} ms" for k, ms in r["milliseconds"].items())
        print(f"{name:19s} {times}; error of J·v {r['relative error of J·v']:.1e}")
    what = f"{args.backbone}, {args.size} px, batch {args.batch}, {args.channels} channels, {pool.positions} positions"
    result = {"what": what, "products": products, "extra bytes": extra, "roots": roots, "hardware": hardware(device)}
    print(write(f"pooling-{args.backbone.replace(':', '_')}-{args.device}", result, args.out))


if __name__ == "__main__":
    main()
