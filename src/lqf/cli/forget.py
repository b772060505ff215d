"""`lqf forget RUN --ids ID…`: the optimum without some training images, with a deletion certificate."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lqf.cli import options
from lqf.cli.changed import about_error, about_members, add_retrain, add_target, error, saved_to, target
from lqf.cli.models import load_model
from lqf.errors import LQFError
from lqf.utils.progress import Progress
from lqf.utils.text import counted, duration, wrapped

SUMMARY = "make a model forget training images, without fitting again"


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN --ids ID… | --group G | --where COLUMN=VALUE [-o OUT]."""
    parser.usage = "lqf forget RUN --ids ID… | --group G | --where COLUMN=VALUE [options]"
    options.add_run(parser)
    options.add_train(parser)
    parser.add_argument("--ids", nargs="+", metavar="ID", help="training images, as samples.csv in RUN names them")
    parser.add_argument("--group", metavar="G", help="all training images of this group")
    parser.add_argument(
        "--where",
        type=_condition,
        metavar="COLUMN=VALUE",
        help="all with this value in a column: label, group, weight, id, sha256, or any of the manifest's",
    )
    add_target(parser)
    add_retrain(parser)
    parser.add_argument(
        "--strict",
        action="store_true",
        default=False,
        help="fit again on what is left, choices and linearisation point included",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        default=False,
        help="solve what is left once more from nothing, and say by how much predictions differ",
    )
    parser.add_argument("--certificate", metavar="FILE", help="a .json file for the deletion certificate")


def _condition(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not equals or not column.strip():
        raise argparse.ArgumentTypeError(f"`{text}` is not COLUMN=VALUE, like label=rose")
    return column, value


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Forget, write, certify."""
    out = target(args)
    file = options.output_path(args.certificate) if hasattr(args, "certificate") else None
    if file is not None:
        _check_certificate(file, args, out)
    from lqf.changes.samples.traces import erase_beside
    from lqf.utils.files import write_file
    from lqf.utils.json_values import dump_json, json_values

    model = load_model(args)
    certificate = model.forget(
        getattr(args, "ids", None),
        group=getattr(args, "group", None),
        where=getattr(args, "where", None),
        strict=args.strict,
        verify=args.verify,
        retrain=args.retrain,
        train=getattr(args, "train", None),
        progress=progress,
    )
    saved_to(model, out, args)
    in_place = out == Path(args.run).expanduser()
    erased = erase_beside(out) if in_place else []
    found = certificate.to_dict()
    if file is not None:
        write_file(file, dump_json(json_values(found)) + "\n")
    return {
        **found,
        "run": args.run,
        "output": str(out),
        "certificate": None if file is None else str(file),
        "erased": erased,
        "still_knows_them": None if in_place else args.run,
        **error(model),
    }


def _check_certificate(file: Path, args: argparse.Namespace, out: Path) -> None:
    from lqf.utils.files import check_file

    check_file(file, args.overwrite, (".json",))
    if {out.resolve(), Path(args.run).expanduser().resolve()} & set(file.resolve().parents):
        raise LQFError(f"`{file}` would lie in the model's folder, which is replaced; write the certificate elsewhere")


def show(result: dict[str, Any]) -> str:
    """What was done, how exactly, and what that does not say."""
    n, left = result["forgotten"], result["remaining"]
    how = "fitted again on" if result["strict"] else "now the optimum of"
    lines = [wrapped(f"{counted(n, 'image')} forgotten; `{result['output']}` is {how} the other {left:,}.")]
    lines += about_members(result["members"])
    lines += about_error(result)
    if result["largest_difference_to_refit"] is not None:
        scale = result["largest_output_of_refit"]
        lines.append(f"  largest difference to a refit  {result['largest_difference_to_refit']:.2g} of {scale:.3g}")
    lines += ["", wrapped(result["statement"])]
    if result["depends_on"]:
        lines += ["Still depends on them:", *(f"  {name}" for name in result["depends_on"])]
    if result["erased"]:
        lines.append(wrapped(f"Deleted beside it: {', '.join(result['erased'])}"))
    if result["still_knows_them"]:
        lines.append(wrapped(f"`{result['still_knows_them']}` is as it was and knows them."))
    if result["certificate"]:
        lines.append(f"Certificate: {result['certificate']}")
    return "\n".join([*lines, "", duration(result["seconds"])])
