"""What it is worth that freed memory stays with the process: a forward pass on a CPU, with and without.

    python benchmarks/allocator.py                    # small
    python benchmarks/allocator.py --size 224 --batch 16 --repeats 8

Either way is a process of its own, since malloc's options cannot be taken back. Seconds of wall-clock time and of the
processor, as user and in the system (mapping and zeroing pages), per image.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import torch
from common.hardware import hardware, write
from common.options import Options

from lqf.backbones import load_backbone
from lqf.runtime.allocator import keep_freed_memory

WAYS = {"given back": False, "kept": True}


@torch.no_grad()
def passes(args: argparse.Namespace) -> dict[str, float]:
    """Milliseconds per image of forward passes in this process."""
    if WAYS[args.worker] and not keep_freed_memory():
        raise SystemExit("this needs glibc")
    body = load_backbone(args.backbone, weights=args.weights).body.eval()
    x = torch.randn(args.batch, 3, args.size, args.size)
    body(x)
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(args.repeats):
        body(x)
    after, n = resource.getrusage(resource.RUSAGE_SELF), args.repeats * args.batch
    return {
        "wall": 1e3 * (time.perf_counter() - began) / n,
        "user": 1e3 * (after.ru_utime - before.ru_utime) / n,
        "system": 1e3 * (after.ru_stime - before.ru_stime) / n,
        "page faults": (after.ru_minflt - before.ru_minflt) / n,
    }


def in_own_process(way: str, words: list[str]) -> dict[str, float]:
    """Run this script once more as a worker."""
    done = subprocess.run([sys.executable, __file__, *words, "--worker", way], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "--size 64 --batch 4 --repeats 2")
    out.add_settings("backbone", "weights", size=224)
    out.add_argument("--batch", type=int, default=16)
    out.add_argument("--repeats", type=int, default=8)
    out.add_argument("--worker", choices=list(WAYS), help=argparse.SUPPRESS)
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    if args.worker:
        print(json.dumps(passes(args)))
        return
    ways: dict[str, Any] = {way: in_own_process(way, args.words) for way in WAYS}
    for way, found in ways.items():
        print(f"{way:10s} " + ", ".join(f"{name} {value:.1f}" for name, value in found.items()))
    what = {k: getattr(args, k) for k in ("backbone", "size", "batch", "repeats")}
    ratio = ways["given back"]["wall"] / ways["kept"]["wall"]
    result = {**what, "milliseconds per image": ways, "given back over kept": ratio}
    print(write(f"allocator-{args.backbone}-cpu", result | {"hardware": hardware(torch.device("cpu"))}, args.out))


if __name__ == "__main__":
    main()
