"""What lies beside a model and knows its training samples: checkpoints, and what killed processes have left."""

from __future__ import annotations

import re
import shutil
from pathlib import Path


def beside(run: Path) -> list[Path]:
    """Checkpoints (they hold hashes of all images), and hidden copies of the folder that a kill has left.

    Hidden names are those that `lqf.utils.files` gives.
    """
    name = re.escape(run.name)
    hidden = re.compile(rf"\.{name}\.((old|new)\.)?[a-z0-9_]{{8}}|\.{name}\.checkpoint\..*")
    kept = run.with_name(f"{run.name}.checkpoint")
    left = [path for path in run.parent.iterdir() if hidden.fullmatch(path.name)]
    return [*([kept] if kept.exists() else []), *sorted(left)]


def erase_beside(run: Path) -> list[str]:
    """Delete them; their names."""
    found = beside(run)
    for path in found:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return [path.name for path in found]
