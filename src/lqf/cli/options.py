"""Options that commands share, and how the command line reads and explains itself."""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, NoReturn

from lqf.errors import LQFError
from lqf.settings import Settings, Setup


class Parser(argparse.ArgumentParser):
    """Refuses by raising, so that --json can report it too; its help fits into 80 columns."""

    def __init__(self, **kwargs: Any) -> None:
        settings: dict[str, Any] = {
            "formatter_class": _Help,
            "allow_abbrev": False,
            "argument_default": argparse.SUPPRESS,
        }
        super().__init__(**settings | kwargs)

    def error(self, message: str) -> NoReturn:
        raise LQFError(f"{message}; see `{self.prog} --help`")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Without argparse's silence about what could not be written."""
        if message:
            (file or sys.stderr).write(message)


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=27, width=min(shutil.get_terminal_size().columns, 80) - 2)


def add_settings(
    parser: argparse._ActionsContainer, *of: type, group: str | None = None, only: tuple[str, ...] = ()
) -> None:
    """Options for the fields of `Settings` and `Setup`, with their names, defaults, choices and help.

    Args:
        parser: where they go.
        of: the dataclasses.
        group: those of one group; None: those that are named in ``only``.
        only: names of fields.
    """
    for cls in of:
        for f in fields(cls):
            if f.name in only or (group is not None and f.metadata["group"] == group):
                _add_setting(parser, f)


def _add_setting(parser: argparse._ActionsContainer, f: Field[Any]) -> None:
    known, flag = f.metadata, f.name.replace("_", "-")
    if isinstance(f.default, bool):
        action = "store_false" if f.default else "store_true"
        text = f"do not {known['help']}" if f.default else known["help"]
        parser.add_argument(f"--no-{flag}" if f.default else f"--{flag}", dest=f.name, action=action, help=text)
        return
    shown = "" if f.default is None or "default:" in known["help"] else f" (default: {f.default})"
    how: dict[str, Any] = {"choices": known["choices"]} if known["choices"] else {"metavar": known["metavar"]}
    parser.add_argument(f"--{flag}", type=_reader(f), help=known["help"] + shown, **how)


def _reader(f: Field[Any]) -> Callable[[str], Any]:
    """What makes a value of the text of an option, by the field's type."""
    if f.name.endswith("weight_decay"):
        return decay
    if f.name == "class_weight":
        return weights_of_classes
    if f.name == "batch_size":  # a command that uses a model has no settings that would check it
        return positive
    return next((kind for name, kind in (("int", int), ("float", float)) if str(f.type).startswith(name)), str)


def decay(text: str) -> float | str:
    """`auto` or a number."""
    return text if text == "auto" else _number(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"`{text}` is neither `auto` nor a number") from None


def weights_of_classes(text: str) -> str | dict[str, float]:
    """`balanced`, or `crack=3,ok=1`; names may have commas and equals signs."""
    if text == "balanced":
        return text
    one, found, rest = re.compile(r"\s*(.+?)=(\d+\.?\d*|\.\d+)\s*(?:,|$)"), {}, text
    while rest and (match := one.match(rest)):
        if match[1] in found:
            raise argparse.ArgumentTypeError(f"`{text}` names the class `{match[1]}` twice")
        found[match[1]], rest = float(match[2]), rest[match.end() :]
    if rest or not found:
        raise argparse.ArgumentTypeError(f"`{text}` is neither `balanced` nor weights of classes like `crack=3,ok=1`")
    return found


def number_that(allows: Callable[[float], bool], refusal: str) -> Callable[[str], float]:
    """A reader of numbers for an option; ``refusal`` follows what was typed, where that is no such number."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not allows(value):
            raise argparse.ArgumentTypeError(f"`{text}` {refusal}")
        return value

    return read


share = number_that(lambda x: 0 < x <= 1, "is not a share; give a number above 0 and at most 1")
gigabytes = number_that(lambda x: 0 < x < math.inf, "is not a number of gigabytes")
above_zero = number_that(lambda x: 0 < x < math.inf, "is not a number above zero")
not_negative = number_that(lambda x: 0 <= x < math.inf, "is not a number from 0 up")


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number from 1 up")
    return int(text)


def claim_device(args: argparse.Namespace) -> None:
    """Make a GPU that was named by its number the one to use, and keep to --memory, where it was given."""
    name, memory = getattr(args, "device", "auto"), vars(args).pop("memory", None)
    if memory is None and not name.startswith("cuda:"):
        return
    import torch

    from lqf.runtime.device import resolve_device
    from lqf.runtime.distributed import launched, own_device
    from lqf.runtime.memory import limit_gpu

    processes = launched()[1]
    device = own_device(name, processes) if processes > 1 else resolve_device(name)
    if device.index is not None:
        torch.cuda.set_device(device)
    if memory is not None:
        limit_gpu(memory, device)


def add_output(parser: argparse.ArgumentParser, more: bool) -> None:
    """--json and -q, which every command has, and -v of one that has more to say."""
    if more:
        parser.add_argument(
            *("-v", "--verbose"),
            dest="details",
            action="store_true",
            default=False,
            help="also say how it was solved and chosen",
        )
    parser.add_argument("-q", "--quiet", action="store_true", default=False, help="show no progress")
    parser.add_argument("--json", action="store_true", default=False, help="print one JSON object and nothing else")


def add_run(parser: argparse.ArgumentParser) -> None:
    """A fitted model to use, and how."""
    parser.add_argument("run", metavar="RUN", help="the folder that `lqf fit` wrote")
    parser.add_argument("--weights", metavar="FILE", help="the backbone's weights file, if it has moved")
    add_device(parser)
    add_settings(parser, Settings, only=("batch_size",))


def add_train(parser: argparse._ActionsContainer) -> None:
    """The data that the model was fitted on."""
    parser.add_argument("--train", metavar="DIR", help="the training images, if they have moved since the fit")


def add_device(parser: argparse._ActionsContainer) -> None:
    """Where to compute, and how much of it to take."""
    add_settings(parser, Setup, only=("device",))
    add_memory(parser)


def add_memory(parser: argparse._ActionsContainer) -> None:
    """How much of a GPU to take."""
    parser.add_argument("--memory", type=gigabytes, metavar="GB", help="most of the GPU's memory to use; default: all")


def add_overwrite(parser: argparse._ActionsContainer) -> None:
    """Permission to replace."""
    parser.add_argument("--overwrite", action="store_true", default=False, help="replace what is there, in one step")


def add_rows(parser: argparse.ArgumentParser, what: str) -> None:
    """A file of rows to write."""
    parser.add_argument("-o", "--output", metavar="FILE", help=f"{what}: a .csv, .jsonl or .parquet file to write")
    add_overwrite(parser)


def rows_path(args: argparse.Namespace) -> Path | None:
    """The file of rows that was asked for; refused now where it cannot be written."""
    if not hasattr(args, "output"):
        return None
    from lqf.reports.row_files import check

    out = output_path(args.output)
    check(out, args.overwrite)
    return out


def output_path(given: str) -> Path:
    """Where to write; refused now, before any work is done, where nothing can be written."""
    path = Path(given).expanduser()
    if path.name in ("", ".."):  # `-o .`: only a folder with a name can be replaced in one step
        path = path.resolve()
    if not path.name:
        raise LQFError(f"`{path}` cannot be replaced; give the name of an output in it")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        reason = "is not a folder" if not above.is_dir() else "is a folder you may not write to"
        raise LQFError(f"`{path}` cannot be written: `{above}` {reason}; choose another output")
    return path
