"""`lqf backbones`: what there is to start from, and what to type for what is missing."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from lqf.utils.progress import Progress
from lqf.utils.text import wrapped

SUMMARY = "backbones that are available, and how to get the others"

LEGEND = (
    "✓ available   · needs what the arrow says",
    "Use one with: lqf fit TRAIN -o RUN --backbone NAME [--weights FILE]",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """None of its own."""


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """The list; nothing is loaded or downloaded."""
    from lqf.backbones import available

    return {"backbones": [asdict(info) for info in available()]}


def show(result: dict[str, Any]) -> str:
    """One entry per backbone: a tick and what it is, or what to type."""
    found = result["backbones"]
    width = max(len(b["name"]) for b in found)
    indent = " " * (width + 5)
    lines = []
    for b in found:
        lines.append(wrapped(f" {'✓' if b['available'] else '·'} {b['name']:<{width}}  {b['note']}", indent))
        if not b["available"]:
            lines.append(wrapped(f"{indent}→ {b['install']}", f"{indent}  "))
    return "\n".join([*lines, "", *LEGEND])
