"""`python -m lqf` and `lqf`: Ctrl-C ends them with a sentence, from the first import on."""

import os
import signal
import sys


def main() -> int:
    """Run this process's command line and return its exit code."""
    try:
        from lqf.cli import main as command

        code = command()
    except KeyboardInterrupt:
        code = 130
        os.write(2, b"lqf: interrupted; nothing was written\n")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # there is nothing left to interrupt
    return code


if __name__ == "__main__":
    sys.exit(main())
