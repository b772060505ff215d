"""What choices with hindsight would give: closed-form heads over poolings and ridge strengths, test error and
leave-one-out of each, and the threshold that the test labels ask for.

    python benchmarks/hindsight.py DATA [--channels 64 128 256 512] [--backbone …] [--weights …] [--device cuda]

DATA is a folder of two classes with train/ and test/. Where leave-one-out is far below the test error, this shows
whether a choice was poor (another row of the table is much better) or the test images are of another kind (all rows
alike, the images of one class displaced).
"""

from __future__ import annotations

from typing import Any

import torch
from common.hardware import hardware, write
from common.options import Options
from torch import Tensor, nn

from lqf.backbones import load_backbone
from lqf.backbones.average_pool import find_average_pool
from lqf.backbones.bilinear_pool import BilinearPool, ChannelMoment, principal_rows
from lqf.data import Images, Preprocess, load_samples, normalize, open_images
from lqf.evaluation.ranking import area
from lqf.linear.model import with_one
from lqf.linear.targets import encode
from lqf.runtime.device import resolve_device
from lqf.solvers import Head

TARGETS = 15.0
STRENGTHS = [10 ** (k / 2) for k in range(-6, 3)]
"""Ridge strengths over the mean eigenvalue of the kernel."""
BATCH = 32


def seen_by(pool: nn.Module, body: nn.Module, images: Images, preprocess: Preprocess) -> ChannelMoment:
    """The maps of all images that reach the pooling, and their moment."""
    device = next(body.parameters()).device
    with ChannelMoment(pool, room=1 << 40) as moment, torch.no_grad():
        for rows in torch.arange(len(images)).split(BATCH):
            body(normalize(images.batch(rows, 0).to(device), preprocess, torch.float32))
            moment.add(torch.ones(len(rows)))
    return moment


def pooled(maps: list[Tensor], moment: Tensor, channels: int) -> Tensor:
    """(n, p) features under bilinear pooling to so many principal channels, or (0) under the average."""
    pool = BilinearPool(principal_rows(moment, channels).to(maps[0])) if channels else lambda x: x.mean((2, 3))
    with torch.no_grad():
        return torch.cat([pool(x).cpu() for x in maps])


def errors(scores: Tensor, labels: Tensor, threshold: float = 0.0) -> list[float]:
    """Of each class."""
    return [float(((scores > threshold) != bool(c))[labels == c].double().mean()) for c in (0, 1)]


def judged(scores: Tensor, labels: Tensor) -> dict[str, Any]:
    """Errors at zero, and at the threshold that is best for these labels."""
    wrong = torch.stack([((scores > t) != (labels == 1)).double().mean() for t in scores])
    best = float(scores[wrong.argmin()])
    return {
        "error": float(((scores > 0) != (labels == 1)).double().mean()),
        "error of each class": errors(scores, labels),
        "area under the curve": area(*(scores[labels == c].cpu().numpy() for c in (0, 1))),
        "best threshold": best,
        "error there": float(wrong.min()),
        "error of each class there": errors(scores, labels, best),
    }


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --channels 0 16 --size 64", classes=2)
    out.add_data()
    out.add_settings("backbone", "weights", "size", "device")
    out.add_argument("--channels", type=int, nargs="+", default=[0, 64, 128, 256, 512], help="0: average pooling")
    out.add_argument("--name", default="hindsight")
    return out


def main() -> None:
    """Measure and write JSON."""
    parser = options()
    args = parser.parse()
    device, backbone = resolve_device(args.device), load_backbone(args.backbone, weights=args.weights)
    preprocess = backbone.preprocess(size=args.size, squash=True)
    train = open_images(load_samples(args.data / "train"), preprocess)
    test = open_images(load_samples(args.data / "test", classes=train.samples.classes), preprocess)
    labels, truth = (torch.tensor(images.samples.labels) for images in (train, test))
    if len(train.samples.classes) != 2:
        parser.error("thresholds are for two classes")
    body = backbone.body.to(device)
    found = find_average_pool(body, torch.rand(2, 3, preprocess.size, preprocess.size, device=device))
    if found is None:
        parser.error("this network does not end in average pooling")
    pool = body.get_submodule(found.name)
    own, others = (seen_by(pool, body, images, preprocess) for images in (train, test))
    assert own.maps is not None
    assert others.maps is not None
    assert own.sum is not None
    targets = encode(labels, 2, TARGETS)
    rows: list[dict[str, Any]] = []
    for channels in args.channels:
        z, new = (pooled(maps, own.sum, channels) for maps in (own.maps, others.maps))
        head = Head.of(z, targets, torch.ones(len(z)), torch.arange(len(z)))
        for strength in STRENGTHS:
            mu = strength * head.ridge.scale
            left_out = (targets - head.ridge.loo(head.residual, mu))[:, 0]
            scores = (with_one(new).double() @ head.solve(mu).T)[:, 0]
            loss = float((left_out - targets[:, 0]).square().mean())
            row = {"channels": channels, "strength": strength, "squared loss left out": loss}
            rows.append({**row, "left out": judged(left_out, labels), "test": judged(scores, truth)})
        best = min((r for r in rows if r["channels"] == channels), key=lambda r: r["squared loss left out"])
        print(
            f"{f'{channels} channels' if channels else 'average':>12s}: left out {best['left out']['error']:.1%}, test "
            f"{best['test']['error']:.1%} ({', '.join(f'{e:.1%}' for e in best['test']['error of each class'])}); "
            f"best threshold {best['test']['best threshold']:+.2f}: {best['test']['error there']:.1%}; "
            f"best strength: {min(r['test']['error'] for r in rows if r['channels'] == channels):.1%}",
            flush=True,
        )
    what = {"backbone": args.backbone, "data": args.data.name, "classes": list(train.samples.classes)}
    print(write(args.name, {**what, "rows": rows, "hardware": hardware(device)}, args.out))


if __name__ == "__main__":
    main()
