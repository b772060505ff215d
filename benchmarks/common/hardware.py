"""What a measurement was made on, by which command, and where it goes."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import torch

from lqf.runtime.hardware import hardware as machine

RESULTS = Path(__file__).parents[1] / "results"
SMALL = RESULTS.with_name("small")
"""Where the small runs write; git ignores it."""


_MEAN = re.compile(r'\{\s+"mean": (\S+),\s+"standard_error": (\S+)\s+\}')
"""A mean and its standard error, which share a line."""


def hardware(device: torch.device) -> dict[str, Any]:
    """Processor or accelerator, cores, versions, date and command (without where it wrote)."""
    words = sys.argv[1:]
    for option in ("--out", "--outputs"):
        if option in words:
            at = words.index(option)
            words = words[:at] + words[at + 2 :]
    command = shlex.join(["python", "benchmarks/" + Path(sys.argv[0]).name, *words])
    return machine(device) | {"command": command}


def write(name: str, result: dict[str, Any], out: Path | None = None) -> Path:
    """Write a result as JSON to the folder ``out``; default: benchmarks/results."""
    path = (out or RESULTS) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=1)
    path.write_text(_MEAN.sub(r'{"mean": \1, "standard_error": \2}', text) + "\n")
    return path
