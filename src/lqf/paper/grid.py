"""The search grids, all of them: method × scale -> the settings that are tried. The best by test error is reported.

"paper" is what the paper searched. "short" is cut so that an experiment on three data sets of a thousand images takes
minutes on one large GPU; NLFT keeps more rates than it has there, since no method depends on them more. "quick" shows
that everything runs. Settings not named here are the methods' own: momentum 0.9, batches of 28, cosine schedule.
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
"""The strongest augmentation is tried with one combination only, as in the paper."""

_SGD = [*product(learning_rate=RATES, weight_decay=DECAYS, augment=CROPS), RESIZED]
_KFAC = [*product(learning_rate=(0.1,), weight_decay=DECAYS, augment=CROPS), *_SGD]
"""η = 0.1 is the rate that the paper's text derives for LQF; its grid has the others."""
_KFAC_SHORT = product(learning_rate=(0.1, 0.03, 0.01), weight_decay=(1e-5,), augment=("crop",))
"""These weight decays hardly regularise; where the optimum overfits, a small rate that ends before it does."""
_PLAIN_SHORT = product(learning_rate=(0.01, 0.001, 1e-4), weight_decay=(1e-5,), augment=("crop",))
_HEAD_SHORT = product(learning_rate=(0.1, 0.01), weight_decay=(1e-5,), augment=CROPS)
_STEEP = [*_SGD, *product(learning_rate=(1e-4, 1e-5), weight_decay=(1e-5,), augment=CROPS)]
"""Without a preconditioner the squared error may ask for smaller rates than the paper tried."""
_ADAM = product(learning_rate=ADAM_RATES, weight_decay=ADAM_DECAYS, augment=(*CROPS, "resized"))
_ADAM_SHORT = product(learning_rate=(1e-3, 1e-4), weight_decay=(1e-5,), augment=("crop",))
_ONE_SGD = product(learning_rate=(0.01,), weight_decay=(1e-4,), augment=("crop",))
_ONE_KFAC = product(learning_rate=(0.1,), weight_decay=(1e-4,), augment=("crop",))
_ONE_ADAM = product(learning_rate=(1e-3,), weight_decay=(1e-5,), augment=("none",))
_NLFT_SHORT = [
    *product(learning_rate=(0.05, 0.02, 0.01, 0.001), weight_decay=(1e-4,), augment=("crop",)),
    {"learning_rate": 0.02, "weight_decay": 1e-4, "augment": "resized"},
]
_FEW = product(learning_rate=RATES, weight_decay=(1e-4,), augment=("crop",))
_MSE_RATES = (0.1, 0.05, 0.01, 0.001, 1e-4)

GRIDS: dict[str, dict[str, list[Settings]]] = {
    # ordinary fine-tuning
    "nlft": {"paper": _SGD, "short": _NLFT_SHORT, "quick": _ONE_SGD},
    "b-nlft": {"paper": _SGD, "short": _NLFT_SHORT, "quick": _ONE_SGD},
    # linear, by SGD
    "gaf": {"paper": _SGD, "short": _PLAIN_SHORT, "quick": _ONE_SGD},
    "fc": {"paper": _SGD, "short": _HEAD_SHORT, "quick": _ONE_SGD},
    "lqf": {"paper": _KFAC, "short": _KFAC_SHORT, "quick": _ONE_KFAC},
    "b-lqf": {"paper": _KFAC, "short": _KFAC_SHORT, "quick": _ONE_KFAC},
    "lqf-no-kfac": {
        "paper": _STEEP,
        "short": product(learning_rate=(0.001, 1e-4, 1e-5), weight_decay=(1e-5,), augment=("crop",)),
        "quick": product(learning_rate=(0.001,), weight_decay=(1e-4,), augment=("crop",)),
    },
    # linear, by Adam
    "gaf-adam": {"paper": _ADAM, "short": _ADAM_SHORT, "quick": _ONE_ADAM},
    "lqf-adam": {"paper": _ADAM, "short": _ADAM_SHORT, "quick": _ONE_ADAM},
    "lqf-fc-adam": {"paper": _ADAM, "short": _ADAM_SHORT, "quick": _ONE_ADAM},
    # exact: nothing to search but, for the closed-form head, the paper's two weight decays beside leave-one-out's
    "lqf-fc": {s: product(weight_decay=(*DECAYS, "auto")) for s in ("paper", "short", "quick")},
    "lqf-ours": {s: [{}] for s in ("paper", "short", "quick")},
    "b-lqf-ours": {s: [{}] for s in ("paper", "short", "quick")},
    # cross-entropy against the squared error over shots: the paper's wider grid
    "nlft-mse": {
        "paper": product(learning_rate=_MSE_RATES, weight_decay=DECAYS, augment=("crop",)),
        "short": product(learning_rate=_MSE_RATES[1:], weight_decay=(1e-4,), augment=("crop",)),
        "quick": product(learning_rate=(0.01, 0.001), weight_decay=(1e-4,), augment=("crop",)),
    },
    # data in steps, where NLFT is trained many times, and its curvature after training
    "online": {"paper": _SGD, "short": _FEW, "quick": _ONE_SGD},
    "eigenvalues": dict.fromkeys(("paper", "short", "quick"), _ONE_SGD),
    # best effective learning rate η/((1−m)b)
    "robustness": {
        "paper": product(
            learning_rate=(0.05, 0.01, 0.005, 0.001, 1e-4),
            batch_size=(16, 32, 64),
            weight_decay=(1e-5, 1e-4, 5e-4),
            augment=("crop",),
        ),
        "short": product(
            learning_rate=(0.05, 0.01, 0.005, 0.001, 1e-4),
            batch_size=(32,),
            weight_decay=(1e-4,),
            augment=("crop",),
        ),
        "quick": product(learning_rate=(0.01, 0.001), batch_size=(8,), weight_decay=(1e-4,), augment=("crop",)),
    },
}


def grid(name: str, scale: str) -> list[Settings]:
    """The settings to try, as fresh dictionaries."""
    return [dict(s) for s in GRIDS[name][scale]]
