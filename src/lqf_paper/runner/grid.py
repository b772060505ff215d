"""The search grids, all of them: method × scale -> the settings that are tried. The best by test error is reported.

"paper" is what the paper searched. "short" is cut so that an experiment on three data sets of a thousand images takes
minutes on one large GPU: one weight decay, random crops alone (`table1` and `bilinear` try the strongest augmentation
too), and for every method rates around those that its curvature asks for. "quick" shows that everything runs. Settings
not named here are the methods' own: momentum 0.9, batches of 28, cosine schedule, K-FAC damped as little as a batch
allows. The most telling settings stand first, for a run that is cut.
"""

from __future__ import annotations

from itertools import product as _product
from typing import Any

Settings = dict[str, Any]


def product(**axes: tuple[Any, ...]) -> list[Settings]:
    """All combinations of some settings."""
    return [dict(zip(axes, values, strict=True)) for values in _product(*axes.values())]


CROPS = ("none", "crop")
RATES, DECAYS = (0.01, 0.001), (1e-4, 1e-5)
ADAM_RATES, ADAM_DECAYS = (1e-3, 4e-4, 1e-4), (1e-5, 1e-6)
RESIZED: Settings = {"learning_rate": 0.001, "weight_decay": 1e-5, "augment": "resized"}
"""The paper tries its strongest augmentation with this combination only."""

_SGD = [*product(learning_rate=RATES, weight_decay=DECAYS, augment=CROPS), RESIZED]
_KFAC = [*product(learning_rate=(0.1,), weight_decay=DECAYS, augment=CROPS), *_SGD]
"""η = 0.1 is the rate that the paper's text derives for LQF; its grid has the others."""
_STEEP = [*_SGD, *product(learning_rate=(1e-4, 1e-5), weight_decay=(1e-5,), augment=CROPS)]
"""The squared error without a preconditioner and the cross entropy with one may ask for smaller rates."""
_ADAM = product(learning_rate=ADAM_RATES, weight_decay=ADAM_DECAYS, augment=(*CROPS, "resized"))
_ADAM_SHORT = product(learning_rate=(1e-3, 1e-4), weight_decay=(1e-5,), augment=("crop",))
_ONE_SGD = product(learning_rate=(0.01,), weight_decay=(1e-4,), augment=("crop",))
_ONE_KFAC = product(learning_rate=(0.1,), weight_decay=(1e-4,), augment=("crop",))
_ONE_ADAM = product(learning_rate=(1e-3,), weight_decay=(1e-5,), augment=("none",))
_DECAYS_UP: dict[str, tuple[Any, ...]] = {"weight_decay": (1e-3, 1e-2, 0.1, 1.0), "augment": ("crop",)}
"""λ up to 1: the paper's loss may mean a mean over the outputs, and its λ then weighs as many times more."""
_MSE_RATES = (0.1, 0.05, 0.01, 0.001, 1e-4)
_EVERY_RATE = (0.05, 0.01, 0.005, 0.001, 1e-4)
_ROBUSTNESS = product(
    learning_rate=_EVERY_RATE, batch_size=(16, 32, 64), weight_decay=(1e-5, 1e-4, 5e-4), augment=("crop",)
)
_BATCHES = product(learning_rate=(0.01, 0.001), batch_size=(16, 64), weight_decay=(1e-4,), augment=("crop",))
_ROBUSTNESS_QUICK = product(learning_rate=(0.01, 0.001), batch_size=(8,), weight_decay=(1e-4,), augment=("crop",))


def _short(*rates: float, **more: Any) -> list[Settings]:
    """Random crops at these rates. The weight decays of the paper hardly regularise, and one of them is tried."""
    return [{"learning_rate": r, "weight_decay": 1e-4, "augment": "crop", **more} for r in rates]


def _resized(*rates: float) -> dict[str, list[Settings]]:
    """Random resized crops: the paper's combination; in "short" with rates that suit the method."""
    return {"paper": [RESIZED], "short": [{**RESIZED, "learning_rate": r} for r in rates], "quick": [RESIZED]}


def _damped(*pairs: tuple[float, float]) -> list[Settings]:
    """Random crops at these rates under these ρ."""
    return [{"learning_rate": r, "weight_decay": 1e-4, "augment": "crop", "damping": rho} for r, rho in pairs]


_TELLING = _damped((0.01, 0.1), (0.001, 0.01))
"""Of LQF (paper)'s grid the pairs with the lowest training loss on CUB, but for one at η = 0.1."""

# With ResNet-50 the mean squared length of an output's gradient is 4,000 to 14,000 and the largest eigenvalue of the
# squared error 1,000 to 6,500: plain SGD with momentum is stable below 6e-4 to 3e-3. The cross entropy bounds its
# gradient and stands larger rates. Under K-FAC rate and damping go together: where no ρ is named, it is the least whose
# steps do not overshoot a batch, about 100 η with factored damping. The cross entropy of C classes, whose curvature is
# taken for A/C, moves its outputs up to C times as far at the same rate.

GRIDS: dict[str, dict[str, list[Settings]]] = {
    # ordinary fine-tuning
    "nlft": {"paper": _SGD, "short": _short(0.05, 0.01, 0.005, 0.001), "quick": _ONE_SGD},
    "b-nlft": {"paper": _SGD, "short": _short(0.05, 0.01, 0.001, 3e-4), "quick": _ONE_SGD},
    # linear, by SGD
    "gaf": {"paper": _SGD, "short": _short(0.01, 0.001, 1e-4), "quick": _ONE_SGD},
    "fc": {"paper": _SGD, "short": _short(0.1, 0.01, 0.001), "quick": _ONE_SGD},
    "lqf": {
        "paper": [*_KFAC, *product(learning_rate=(0.1, *RATES), damping=(1.0, 0.1, 0.01, 1e-3), augment=CROPS)],
        "short": [
            *_damped((0.01, 0.1), (0.1, 1.0), (0.001, 0.01)),
            *_short(0.001, 0.005, 0.01, 0.05, 0.1),
        ],
        "quick": _ONE_KFAC,
    },
    "lqf-trace": {
        "paper": _KFAC,
        "short": [*_damped((0.05, 1.0)), *_short(0.01, 0.001)],
        "quick": _damped((0.01, 1.0)),
    },
    "lqf-central": {
        "paper": product(learning_rate=(0.1, *RATES), weight_decay=DECAYS),
        "short": [{k: v for k, v in s.items() if k != "augment"} for s in _TELLING],
        "quick": product(learning_rate=(0.1,), weight_decay=(1e-4,)),
    },
    "lqf-small-head": {"paper": _KFAC, "short": _TELLING, "quick": _ONE_KFAC},
    "lqf-bf16": {"paper": _KFAC, "short": _TELLING, "quick": _ONE_KFAC},
    "lqf-decay": {
        "paper": product(learning_rate=(0.1, 0.01), **_DECAYS_UP),
        "short": product(learning_rate=(0.01,), damping=(0.1,), **_DECAYS_UP),
    }
    | {"quick": product(learning_rate=(0.1,), weight_decay=(1.0,), augment=("crop",))},
    "fc-decay": {s: product(learning_rate=(0.1, 0.01), **_DECAYS_UP) for s in ("paper", "short")}
    | {"quick": product(learning_rate=(0.1,), weight_decay=(1.0,), augment=("crop",))},
    "lqf-fc-sgd": {"paper": _KFAC, "short": _short(0.1, 0.01, 0.001), "quick": _ONE_KFAC},
    "gaf-probe": {"paper": _SGD, "short": _short(0.01, 0.001, 1e-4), "quick": _ONE_SGD},
    "b-lqf": {"paper": _KFAC, "short": _short(0.1, 0.05, 0.01), "quick": _ONE_KFAC},
    "lqf-probe": {"paper": _KFAC, "short": _short(0.1, 0.05, 0.01), "quick": _ONE_KFAC},
    "lqf-no-leaky": {"paper": _KFAC, "short": _short(0.1, 0.05, 0.01), "quick": _ONE_KFAC},
    "lqf-no-mse": {
        "paper": [*_KFAC, *_STEEP[len(_SGD) :]],
        "short": _short(0.05, 0.01, 0.002, 4e-4),
        "quick": _ONE_KFAC,
    },
    "lqf-no-kfac": {
        "paper": _STEEP,
        "short": _short(1e-3, 3e-4, 1e-4, 3e-5),
        "quick": product(learning_rate=(0.001,), weight_decay=(1e-4,), augment=("crop",)),
    },
    # the strongest augmentation, which on the chest X-rays changes more than the method does
    "nlft-resized": _resized(0.001, 0.005),
    "nlft-mse-resized": _resized(3e-4),
    "b-nlft-resized": _resized(0.001),
    "gaf-resized": _resized(0.001),
    "fc-resized": _resized(0.001, 0.01),
    "lqf-resized": _resized(0.001, 0.05)
    | {"short": [{**RESIZED, "learning_rate": 0.01, "damping": 0.1}, *_resized(0.001, 0.05)["short"]]},
    "b-lqf-resized": _resized(0.05),
    # linear, by Adam
    "gaf-adam": {"paper": _ADAM, "short": _ADAM_SHORT, "quick": _ONE_ADAM},
    "lqf-adam": {"paper": _ADAM, "short": _ADAM_SHORT, "quick": _ONE_ADAM},
    "lqf-fc-adam": {"paper": _ADAM, "short": _ADAM_SHORT, "quick": _ONE_ADAM},
    # exact: nothing to search but, for the closed-form head, the paper's two weight decays and leave-one-out's
    "lqf-fc": {s: product(weight_decay=(*DECAYS, "auto")) for s in ("paper", "short", "quick")},
    "lqf-fc-paper": {s: product(weight_decay=DECAYS) for s in ("paper", "short", "quick")},
    "lqf-leaky": {s: [{}] for s in ("paper", "short", "quick")},
    "lqf-relu": {s: [{}] for s in ("paper", "short", "quick")},
    "lqf-ours": {s: [{}] for s in ("paper", "short", "quick")},
    "lqf-ours-avg": {s: [{}] for s in ("paper", "short", "quick")},
    "lqf-ours-crops": {s: [{}] for s in ("paper", "short", "quick")},
    "lqf-solved": {s: [{}] for s in ("paper", "short", "quick")},
    "b-lqf-ours": {s: [{}] for s in ("paper", "short", "quick")},
    # ordinary fine-tuning on few images, with either loss: the paper's wider grid. The squared error of targets as long
    # as 15 asks for smaller rates. Batches of a few images say little of their statistics: there the network's own are
    # tried too ("kept")
    "nlft-few": {
        "paper": product(learning_rate=_MSE_RATES, weight_decay=DECAYS, augment=("crop",)),
        "short": _short(0.05, 0.01, 0.001),
        "quick": _short(0.01, 0.001),
    },
    "nlft-few-kept": {
        "paper": _short(0.01, 0.001, 1e-4, bn="eval"),
        "short": _short(0.01, 0.001, bn="eval"),
        "quick": _short(0.01, bn="eval"),
    },
    "nlft-mse": {
        "paper": product(learning_rate=_MSE_RATES, weight_decay=DECAYS, augment=("crop",)),
        "short": _short(1e-3, 3e-4, 1e-4),
        "quick": _short(0.01, 0.001),
    },
    "nlft-mse-kept": {
        "paper": _short(1e-3, 3e-4, 1e-4, bn="eval"),
        "short": _short(3e-4, 1e-4, bn="eval"),
        "quick": _short(0.001, bn="eval"),
    },
    "lqf-few": {
        "paper": product(learning_rate=(0.1, *RATES), weight_decay=DECAYS, augment=("crop",)),
        "short": [*_damped((0.01, 0.1)), *_short(0.001)],
        "quick": _short(0.1),
    },
    # data in steps, where NLFT is trained many times, and its curvature after training
    "online": {"paper": _SGD, "short": _short(0.01, 0.005, 0.001), "quick": _ONE_SGD},
    "eigenvalues": dict.fromkeys(("paper", "short", "quick"), _ONE_SGD),
    # best effective learning rate η/((1−m)b); in batches of 28 most cells are those of table1
    "robustness": {"paper": _ROBUSTNESS, "short": [*_short(*_EVERY_RATE), *_BATCHES], "quick": _ROBUSTNESS_QUICK},
    "robustness-lqf": {
        "paper": [{**s, "damping": 1.0} for s in _ROBUSTNESS],
        "short": [{**s, "damping": 1.0} for s in (*_short(0.1, *_EVERY_RATE), *_BATCHES)],
        "quick": _ROBUSTNESS_QUICK,
    },
}


def grid(name: str, scale: str) -> list[Settings]:
    """The settings to try, as fresh dictionaries."""
    return [dict(s) for s in GRIDS[name][scale]]
