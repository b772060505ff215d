"""Seconds from an installed wheel to the first prediction of one's own: a fresh environment, a folder, two commands.

    python benchmarks/first_prediction.py plantdoc27 --classes 10 --per-class 10 --shared

DATA is a folder with train/ and test/. The wheel is built and installed in an environment of its own; its dependencies
come from the package index, or with `--shared` are those of the environment that runs this. From then on every command
is what somebody types, in a home folder that knows nothing yet: `lqf fit train`, `lqf predict` of an image, and of all;
once with `--effort quick`, and once with the effort that is taken where nothing is said.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.hardware import hardware, write
from common.options import Options
from common.subset import linked, pictures

ROOT = Path(__file__).parents[1]
EFFORTS: dict[str, list[str]] = {"quick": ["--effort", "quick"], "default": []}
"""What is waited for, and how that is said."""


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --per-class 4 --shared")
    out.add_data()
    out.add_argument("--classes", type=int, help="so many of the classes; default: all")
    out.add_argument("--per-class", type=int, default=10, help="training images of each class")
    out.add_argument("--shared", action="store_true", help="dependencies of this environment, none from the index")
    return out


class Steps:
    """Commands one after the other, and how long each takes."""

    def __init__(self, folder: Path):
        self.folder, self.rows = folder, list[dict[str, Any]]()
        own = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "OMP_NUM_THREADS", "XDG_CACHE_HOME")
        self.environment = {k: v for k, v in os.environ.items() if k not in own}
        self.environment |= {"HOME": str(folder / "home"), "PYTHONSAFEPATH": "1"}
        (folder / "home").mkdir()

    def run(self, shown: str, words: list[str], **how: Any) -> str:
        """One of them; what it printed."""
        began = time.perf_counter()
        done = subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True, **how)
        seconds = time.perf_counter() - began
        if done.returncode:
            raise SystemExit(f"{shown}: {done.stderr or done.stdout}")
        self.rows.append({"step": shown, "seconds": seconds})
        print(f"{seconds:7.1f} s  {shown}", flush=True)
        return done.stdout


def installed(steps: Steps, shared: bool) -> Path:
    """The commands of a fresh environment with the wheel."""
    wheels, fresh = steps.folder / "wheels", steps.folder / "fresh"
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(wheels), "-t", "wheel"]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = wheels.glob("*.whl")
    steps.run("python -m venv fresh", [sys.executable, "-m", "venv", str(fresh)])
    if shared:
        (site,) = fresh.glob("lib/python*/site-packages")
        (site / "shared.pth").write_text("\n".join(p for p in sys.path if p.endswith("site-packages")) + "\n")
    pip = [str(fresh / "bin" / "pip"), "install", "-q", "--disable-pip-version-check"]
    steps.run("pip install lqf-torch", [*pip, *(["--no-deps", "--ignore-installed"] if shared else []), str(wheel)])
    return fresh / "bin"


def main() -> None:
    """Install, fit, predict."""
    args = options().parse()
    with tempfile.TemporaryDirectory() as folder:
        steps = Steps(Path(folder))
        prepare(args, steps.folder)
        lqf = str(installed(steps, args.shared) / "lqf")
        steps.run("lqf --version", [lqf, "--version"])
        where = [lqf.replace("bin/lqf", "bin/python"), "-c", "import lqf; print(lqf.__file__)"]
        assert str(steps.folder) in steps.run("python -c 'import lqf'", where), "another lqf was imported"
        found = {}
        for effort, said in EFFORTS.items():
            began, out = len(steps.rows), f"run-{effort}"
            words = ["fit", "train", "-o", out, *said]
            fit = json.loads(steps.run(f"lqf {' '.join(words)}", [lqf, *words, "--json"]))
            one = steps.run(f"lqf predict {out} new.jpg", [lqf, "predict", out, "new.jpg"])
            seconds = sum(row["seconds"] for row in steps.rows[began:])
            found[effort] = {"seconds": seconds, "error": fit.get("error"), "prediction": one.strip()}
            steps.run(f"lqf predict {out} test -o {out}.csv", [lqf, "predict", out, "test", "-o", f"{out}.csv"])
        n = sum(1 for p in (steps.folder / "train").glob("*/*") if p.is_file())
        result = {
            "from installed to the first own prediction": found,
            "steps": steps.rows,
            "images": n,
            "load average when it ended": os.getloadavg()[0],
            "dependencies": "those of this environment" if args.shared else "from the package index",
        }
    write("first_prediction-cpu", {**result, "hardware": hardware(torch.device("cpu"))}, args.out)


def prepare(args: argparse.Namespace, folder: Path) -> None:
    """Somebody's images: train, test, and a new one."""
    names = sorted(p.name for p in (args.data / "train").iterdir() if p.is_dir())[: args.classes]
    draw = np.random.default_rng(0)
    linked(pictures(args.data / "train", names, args.per_class, draw), folder / "train")
    test = pictures(args.data / "test", names, None, draw)
    linked(test, folder / "test")
    (folder / "new.jpg").symlink_to(test[0][0].resolve())


if __name__ == "__main__":
    main()
