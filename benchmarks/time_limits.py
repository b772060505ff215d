"""Whether `lqf fit` keeps to its time limit, start-up and saving counted, and when the first models are there.

    python benchmarks/time_limits.py                                     # small
    python benchmarks/time_limits.py cub flowers --n 50 400 1000 --limits 20 60 300 --unasked 100

Every fit is a process of its own, with a folder of timings that the fits before it have filled, as on a user's machine.
Moments are those at which its lines on stderr, and its model folder, appear.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from common.hardware import hardware, write
from common.options import Options

PER_CLASS = 10
KEPT = ("n", "images_given", "effort", "error", "loo_error", "next_rung", "seconds")


def photos(folders: Iterable[Path], n: int) -> list[tuple[Path, str]]:
    """n images of about n/10 classes, at least two, in turn from all folders."""
    classes = [sorted(p for p in (folder / "train").iterdir() if p.is_dir()) for folder in folders]
    in_turn = [c for same in zip(*classes, strict=False) for c in same]
    in_turn += [c for own in classes for c in own if c not in in_turn]
    wanted = in_turn[: max(2, min(len(in_turn), n // min(PER_CLASS, n // 2)))]
    files = {c: sorted(p for p in c.iterdir() if p.is_file()) for c in wanted}
    rows = [(files[c][i], f"{c.parent.parent.name} {c.name}") for i in range(n) for c in wanted if i < len(files[c])]
    return rows[:n]


def write_manifest(path: Path, rows: list[tuple[Path, str]]) -> None:
    """For `lqf fit`."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *((p.resolve(), label) for p, label in rows)])


def fit(manifest: Path, out: Path, options: list[str], cache: Path) -> dict[str, Any]:
    """One `lqf fit`: its wall-clock time, and when its rungs were done."""
    command = [sys.executable, "-m", "lqf", "fit", str(manifest), "-o", str(out), "--overwrite", "--json", *options]
    moments: dict[str, float] = {}
    began = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"LQF_CACHE": str(cache)}
    )
    threads = [threading.Thread(target=_watch_lines, args=(process.stderr, began, moments))]
    threads += [threading.Thread(target=_watch_folder, args=(process, out, began, moments))]
    for thread in threads:
        thread.start()
    assert process.stdout is not None
    result = json.loads(process.stdout.read())
    process.wait()
    wall = time.monotonic() - began
    for thread in threads:
        thread.join()
    if process.returncode:
        raise SystemExit(f"lqf fit failed: {result}")
    rungs = [
        {k: r[k] for k in ("name", "predicted_seconds", "seconds", "error", "loss", "kept", "why")}
        for r in result["rungs"]
    ]
    return {"wall": wall, "moments": moments, **{k: result[k] for k in KEPT}, "rungs": rungs}


def _watch_lines(stream: Any, began: float, moments: dict[str, float]) -> None:
    for line in stream:
        name, _, rest = line.partition(": ")
        if "out-of-sample error" in rest:
            moments[name] = round(time.monotonic() - began, 2)


def _watch_folder(process: subprocess.Popen[str], out: Path, began: float, moments: dict[str, float]) -> None:
    while process.poll() is None:
        if (out / "model.json").exists():
            moments["first model folder"] = round(time.monotonic() - began, 2)
            return
        time.sleep(0.05)


def show(row: dict[str, Any]) -> None:
    limit = "none" if row["limit"] is None else f"{row['limit']} s"
    over = "" if row["limit"] is None else f" = {row['wall'] / row['limit']:.3f} of it"
    kept = [r["name"] for r in row["rungs"] if r["kept"]][-1]
    part = f" ({row['n']} used)" if row["images_given"] else ""
    moments = ", ".join(f"{k} {v:.1f}" for k, v in row["moments"].items())
    print(
        f"{row['photos']:5d} photos{part}, limit {limit:6s}: {row['wall']:6.1f} s{over}; {kept}; at {moments}",
        flush=True,
    )


def options() -> Options:
    out = Options(__doc__, "DATA --n 12 --limits 8 --size 32 --unasked 8")
    out.add_data(nargs="+")
    out.add_argument("--n", type=int, nargs="+", default=[50, 400, 1000], help="photos, with every limit")
    out.add_argument("--limits", type=int, nargs="+", default=[20, 60, 300], help="seconds")
    out.add_argument("--unasked", type=int, nargs="+", default=[100], help="photos, without any limit or effort")
    out.add_settings(size=224)
    return out


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder, "cache")
        tasks = [(n, None) for n in args.unasked] + [(n, limit) for n in args.n for limit in args.limits]
        for n, limit in tasks:
            manifest, out = Path(folder, f"{n}.csv"), Path(folder, f"run-{n}-{limit}")
            write_manifest(manifest, photos(args.data, n))
            words = ["--size", str(args.size), *([] if limit is None else ["--time-limit", f"{limit}s"])]
            rows.append({"photos": n, "limit": limit, **fit(manifest, out, words, cache)})
            show(rows[-1])
    return rows


def main() -> None:
    args = options().parse()
    rows = measure(args)
    worst = max(r["wall"] / r["limit"] for r in rows if r["limit"] is not None)
    result = {"size": args.size, "longest over its limit": worst, "rows": rows}
    result["hardware"] = hardware(torch.device("cpu")) | {"data": [folder.name for folder in args.data]}
    print(write("time_limits-cpu", result, args.out))


if __name__ == "__main__":
    main()
