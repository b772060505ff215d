"""Fine-tuned networks: one of all samples, or the mean of those that were trained without each fold?

    python benchmarks/averaged_networks.py DATA… [--share 0.6] [--backbone …] [--weights …] [--size 96] [--device cuda]

DATA is a folder with train/. A share of the training images of each class is learned from, the rest judge: no test
image is opened. Networks without each of five folds are trained to judge the rung anyway. Means are taken of outputs
(every prediction costs five networks) and of weights and statistics (one network), each alone and in a stack with the
closed-form head in eight views, whose coefficients come from out-of-sample outputs of what was learned from.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.climbed import Scores, scores
from common.hardware import hardware, write
from common.options import Options
from torch import Tensor

from lqf.backbones import load_backbone
from lqf.backbones.state import flat_state, moved, with_flat_state
from lqf.data import Images, load_samples, normalize, open_images, select_images, with_views
from lqf.evaluation.calibration import fit_temperature, log_loss
from lqf.evaluation.stacking import stack_coefficients
from lqf.fitting import Context, FittedModel, TrainingSet
from lqf.fitting.encoder import Encoder
from lqf.fitting.finetuned import Tuned, _batches, _how, finetuned
from lqf.fitting.rungs.finetuned import _in_one_view
from lqf.fitting.rungs.heads import CROPS, HEAD, MANY_VIEWS, HeadRung, ViewsRung
from lqf.fitting.rungs.pace import Pace
from lqf.fitting.rungs.rung import Ground
from lqf.linear.batch import usual_rows
from lqf.runtime.device import computing_on, resolve_device
from lqf.settings import Settings
from lqf.training.statistics import with_statistics_of

Row = dict[str, Any]


def split(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Which images to learn from: a share of every class, two at least."""
    generator, out = np.random.default_rng(seed), np.zeros(len(labels), bool)
    for label in np.unique(labels):
        mine = generator.permutation(np.flatnonzero(labels == label))
        out[mine[: max(2, round(share * len(mine)))]] = True
    return out


def averaged(networks: Sequence[Tuned]) -> Tuned:
    """One network with the mean of weights, statistics and heads."""
    first = networks[0]
    mean = torch.stack([flat_state(t.backbone.body) for t in networks]).mean(0)
    head = torch.stack([t.head for t in networks]).mean(0)
    return replace(first, encoder=Encoder(first.encoder.data, with_flat_state(first.backbone, mean, {})), head=head)


def measured_again(network: Tuned) -> Tuned:
    """With the statistics of the training images under its own weights."""
    data = network.encoder.data
    inputs = (normalize(x, data.preprocess, data.context.dtype) for x, _ in _batches(data, _how(data)))
    body = with_statistics_of(network.backbone.body.to(data.context.device), inputs)
    return replace(network, encoder=Encoder(data, moved(network.backbone, body, {})))


class Measured:
    """All kinds of one task."""

    def __init__(self, ground: Ground, held: Images):
        self.ground, self.held = ground, held
        self.labels = torch.tensor(held.samples.labels)
        for rung in (HeadRung(), ViewsRung(CROPS, MANY_VIEWS)):
            self.ground = self.ground.with_attempt(rung.attempt(self.ground))
        model = self.ground.attempts[CROPS].finish()
        assert isinstance(model, FittedModel)
        device = ground.context.device
        seen = with_views(held, model.preprocess)
        self.head = model.outputs(seen, device=device, batch_size=usual_rows(device)).double()

    def rows(self) -> Row:
        """Every way, by error and cross-entropy on the images held out."""
        fit = self.ground.attempts[HEAD].head
        assert fit is not None
        data = _in_one_view(fit.data)
        networks, left_out = [], torch.full((len(data), len(data.classes)), torch.nan, dtype=torch.float64)
        began = time.perf_counter()
        for k in data.folds.unique().tolist():
            without = (data.folds == k).numpy()
            networks.append(finetuned(data.some(~without), fit.acting.backbone))
            left_out[torch.from_numpy(without)] = self.outputs(networks[-1], select_images(data.images, without))
        folds_took = time.perf_counter() - began
        whole = finetuned(data, fit.acting.backbone)
        took = time.perf_counter() - began - folds_took
        outputs = [self.outputs(t, self.held) for t in (*networks, whole)]
        found = {
            "one fold's": outputs[0],
            "all samples": outputs[-1],
            "outputs, folds": torch.stack(outputs[:-1]).mean(0),
            "outputs, folds and all": torch.stack(outputs).mean(0),
            "weights, folds": self.outputs(averaged(networks), self.held),
            "weights, folds and all": self.outputs(averaged([whole, *networks]), self.held),
            "weights, new statistics": self.outputs(measured_again(averaged([whole, *networks])), self.held),
        }
        rates = [t.rate for t in (*networks, whole)]
        return {"seconds": {"folds": folds_took, "all": took}, "rates": rates, "ways": self.judged(found, left_out)}

    def outputs(self, network: Tuned, images: Images) -> Tensor:
        """(M, C) in eight views."""
        return network.rows(images, MANY_VIEWS).mean(1)

    def judged(self, found: dict[str, Tensor], left_out: Tensor) -> dict[str, dict[str, Scores]]:
        """Alone at the temperature of the folds, and in a stack with the head."""
        y, head = self.ground.data.labels, self.ground.attempts[CROPS].outputs
        c = stack_coefficients([head, left_out], y, torch.ones(len(y), dtype=torch.float64))
        beta = fit_temperature(left_out, y)[0]
        out = {"head": {"alone": self.scores(self.head, fit_temperature(head, y)[0])}}
        for name, f in found.items():
            stacked = c[0] * self.head + c[1] * f
            out[name] = {"alone": self.scores(f, beta), "stacked": self.scores(stacked, 1.0)}
        return out

    def scores(self, outputs: Tensor, beta: float) -> Scores:
        """Of images held out."""
        return scores(outputs, self.labels, log_loss(outputs, self.labels, beta))


def task(folder: Path, args: Any) -> Measured:
    """A share of a folder's images to learn from."""
    device = resolve_device(args.device)
    backbone = load_backbone(args.backbone, **({"weights": args.weights} if args.weights else {}))
    samples, preprocess = (
        load_samples(folder, limit_per_class=args.limit_per_class),
        backbone.preprocess(size=args.size),
    )
    images = open_images(samples, preprocess)
    learned = split(np.asarray(samples.labels), args.share, args.seed)
    context = Context(Settings(seed=args.seed), device)
    data = TrainingSet.of(select_images(images, learned), preprocess, context)
    ground = Ground(data, backbone, Pace(row=1e-3, flops=1e9, device=device.type))
    return Measured(ground, select_images(images, ~learned))


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32 --limit-per-class 8")
    out.add_data("+")
    out.add_settings("backbone", "weights", "size", "limit_per_class", "device", "seed")
    out.add_argument("--share", type=float, default=0.6, help="of the images to learn from")
    out.add_argument("--name", default="averaged_networks")
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    device, rows = resolve_device(args.device), []
    for data in args.data:
        with computing_on(device):
            measured = task(data / "train", args)
            row = {"data": data.name, "n": len(measured.ground.data), "held": len(measured.held)} | measured.rows()
        rows.append(row)
        for way, by in row["ways"].items():
            text = "   ".join(f"{k} {v['error']:.1%} ({v['cross_entropy']:.3f})" for k, v in by.items())
            print(f"{data.name:20s} {way:24s} {text}", flush=True)
        result = {"backbone": args.backbone, "size": args.size, "share": args.share, "rows": rows}
        path = write(args.name, result | {"hardware": hardware(device)}, args.out)
    print(path)


if __name__ == "__main__":
    main()
