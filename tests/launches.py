"""Processes as `torchrun` starts them: by torchrun itself, or by its agent with everything imported before.

`torchrun` gives each process a Python of its own, whose imports take longer than most of what is tested. Its agent also
starts functions, in copies of one process that has imported everything (`multiprocessing`'s fork server).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from processes import ENVIRONMENT, LIMIT, python

IMPORTED = [
    "lqf.cli.fit",
    "lqf.estimator",
    "torch.distributed.rendezvous",
    "sympy",
    "torch._dynamo",
    "test_distributed",
    "analysis.test_many_processes",
]


def torchrun(words: list[str], folder: Path, processes: int) -> subprocess.CompletedProcess[str]:
    """Python with these words, started so many times by `torchrun`."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return python(*launcher, *words, folder=folder)


def by_agent(
    function: Callable[..., int], words: list[str], folder: Path, processes: int
) -> subprocess.CompletedProcess[str]:
    """The same with a function of an importable module, which gets the words and returns an exit code."""
    _serve()
    logs = folder.parent / f"{folder.name}-{uuid.uuid4()}"
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=str(uuid.uuid4()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        start_method="forkserver",
        logs_specs=DefaultLogsSpecs(str(logs), redirects=Std.ALL),
    )
    with _own_signals():
        try:
            elastic_launch(config, _in_folder)(function, words, folder)
            code = 0
        except ChildFailedError:
            code = 1
    said = {n: "".join(f.read_text() for f in sorted(logs.rglob(f"{n}.log"))) for n in ("stdout", "stderr")}
    return subprocess.CompletedProcess(words, code, said["stdout"], said["stderr"])


def _in_folder(function: Callable[..., int], words: list[str], folder: Path) -> None:
    os.chdir(folder)
    code = function(*words)
    if code:
        sys.exit(code)


def _serve() -> None:
    """Start the process that the others are copies of, where it does not run yet."""
    multiprocessing.set_forkserver_preload(IMPORTED)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        forkserver.ensure_running()


@contextmanager
def _own_signals() -> Iterator[None]:
    """The agent leaves handlers of its own, and knows no time limit."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM)
    kept = {s: signal.getsignal(s) for s in numbers}
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LIMIT)
    try:
        yield
    finally:
        signal.alarm(0)
        for number, handler in kept.items():
            signal.signal(number, handler)


def _too_long(*_: object) -> None:
    raise TimeoutError(f"the processes had not ended after {LIMIT} seconds")
