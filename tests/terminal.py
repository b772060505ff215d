"""A real pseudo-terminal for a child process."""

import os
import pty
import re
import subprocess
import sys

from processes import ENVIRONMENT


def on_a_terminal(script: str, columns: int = 80) -> tuple[str, str]:
    """Run `script` with stderr on a terminal and stdout on a pipe; return (stdout, what the terminal received)."""
    parent, child = pty.openpty()
    env = os.environ | ENVIRONMENT | {"TERM": "xterm", "COLUMNS": str(columns), "PYTHONWARNINGS": "error"}
    env.pop("NO_COLOR", None)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=child, env=env, text=True)
    os.close(child)
    shown = b""
    while True:
        try:
            part = os.read(parent, 4096)
        except OSError:  # Linux: the last writer has gone
            break
        if not part:
            break
        shown += part
    os.close(parent)
    out = process.communicate()[0]
    assert process.returncode == 0, shown.decode()
    return out, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
