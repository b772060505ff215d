"""Both poolings side by side: how much should the bilinear features count?

    python benchmarks/both_poolings.py DATA... [--images 100 200] [--draws 2] [--sizes 96 224]

Each DATA is a folder with train/. Tasks are drawn from the training images, the other training images of the same
classes are held out. The closed-form head of average and bilinear features together is fitted with several shares of
the bilinear ones in the kernel's trace, and with the one that leave-one-out chooses ("both"; `SHARES` and `PRIOR_SHARE`
of `lqf.fitting.both_poolings`), beside the heads of each pooling alone: exact leave-one-out, and what is held out, at
the calibrated temperature.
"""

from __future__ import annotations

import time
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
from common.climbed import Scores, scores
from common.hardware import hardware, write
from common.maps import CPU
from common.options import Options
from common.tasks import Pool, Task, mean

from lqf.evaluation.calibration import log_loss
from lqf.fitting.assemble import assemble_head
from lqf.fitting.both_poolings import PRIOR_SHARE, SHARES
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.select_pooling import candidate_heads

DEFAULT = f"both, {PRIOR_SHARE:g}"
POOL = 400
"""Images of a data set, about."""
Found = dict[str, dict[str, Scores]]
"""By features: left out, and held out."""


def judged(task: Task, head: HeadFit) -> dict[str, Scores]:
    """A head by leave-one-out, and on the images held out."""
    model, best = assemble_head(head), head.choice.best
    f = task.outputs(model)
    return {
        "leave-one-out": {"error": best.error, "cross_entropy": best.loss},
        "held out": scores(f, task.labels, log_loss(f, task.labels, model.beta)),
    }


def measured(task: Task) -> Found:
    """Every pooling alone, and both with the share that is chosen and with each."""
    data = task.data()
    chosen = [h for name in ("avg", "bilinear", "both") for h in candidate_heads(data, task.backbone, name)]
    found = {head.pooling: judged(task, head) for head in chosen}
    for share in sorted({*SHARES, PRIOR_SHARE}):
        with patch.multiple("lqf.fitting.both_poolings", SHARES=(share,), PRIOR_SHARE=share):
            (head,) = candidate_heads(data, task.backbone, "both")
        found[f"both, {share:g}"] = judged(task, head)
    return found


def summary(tasks: list[Found]) -> dict[str, Any]:
    """Means, and those of the differences from those at the prior share, task by task."""
    out: dict[str, Any] = {"n": len(tasks)}
    for features, by in tasks[0].items():
        out[features] = {
            way: {what: mean(t[features][way][what] for t in tasks) for what in by[way]}
            | {
                f"{what} minus that of {DEFAULT}": mean(t[features][way][what] - t[DEFAULT][way][what] for t in tasks)
                for what in by[way]
            }
            for way in by
        }
    return out


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --images 12 --draws 2 --sizes 64")
    out.add_data("+")
    out.add_argument("--images", type=int, nargs="+", default=[100, 200], help="of a task")
    out.add_argument("--draws", type=int, default=2, help="tasks of a data set with so many images")
    out.add_argument("--sizes", type=int, nargs="+", default=[96, 224], help="of the images, in pixels")
    out.add_argument("--name", default="both_poolings")
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    parts: dict[str, list[Found]] = {}
    began = time.perf_counter()
    for size, data in product(args.sizes, args.data):
        pool = Pool(data / "train", size, "none", POOL)
        for images, seed in product(args.images, range(args.draws)):
            found = measured(pool.task(images, np.random.default_rng((seed, images))))
            for part in (f"{size} px", f"{size} px, {images} images", f"{size} px, {data.name}"):
                parts.setdefault(part, []).append(found)
        print(size, data.name, {k: round(v["held out"]["cross_entropy"], 3) for k, v in found.items()}, flush=True)
    result = {
        "what": f"efficientnet_lite0, {' and '.join(map(str, args.sizes))} px, closed-form heads in one view",
        "problem": "tasks from " + ", ".join(d.name for d in args.data),
        "by features": {part: summary(tasks) for part, tasks in parts.items()},
        "seconds": round(time.perf_counter() - began),
        "hardware": hardware(CPU),
    }
    print(write(args.name, result, args.out))


if __name__ == "__main__":
    main()
