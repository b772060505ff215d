"""Python in other processes, which find what this one finds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LIMIT = 200
"""Seconds after which a process is taken to wait for ever."""
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}


def python(*words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python with these words to its end."""
    command, environment = [sys.executable, *words], {**os.environ, **ENVIRONMENT}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT)


def talking(*words: str) -> subprocess.Popen[str]:
    """Start Python with these words, to be spoken to by its standard input and output."""
    environment = {**os.environ, **ENVIRONMENT}
    return subprocess.Popen(
        [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
