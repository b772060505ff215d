"""Commands that come next, as a person types them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from lqf.settings import IMAGES, PROBLEM, Setup
from lqf.utils.text import columns

_SAMPLES = ("strict", "limit_per_class")
"""Which images to take: a manifest lists those that were taken."""


def audit_command(run: str | Path, train: str | None = None, out: str = "OUT") -> str:
    """`lqf audit RUN -o OUT`, with the place of the training data where that was given."""
    return shlex.join(["lqf", "audit", str(run), *(["--train", train] if train else []), "-o", out])


def fit_command(manifest: Path, setup: Setup, class_weight: str | Mapping[str, float] | None = None) -> str:
    """`lqf fit MANIFEST -o RUN2`, of the same network, images opened in the same way and weights of classes."""
    return shlex.join(["lqf", "fit", str(manifest), "-o", "RUN2", *setup_options(setup), *_class_weight(class_weight)])


def typed(command: str) -> str:
    """The command as a paragraph of its own, over several lines of a shell where it is too long for one."""
    lines = [""]
    for part in _parts(command):
        longer = f"{lines[-1]} {part}".lstrip()
        fits = len(longer) <= columns() - len("      " + " \\")
        lines = [*lines[:-1], longer] if fits or not lines[-1] else [*lines, part]
    return "  " + " \\\n      ".join(lines)


def _parts(command: str) -> list[str]:
    """Its words, quoted for a shell; an option and its value are one."""
    parts: list[str] = []
    for word in map(shlex.quote, shlex.split(command)):
        if parts and parts[-1].startswith("-") and " " not in parts[-1] and not word.startswith("-"):
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    return parts


def _class_weight(given: str | Mapping[str, float] | None) -> list[str]:
    if given is None:
        return []
    pairs = given if isinstance(given, str) else ",".join(f"{name}={weight:g}" for name, weight in given.items())
    return ["--class-weight", pairs]


def setup_options(setup: Setup) -> list[str]:
    """Of the network and how images are opened, those that are not as by default."""
    words = []
    for f in fields(setup):
        value, flag = getattr(setup, f.name), f.name.replace("_", "-")
        if value == f.default or f.name in _SAMPLES or f.metadata["group"] not in (IMAGES, PROBLEM):
            continue
        if isinstance(f.default, bool):
            words.append(f"--no-{flag}" if f.default else f"--{flag}")
        else:
            words += [f"--{flag}", str(value)]
    return words
