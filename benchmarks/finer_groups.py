"""A ridge strength for every block of the network against one for every stage, out of sample and on the test set.

    python benchmarks/finer_groups.py DATA… --size 96 --images 300 --outputs FOLDER

DATA is a folder with train/ and test/. One climb for each (`benchmarks/climbs.py`: the head on averages in one view,
then LQF), with strengths chosen by kernels over all of the images. Two models are compared sample by sample: the
difference of their cross-entropies, positive where blocks are better, with its standard error.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import climbs
from common.hardware import hardware, write
from common.options import Options
from levers import Row, compared, outputs

from lqf.backbones.prefix import stages
from lqf.fitting import select_stages, without_fold
from lqf.linear.linearize import Linearization
from lqf.linear.stages import REST, Groups, stage_groups
from lqf.runtime.device import resolve_device

GROUPS = ("stages", "blocks")
VARIANT = "avg-stages"


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32 --images 12")
    out.add_data("+")
    out.add_settings("backbone", "weights", "size", "device", "seed", effort="standard", time_limit="3h")
    out.add_argument("--images", type=int, default=300, help="training images, the same number of every class")
    out.add_argument("--outputs", type=Path, help="folder for the outputs of all climbs")
    return out


def blocks(body: Linearization) -> Groups:
    """The parts of every stage that have parts; weights of no stage go with the first."""
    names = [part for stage in stages(body.module) for part in _parts(body, stage)]
    used = [name for name in names if any(weight.startswith(f"{name}.") for weight in body.layout.names)]
    inside = [any(weight.startswith(f"{name}.") for name in used) for weight in body.layout.names]
    groups = [[name] for name in used]
    return tuple(tuple(group) for group in ([[*groups[0], REST], *groups[1:]] if not all(inside) else groups))


def _parts(body: Linearization, stage: str) -> list[str]:
    children = [name for name, _ in body.module.get_submodule(stage).named_children()]
    return [f"{stage}.{name}" for name in children] if children and all(n.isdigit() for n in children) else [stage]


def strengths_by(groups: str, images: int) -> None:
    """From here on strengths are chosen by these groups, by so many images; nothing is left as it is."""
    without_fold.stage_groups = blocks if groups == "blocks" else stage_groups
    without_fold.NESTED = dict.fromkeys(without_fold.NESTED, (images, 2))
    select_stages._Search.first_stage = lambda self, found: "all"  # type: ignore[method-assign]


def measured(data: Path, args: argparse.Namespace, folder: Path) -> Row:
    """Both on one data set."""
    found = {}
    for groups in GROUPS:
        strengths_by(groups, args.images)
        found[groups] = outputs(data, VARIANT, args, folder / groups)
    y = found[GROUPS[0]]
    row: dict[str, Any] = {"data": data.name, "n": len(y["labels"]), "n_test": len(y["test labels"])}
    row["stages, over the head"] = compared((y, "head"), (y, "LQF"))
    row["blocks, over the head"] = compared((y, "head"), (found["blocks"], "LQF"))
    return row | {"blocks, over stages": compared((y, "LQF"), (found["blocks"], "LQF"))}


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    folder = args.outputs or (args.out or climbs.RESULTS) / "outputs"
    rows = [measured(data, args, folder) for data in args.data]
    device = resolve_device(args.device)
    write(f"finer_groups-{args.backbone}-{device.type}", {"rows": rows, "hardware": hardware(device)}, args.out)
    for row in rows:
        for name in (n for n in row if ", over" in n):
            g = {part: row[name][part]["gain"] for part in ("out of sample", "test")}
            said = "  ".join(f"{p} {v['mean']:+.3f} ± {v['standard_error']:.3f}" for p, v in g.items())
            print(f"{row['data']:22} {name:24} {said}")


if __name__ == "__main__":
    main()
