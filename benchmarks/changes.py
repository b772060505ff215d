"""Products over the data that forgetting and adding take by conjugate gradients, as shares of those of a refit.

    python benchmarks/changes.py oxford_flowers102 --backbone resnet50 --weights r50.safetensors --size 64
        --linearize layer4 --limit-per-class 4

A refit solves the same problem (the samples that are left, the same point, the same strengths) from nothing; a change
goes on from where the solution was. Both stop at the same tolerance. "difference" is the largest one of an output on
training images, relative to the largest output.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from common.hardware import hardware, write
from common.options import Options

from lqf import LQFClassifier
from lqf.backbones import load_backbone
from lqf.changes.add import add
from lqf.changes.forget import forget, refitted
from lqf.changes.newcomers import everyone, grown
from lqf.changes.outcome import Changed
from lqf.data import Images, Preprocess, load_samples, open_images, select_images
from lqf.fitting import Context, FittedModel
from lqf.linear.batch import usual_rows
from lqf.runtime.device import computing_on, resolve_device
from lqf.utils.progress import SILENT

GONE = (1, 10, 100)
"""Images that are forgotten."""
MORE = 0.1
"""Share of new images that are added."""
NAMES = ("backbone", "weights", "size", "limit_per_class", "linearize", "device", "seed", "tol", "max_passes")
"""Settings."""


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32 --limit-per-class 12 --gone 1 4")
    out.add_data()
    out.add_settings(*NAMES)
    out.add_argument("--gone", nargs="+", type=int, default=list(GONE), help="numbers of images that are forgotten")
    return out


def measured(changed: Changed, images: Images, context: Context) -> dict[str, Any]:
    """Products of a change and of a refit, and how far they are from each other."""
    again = refitted(changed, images, context)
    mine, theirs = (_outputs(m, images, context) for m in (changed.model, again))
    own, refit = changed.outcome.passes or 0, again.report.passes
    return {
        "n": len(images),
        "products": own,
        "products of a refit": refit,
        "share": own / refit,
        "difference": float((mine - theirs).abs().max() / theirs.abs().max()),
        "relative residual": changed.outcome.relative_residual,
        "relative residual of the refit": again.report.relative_residual,
        "bound": changed.outcome.bound,
    }


def _outputs(model: FittedModel, images: Images, context: Context) -> torch.Tensor:
    return model.outputs(images, device=context.device, batch_size=usual_rows(context.device), progress=SILENT)


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    device = resolve_device(args.device)
    with computing_on(device):
        rows, about = _rows(args, device)
    name = f"changes-{args.data.name}-{args.backbone.replace(':', '-')}-{device.type}"
    write(name, {"data": args.data.name, **about, "rows": rows, "hardware": hardware(device)}, args.out)


def _rows(args: argparse.Namespace, device: torch.device) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    given = {name: getattr(args, name) for name in NAMES}
    estimator = LQFClassifier(**given, solver="pcg", pooling="avg", views="none", loo="none", verbose=0)
    train = args.data / "train"
    samples = load_samples(train, limit_per_class=args.limit_per_class, seed=args.seed)
    every = open_images(samples, _preprocess(estimator))
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(args.seed)).tolist()
    new = sorted(order[: round(MORE * len(every) / (1 + MORE))])
    old = sorted(set(range(len(every))) - set(new))
    first = select_images(every, old)
    estimator.fit(first.samples)
    model = estimator.fitted_
    assert isinstance(model, FittedModel)
    context = Context(model.settings, device)
    about = {"n": len(first), "classes": len(model.classes), "products of the fit": model.report.passes}
    print(about, flush=True)
    rows = []
    for k in args.gone:
        gone = torch.zeros(len(first), dtype=torch.bool)
        gone[torch.randperm(len(first), generator=torch.Generator().manual_seed(k))[:k]] = True
        left = select_images(first, (~gone).numpy())
        changed = forget(
            model, (~gone).numpy(), left, context, lambda: first, lambda gone=gone: select_images(first, gone.numpy())
        )
        rows.append({"what": f"forget {k}", **measured(changed, left, context)})
        print(rows[-1], flush=True)
    more = select_images(every, new)
    table = grown(model.train, model.classes, more, None)
    changed = add(model, table, lambda: first, more, context)
    rows.append({"what": f"add {len(more)}", **measured(changed, everyone(first, more), context)})
    print(rows[-1], flush=True)
    return rows, about


def _preprocess(estimator: LQFClassifier) -> Preprocess:
    """As a fit opens images."""
    backbone = load_backbone(estimator.backbone, weights=estimator.weights)
    return backbone.preprocess(size=estimator.size)


if __name__ == "__main__":
    main()
