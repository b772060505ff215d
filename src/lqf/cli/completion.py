"""`lqf completion SHELL`: what makes a shell complete commands, options and files."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from lqf.errors import MissingDependency
from lqf.utils.progress import Progress

SUMMARY = "a script that makes the shell complete commands and options"
SHELLS = ("bash", "zsh", "tcsh")


def add_options(parser: argparse.ArgumentParser) -> None:
    """SHELL."""
    parser.usage = "lqf completion bash|zsh|tcsh"
    parser.epilog = "For bash: lqf completion bash > ~/.local/share/bash-completion/completions/lqf"
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """The script."""
    try:
        shtab = import_module("shtab")
    except ImportError as e:
        raise MissingDependency("shtab", "shell completion") from e
    return {"shell": args.shell, "script": shtab.complete(args.parser, shell=args.shell)}


def show(result: dict[str, Any]) -> str:
    """The script alone, for a file."""
    return str(result["script"])
