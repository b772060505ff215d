"""A folder that holds `train` and `test` is two sets of images: its folders are not classes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from lqf.errors import LQFError
from lqf.utils.text import listed

TRAIN = ("train", "training")
TEST = ("test", "testing", "val", "valid", "validation", "dev", "holdout")
"""Usual names of the parts of a data set, in small letters."""


def check_no_parts(root: Path, nested: Sequence[str], folders: Sequence[str]) -> None:
    """LQFError where every folder is called like a part of a data set and holds class folders in turn.

    Args:
        root: that they lie in.
        nested: those with folders inside.
        folders: all of them.
    """
    if not folders or set(nested) != set(folders) or not all(name.lower() in TRAIN + TEST for name in folders):
        return
    train = next((root / name for name in folders if name.lower() in TRAIN), None)
    tests = [name for part in TEST for name in folders if name.lower() == part]
    steps = []
    if train is not None:
        steps.append(f"`lqf fit {shlex.quote(str(train))} -o RUN` (in Python: fit)")
    if tests:
        steps.append(f"`lqf evaluate RUN {shlex.quote(str(root / tests[0]))}` (in Python: score)")
    parts = "parts of a data set, not classes" if len(folders) > 1 else "a part of a data set, not a class"
    raise LQFError(f"`{root}` holds {listed(folders)}, {parts}; run {', then '.join(steps)}")
