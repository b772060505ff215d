"""Command lines: options that scripts share, and the small run that a script makes without arguments."""

from __future__ import annotations

import argparse
import atexit
import shutil
import sys
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

from common.hardware import SMALL
from common.synthetic import write_folder
from lqf.settings import Settings, Setup

SETTINGS = {f.name: f for kind in (Setup, Settings) for f in fields(kind)}
CHOICES: dict[str, tuple[str, ...]] = {name: f.metadata["choices"] for name, f in SETTINGS.items()}


class Options(argparse.ArgumentParser):
    """The command line of a script.

    Args:
        doc: the script's docstring, which `--help` shows.
        small: the command line of the small run; `DATA` in it stands for a folder of synthetic images.
        classes: of these images.
    """

    def __init__(self, doc: str | None, small: str, *, classes: int = 3):
        epilog = f"Without arguments, a small run: `{small}`; its JSON goes to benchmarks/small."
        super().__init__(description=doc, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.small, self.classes = small, classes
        self.add_argument("--out", type=Path, help="folder for the JSON; default: benchmarks/results")

    def add_data(self, nargs: str | None = None) -> None:
        """DATA, a folder with train/ and test/."""
        self.add_argument("data", type=Path, nargs=nargs, metavar="DATA", help="a folder with train/ and test/")

    def add_settings(self, *names: str, **defaults: Any) -> None:
        """Options of `lqf fit`, with its help, choices and defaults, or with other defaults."""
        for name in (*names, *defaults):
            f = SETTINGS[name]
            default, text = defaults.get(name, f.default), f.metadata["help"]
            if default is not None:
                text = f"{text.partition('; default:')[0]} (default: {default})"
            flag, kind = f"--{name.replace('_', '-')}", int if str(f.type).startswith("int") else str
            self.add_argument(flag, type=kind, default=default, choices=CHOICES[name] or None, help=text)

    def parse(self) -> argparse.Namespace:
        """What was given, or the small run; with its own `words`, and whether it is `small`."""
        words = sys.argv[1:]
        if words:
            return self.parse_args(words, argparse.Namespace(words=words, small=False))
        print(f"small run of {self.prog}: {self.small}", flush=True)
        words = self.small_words()
        args = self.parse_args(words, argparse.Namespace(words=words, small=True))
        args.out = SMALL
        return args

    def small_words(self) -> list[str]:
        """The small run's command line, with images for `DATA` that last as long as the process."""
        if "DATA" not in self.small:
            return self.small.split()
        folder = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        data = write_folder(Path(folder) / "synthetic", self.classes)
        return [word.replace("DATA", str(data)) for word in self.small.split()]


def settings_of(args: argparse.Namespace) -> dict[str, Any]:
    """Those of the arguments that `LQFClassifier` takes."""
    return {name: value for name, value in vars(args).items() if name in SETTINGS}
