"""Would an audit find more flipped labels by more than the margin? With residuals, neighbours, roots, or a second fit.

    python benchmarks/label_orders.py DATA… --size 96 [--images 300] [--draws 6]

Each DATA is a folder with train/CLASS/*. A tenth of the labels is replaced by another class, chosen at random, a
closed-form head is fitted, and lists are ordered, the most suspicious sample first, by

    audit              soft leave-one-out margin (`lqf audit`)
    residual           norm of the sample's residual in the fit itself
    neighbours         share of other labels among the ten nearest in the centred features, weighted by their cosines
    second fit         the margin after a fit in which a sample weighs the square root of its label's probability
    square roots       the margin of a head on the features' square roots, which tell rare ones better
    audit + …          sum of the ranks, the other one's counted half

Given are the shares of flipped labels within the first 10 % and 20 % of each list, means over the draws.
"""

from __future__ import annotations

import numpy as np
import torch
from cleaned_labels import ALPHA, features
from common.hardware import hardware, write
from common.options import Options
from torch import Tensor

from lqf.evaluation.calibration import calibrate, probabilities
from lqf.fitting.select_ridge import Judge, choose_ridge
from lqf.linear.model import with_one
from lqf.linear.targets import centre, encode
from lqf.runtime.device import resolve_device
from lqf.solvers import Head

NEAREST = 10
LEAST = 0.05
"""Weight of the least credible label in the second fit."""


def head(z: Tensor, y: Tensor, n_classes: int, w: Tensor) -> tuple[Tensor, Tensor]:
    """Leave-one-out outputs and outputs of the head whose weight decay leave-one-out chooses."""
    targets = encode(y, n_classes, ALPHA)
    made = Head.of(z, targets - centre(n_classes, ALPHA), w, torch.arange(len(y)))
    judge = Judge(targets, y, w, 1)
    choice = choose_ridge(lambda _: made.ridge, made.residual, judge, [1.0])
    return judge.outputs(choice.e_loo), with_one(z) @ made.solve(choice.mu).T + centre(n_classes, ALPHA)


def margin(outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """How strongly out-of-sample outputs contradict every label, and the label's probability."""
    p = probabilities(outputs, calibrate(outputs, y)).double()
    own = p.gather(1, y[:, None])[:, 0].clamp(1e-300, 1 - 1e-15)
    return torch.log1p(-own) - own.log(), own


def neighbours(z: Tensor, y: Tensor) -> Tensor:
    """(N,) weighted share of other labels among the nearest."""
    x = torch.nn.functional.normalize(z - z.mean(0))
    cosines, near = (x @ x.T).fill_diagonal_(-1).topk(NEAREST)
    w = cosines.clamp_min(0)
    return ((y[near] != y[:, None]) * w).sum(1) / w.sum(1).clamp_min(1e-9)


def lists(z: Tensor, y: Tensor, n_classes: int) -> dict[str, Tensor]:
    """(N,) how suspicious every label is, by name."""
    loo, fitted = head(z, y, n_classes, torch.ones(len(y), dtype=torch.float64))
    audit, own = margin(loo, y)
    again, _ = head(z, y, n_classes, (own / own.max()).sqrt().clamp_min(LEAST))
    other = {
        "residual": (encode(y, n_classes, ALPHA) - fitted).norm(dim=1),
        "neighbours": neighbours(z, y),
        "second fit": margin(again, y)[0],
        "square roots": margin(head(z.sign() * z.abs().sqrt(), y, n_classes, torch.ones_like(own))[0], y)[0],
    }
    both = {f"audit + {name}": ranks(audit) + 0.5 * ranks(values) for name, values in other.items()}
    return {"audit": audit, **other, **both}


def ranks(values: Tensor) -> Tensor:
    """From 0 to 1."""
    return values.argsort().argsort().double() / len(values)


def found(z: Tensor, right: Tensor, draw: int) -> dict[str, tuple[float, float]]:
    """Shares of flipped labels in the first 10 % and 20 % of every list."""
    n, n_classes, generator = len(right), int(right.max()) + 1, np.random.default_rng(draw)
    wrong = torch.zeros(n, dtype=torch.bool)
    wrong[generator.permutation(n)[: n // 10]] = True
    other = (right + torch.from_numpy(generator.integers(1, n_classes, n))) % n_classes
    out = {}
    for name, values in lists(z, torch.where(wrong, other, right), n_classes).items():
        order = values.argsort(descending=True)
        first, second = (float(wrong[order[: n // k]].sum() / wrong.sum()) for k in (10, 5))
        out[name] = (first, second)
    return out


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32 --images 12 --draws 1")
    out.add_data("+")
    out.add_settings("backbone", "weights", "device", size=96)
    out.add_argument("--images", type=int, default=300, help="training images of every set (default: 300)")
    out.add_argument("--draws", type=int, default=6, help="of the labels that are flipped (default: 6)")
    return out


def main() -> None:
    """Measure and write JSON."""
    args, of_set = options().parse(), {}
    for data in args.data:
        z, y = features(data, args)[0]
        draws = [found(z, y, draw) for draw in range(args.draws)]
        of_set[data.name] = {name: np.mean([d[name] for d in draws], 0).round(4).tolist() for name in draws[0]}
        print(data.name, of_set[data.name], flush=True)
    every = {
        name: np.mean([s[name] for s in of_set.values()], 0).round(4).tolist() for name in next(iter(of_set.values()))
    }
    print("all", every)
    device = resolve_device(args.device)
    result = {
        "what": f"flipped labels in the first 10 % and 20 %, closed-form heads on {args.backbone} at {args.size} px",
        "found": {"all": every, **of_set},
        "hardware": hardware(device),
    }
    print(write(f"label_orders-{args.backbone}-{device.type}", result, args.out))


if __name__ == "__main__":
    main()
