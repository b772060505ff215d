"""How one product of the solver grows with the number of images: time per image, and memory beyond the images.

    python benchmarks/growth.py                                                          # small, on the CPU
    python benchmarks/growth.py --backbone resnet50 --weights r50.safetensors --device cuda --size 224 \\
        --n 1000 3000 10000 30000 --classes 10

A product is what every step of PCG makes: one sweep forward, the head's elimination, one sweep backward, and the
K-FAC solve, all as in a fit; first without any activations kept, which is what grows linearly, then with as many as a
fit keeps. K-FAC itself, its eigendecompositions included, is measured too, in products. The images are a small block
repeated, as uint8, kept where a fit keeps them.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from common.hardware import hardware, write
from common.options import Options
from common.peak import Measured, measured
from common.problem import outline
from common.synthetic import repeated

from lqf.backbones import Backbone, load_backbone
from lqf.curvature import body_curvature
from lqf.fast.cache_budget import keep_activations, release_activations
from lqf.linear.ridge import Ridge
from lqf.runtime.device import resolve_device
from lqf.runtime.precision import matmul_precision
from lqf.settings import Settings
from lqf.solvers.schur import SchurComplement
from lqf.utils.text import byte_count


def products(args: argparse.Namespace, backbone: Backbone, n: int) -> dict[str, Any]:
    """Time and memory of a product over n images, without and with kept activations; seconds of K-FAC."""
    device = resolve_device(args.device)
    preprocess = backbone.preprocess(size=args.size)
    settings = Settings(solver="pcg", head="random", batch_size=args.batch)
    posed = outline(settings, backbone, repeated(n, args.classes, preprocess), preprocess, device)
    problem, engine = posed.quadratic.with_ridge(Ridge(1.0, 10.0)), posed.encoder.engine
    for _ in range(2):  # the first warms up
        with measured(device) as curvature, matmul_precision(fast=True):
            kfac = body_curvature(problem)
    fast = engine.fast(problem)
    schur = SchurComplement(problem, posed.features, posed.head.ridge, fast)

    def best() -> Measured:
        v = 1e-3 * torch.randn(problem.zero_body().shape, device=device)
        out = []
        for _ in range(args.products + 1):  # the first warms up
            with measured(device) as m, matmul_precision(fast=True):
                kfac.solve(schur.product(v), problem.ridge)
            out.append(m)
        return min(out[1:], key=lambda m: m.seconds)

    plain = best()
    rows = keep_activations(fast, engine.measured(problem))
    kept = best() if rows else plain
    release_activations(fast)
    return {"plain": plain, "kept": kept, "rows kept": rows, "K-FAC": curvature.seconds}


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "--n 16 48 --size 32 --products 1")
    out.add_settings("backbone", "weights", size=64, device="cpu")
    out.add_argument("--n", type=int, nargs="+", default=[32, 96, 320])
    out.add_argument("--classes", type=int, default=10)
    out.add_argument("--batch", type=int, help="rows per batch; default: that of a fit")
    out.add_argument("--products", type=int, default=2)
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    backbone = load_backbone(args.backbone, weights=args.weights)
    rows: list[dict[str, Any]] = []
    for n in args.n:
        run = products(args, backbone, n)
        best, kept, curvature = run["plain"], run["kept"].seconds, run["K-FAC"]
        row = {"n": n, "seconds": best.seconds, "per image": best.seconds / n, "held": best.before, "peak": best.peak}
        first = rows[0] if rows else row
        row["per image, relative"] = row["per image"] / first["per image"]
        row["beyond what is held"] = best.beyond
        row |= {"seconds, activations kept": kept, "rows kept": run["rows kept"]}
        row |= {"K-FAC": curvature, "K-FAC, in products": curvature / best.seconds}
        rows.append(row)
        print(
            f"{n:7d} images: {best.seconds:8.2f} s a product, {1e3 * row['per image']:7.3f} ms an image "
            f"({row['per image, relative']:.2f} of that with {first['n']}); peak {byte_count(best.peak)}, of which "
            f"{byte_count(best.beyond)} for the product ({byte_count(abs(best.peak - first['peak']))} "
            f"{'more' if best.peak >= first['peak'] else 'less'} than with {first['n']}); "
            f"{kept:.2f} s with the activations of {run['rows kept']} rows kept; "
            f"K-FAC {curvature:.1f} s, {curvature / best.seconds:.1f} products",
            flush=True,
        )
    what = {k: getattr(args, k) for k in ("backbone", "size", "classes", "device")}
    result = {**what, "rows": rows, "hardware": hardware(resolve_device(args.device))}
    print(write(f"growth-{args.backbone.replace(':', '_')}-{args.device}", result, args.out))


if __name__ == "__main__":
    main()
