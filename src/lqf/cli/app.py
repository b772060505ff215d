"""`main`: read the command line, run one command, and turn whatever happens into an exit code.

Exit codes: 0 done; 1 a fault of ours or of the machine (a full disk), or a part of many failed; 2 something that was
given cannot be used; 130 interrupted, 143 by SIGTERM; 141 where nobody reads the result any more. A result goes to
stdout and everything else to stderr; with --json stdout gets exactly one object, also when there is no result. Of many
processes (`torchrun -m lqf fit …`) only the first says anything.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from importlib.metadata import entry_points
from typing import Any, Protocol, cast

import lqf
from lqf.cli import (
    adapt,
    add,
    audit,
    backbones,
    combine,
    compare,
    completion,
    constrain,
    demo,
    evaluate,
    explain,
    export,
    fit,
    forget,
    predict,
    privatise,
    report,
    select,
    serve,
    streams,
    suggest,
    summarize,
    tune,
)
from lqf.cli.environment import SigtermAsCtrlC, share_cores, warnings_as_lines
from lqf.cli.options import Parser, add_output, claim_device
from lqf.cli.unexpected import in_words
from lqf.errors import Incomplete, LQFError, ProcessLost
from lqf.runtime.distributed import launched
from lqf.utils.json_values import dump_json
from lqf.utils.naming import command_line
from lqf.utils.progress import SILENT, Progress, terminal_progress
from lqf.utils.text import capitalized, counted, printable, wrapped


class Command(Protocol):
    """What a command's module offers."""

    SUMMARY: str

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Declare its arguments."""

    def run(self, args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
        """Do the work; the result is what --json prints."""

    def show(self, result: dict[str, Any]) -> str:
        """The result for a person."""


class Detailed(Command, Protocol):
    """A command that has more to say with -v."""

    def details(self, result: dict[str, Any]) -> str:
        """The rest of the result for a person."""


COMMANDS: dict[str, Command] = {
    "fit": fit,
    "evaluate": evaluate,
    "predict": predict,
    "compare": compare,
    "explain": explain,
    "audit": audit,
    "summarize": summarize,
    "tune": tune,
    "combine": combine,
    "report": report,
    "add": add,
    "forget": forget,
    "serve": serve,
    "export": export,
    "constrain": constrain,
    "privatise": privatise,
    "suggest": suggest,
    "select": select,
    "backbones": backbones,
    "adapt": adapt,
    "demo": demo,
    "completion": completion,
}
GROUP = "lqf.commands"
"""Entry points of this group bring further commands: a name, and a module that is a `Command`."""
SHARED = ("fit", "explain")
"""Commands that `torchrun` can start in many processes, which share the work."""
EXTRAS = {"paper": "pip install 'lqf-torch[paper]'"}
"""Commands of packages that may be missing, and what to type to have them."""

EPILOG = """\
examples:
  lqf fit photos/train -o run        folders photos/train/CLASS/*.jpg
  lqf evaluate run photos/test       error on labelled images
  lqf predict run new/*.jpg          labels for new images
  lqf audit run                      labels that look wrong, copies
  lqf report run -o report.html      all of it on one page
  lqf add run more/                  with further images, at once
  lqf forget run --ids rose/12.jpg   without an image, at once
  lqf serve run                      a page to ask "what if?" and correct labels
  lqf demo                           the same on data that comes with it

Every command has --help, and --json for programs.
"""


_GRACE_SECONDS = 3.0
"""How long a failed process that says nothing still waits: when it ends, the launcher ends the one that does."""


def main(argv: Sequence[str] | None = None, more: Mapping[str, Command] | None = None) -> int:
    """Run a command line (default: this process's) and return its exit code.

    Args:
        argv: the words after `lqf`.
        more: commands in addition to `COMMANDS`; default: what installed packages bring.
    """
    if argv is None:
        streams.prepare()
    with command_line():
        code = _main(argv, more)
        return _delivered(code) if argv is None else code


def _main(argv: Sequence[str] | None, more: Mapping[str, Command] | None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    commands = {**COMMANDS, **(installed_commands() if more is None else more)}
    as_json = "--json" in words
    parser = make_parser(commands)
    try:
        args = parser.parse_args(words)
    except OSError as error:  # the help text could not be written
        return _lost(error)
    except SystemExit as done:  # --help and --version
        return int(done.code or 0)
    except LQFError as error:
        absent = next((w for w in words[:1] if w in EXTRAS and w not in commands), None)
        sentence = f"`lqf {absent}` is not installed: run `{EXTRAS[absent]}`" if absent else str(error)
        return _fail(sentence, 2, as_json)
    if args.command is None:
        parser.print_help(sys.stderr)
        return _fail("name a command", 2, as_json)
    if launched()[1] > 1 and args.command not in SHARED:
        able = " and ".join(f"`lqf {name}`" for name in SHARED)
        return _fail(f"`lqf {args.command}` runs in one process; only {able} can be started by torchrun", 2, as_json)
    args.words, args.own_process, args.parser = words, argv is None, parser
    share_cores()
    return _run(commands[args.command], args, as_json)


def installed_commands() -> dict[str, Command]:
    """Commands that installed packages bring (`GROUP`)."""
    return {found.name: found.load() for found in entry_points(group=GROUP)}


def make_parser(commands: Mapping[str, Command]) -> Parser:
    """The whole command line."""
    parser = Parser(
        prog="lqf", description="Fine-tune a pretrained network by solving one convex problem exactly.", epilog=EPILOG
    )
    parser.add_argument("-V", "--version", action=_Version, nargs=0, help="show versions and the device, and exit")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Parser)
    for name, command in commands.items():
        sub = subparsers.add_parser(name, help=command.SUMMARY, description=f"{capitalized(command.SUMMARY)}.")
        command.add_options(sub)
        add_output(sub, more=hasattr(command, "details"))
    return parser


class _Version(argparse.Action):
    """Versions, and where fits are computed; torch is imported only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from lqf.runtime.device import resolve_device
        from lqf.runtime.hardware import hardware

        device = resolve_device("auto")
        about = hardware(device)
        print(f"lqf {lqf.__version__}")
        print(f"Python {about['python']}, torch {about['torch']}")
        print(f"{device.type}: {about['device']}, {counted(about['cores'], 'core')}")
        parser.exit()


def _run(command: Command, args: argparse.Namespace, as_json: bool) -> int:
    speaks = launched()[0] == 0
    progress = terminal_progress() if speaks and not args.quiet else SILENT
    signals = SigtermAsCtrlC()
    try:
        # whatever a library prints is not part of the result
        with signals, warnings_as_lines(progress), redirect_stdout(sys.stderr):
            claim_device(args)
            result = command.run(args, progress)
    except LQFError as error:
        return _fail(str(error), 2, as_json)
    except Incomplete as part:
        _say({**part.result, "error": str(part)} if as_json else command.show(part.result))
        return _fail(str(part), 1, as_json=False)
    except ProcessLost as lost:
        return _fail(str(lost), 1, as_json, speaks or lost.aloud)
    except KeyboardInterrupt as interrupt:
        return _fail(str(interrupt) or "interrupted; nothing was written", signals.code, as_json)
    except Exception as error:
        if os.environ.get("LQF_DEBUG") == "1":
            traceback.print_exc()
        return _fail(in_words(error), 1, as_json)
    return _say(result if as_json else _text(command, result, args)) if speaks else 0


def _say(result: Mapping[str, Any] | str) -> int:
    """The result to standard output; the exit code."""
    try:
        _show(result) if isinstance(result, str) else print_json(result)
    except OSError as error:
        return _lost(error)
    return 0


def _delivered(code: int) -> int:
    """The exit code, when what is still to be written (a help text) has been."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return code or _lost(error)
    return code


def _lost(error: OSError) -> int:
    """Standard output takes nothing more."""
    streams.silence()
    if isinstance(error, BrokenPipeError):  # `lqf predict … | head`
        return 141
    return _fail(f"the result could not be written to standard output ({error.strerror or error})", 1, as_json=False)


def _text(command: Command, result: dict[str, Any], args: argparse.Namespace) -> str:
    """The result for a person, with -v in full."""
    if not getattr(args, "details", False):
        return command.show(result)
    return f"{command.show(result)}\n\n{cast('Detailed', command).details(result)}"


def print_json(result: Mapping[str, Any]) -> None:
    """One object on one line of stdout."""
    print(dump_json(result, indent=None), flush=True)


def _show(text: str) -> None:
    if sys.stderr.isatty() and sys.stdout.isatty():
        print(file=sys.stderr)  # apart from the bars
    print(printable(text), flush=True)


def _fail(sentence: str, code: int, as_json: bool, aloud: bool | None = None) -> int:
    if not (launched()[0] == 0 if aloud is None else aloud):
        time.sleep(_GRACE_SECONDS)
        return code
    first, *commands = printable(f"lqf: {sentence}").split("\n")
    print(wrapped(first) if sys.stderr.isatty() else first, *commands, sep="\n", file=sys.stderr)
    if as_json:
        _say({"error": sentence})
    return code
