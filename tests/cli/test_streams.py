"""Closed and full standard streams: the right exit code, a sentence where one can be said, never a traceback."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from processes import ENVIRONMENT

LQF = f"{sys.executable} -m lqf"


def shell(command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **ENVIRONMENT}
    return subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize(
    ("words", "streams", "code"),
    [
        ("--version", ">&-", 1),
        ("--version", "> /dev/full", 1),
        ("--help", "> /dev/full", 1),
        ("--help", "2>&-", 0),
        ("--help", "2> /dev/full", 0),
        ("", ">&- 2>&-", 2),
        ("", "2> /dev/full", 2),
        ("fit nowhere -o run", ">&-", 2),
        ("fit nowhere -o run --json", "> /dev/full", 2),
        ("fit nowhere -o run", "<&- >&- 2>&-", 2),
    ],
)
def test_the_code_is_right_and_nothing_is_a_traceback(words: str, streams: str, code: int) -> None:
    done = shell(f"{LQF} {words} {streams}")
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    if code == 1 and "2>" not in streams:
        assert "the result could not be written to standard output" in done.stderr


def test_a_reader_that_leaves_is_no_fault() -> None:
    done = shell(f"({LQF} --help; echo $? >&2) | true")
    assert "Traceback" not in done.stderr
    assert done.stderr.strip() in ("0", "141")


IMPORTING = """
import sys
import lqf.__main__
from lqf.cli import app

def run(*_):
    print("importing", flush=True, file=sys.__stdout__)
    import torch, sklearn.linear_model
    while True:
        pass

app.COMMANDS["fit"].run = run
sys.argv = ["lqf", "fit", "a", "-o", "b"]
sys.exit(lqf.__main__.main())
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("after", [0.01, 0.4])
def test_an_interruption_while_importing_is_a_sentence(number: int, code: int, after: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", IMPORTING],
        env={**os.environ, **ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background commands ignore it
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(after)
    try:
        said = interrupted(process, number)
    finally:
        process.kill()
    assert said == "lqf: interrupted; nothing was written\n"
    assert process.returncode == code


def interrupted(process: subprocess.Popen[str], number: int) -> str:
    """What a process says when it is told to stop: once, or again where a library that was being imported has swallowed
    the exception, as Python does in callbacks.
    """
    for _ in range(5):
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            said = process.communicate(timeout=10)[1]
            return said[said.index("lqf: ") :]  # behind what Python says of a swallowed exception
    raise AssertionError("it does not stop")


def test_an_interruption_before_the_command_line_is_a_sentence() -> None:
    code = "import sys, lqf.__main__\nsys.modules['lqf.cli'] = None\n"
    code += "import builtins\nplain = builtins.__import__\n"
    code += "def fail(name, *words):\n    if name == 'lqf.cli':\n        raise KeyboardInterrupt\n"
    code += "    return plain(name, *words)\nbuiltins.__import__ = fail\nsys.exit(lqf.__main__.main())"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stderr) == (130, "lqf: interrupted; nothing was written\n")
