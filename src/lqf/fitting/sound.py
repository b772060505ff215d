"""What floating point can hold, and what a solver has reached: refused where a model could not be trusted."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from lqf.data import Samples
from lqf.errors import LQFError
from lqf.linear.ridge import Ridge
from lqf.settings import Settings
from lqf.solvers.solution import Solution
from lqf.utils import naming

LARGEST, SMALLEST, RANGE = 1e18, 1e-18, 1e9
"""Of sample weights, which are float32 in passes over the data: their squares, and their ratio."""
STRENGTHS = 1e10
"""Most by which the ridge strength of some weights may exceed that of others."""
STOPPED_BY_CHOICE = ("sgd", "adam")
"""Solvers that end after the epochs that were asked for, wherever they are then."""


def check_weights(samples: Samples) -> None:
    """Refuse sample weights, all positive, that floating point cannot hold together."""
    w = samples.weights
    low, high = int(np.argmin(w)), int(np.argmax(w))
    if w[high] <= LARGEST and w[low] >= SMALLEST and w[high] <= RANGE * w[low]:
        return
    raise LQFError(
        f"sample weights run from {w[low]:.3g} (`{samples.ids[low]}`) to {w[high]:.3g} (`{samples.ids[high]}`), class "
        f"weights included; they must lie between {SMALLEST:g} and {LARGEST:g}, and the largest may be {RANGE:g} times "
        "the smallest; give images that should not count the weight 0"
    )


def check_strengths(ridge: Ridge) -> None:
    """Refuse ridge strengths so far apart that one kernel drowns the other."""
    lowest, highest = ridge.lowest, max(ridge.head, ridge.body, *(mu for _, mu in ridge.stages))
    if lowest > 0 and highest <= STRENGTHS * lowest:
        return
    raise LQFError(
        f"the ridge strengths run from {lowest:.3g} to {highest:.3g}, further apart than floating point can hold "
        f"together ({STRENGTHS:g}); give {naming.name('weight_decay')} and {naming.name('body_weight_decay')} values "
        "that are closer, or leave them to `auto`"
    )


def check_images_differ(features: Tensor, samples: Samples, n_views: int) -> None:
    """Refuse features that are not finite, and those that are the same for every image: nothing is learned from them.

    Args:
        features: (n, p), the views of an image one after the other.
        samples: the images.
        n_views: of each.
    """
    by_image = features.view(len(samples), n_views, -1)
    finite = torch.isfinite(by_image).flatten(1).all(1)
    if not bool(finite.all()):
        first = int((~finite).nonzero()[0])
        raise LQFError(
            f"the network's features of `{samples.ids[first]}` are not finite; give images, or tensors, of finite "
            "values, and weights that belong to the network"
        )
    spread = float((by_image - by_image[:1]).abs().max())
    if spread <= 1e-6 * float(by_image.abs().max()):
        raise LQFError(
            f"the network sees no difference between the {len(samples):,} images of {samples.name}: all have the same "
            "features, as copies of one image or images of one colour have; check the files"
        )


def check_solution(solution: Solution, settings: Settings) -> None:
    """Refuse a solution that is not finite, and one that did not converge unless it is to be kept."""
    proof = solution.certificate
    if not (bool(torch.isfinite(solution.delta).all()) and math.isfinite(proof.relative_residual)):
        raise LQFError(
            f"the solution is not finite ({solution.solver}, {proof.sentence}); give a larger "
            f"{naming.name('weight_decay')} or {naming.name('body_weight_decay')}, or sample weights that differ less"
        )
    if proof.converged or solution.solver in STOPPED_BY_CHOICE or settings.unconverged == "keep":
        return
    more = "" if solution.solver != "pcg" else f"a larger {naming.name('max_passes')}, "
    raise LQFError(
        f"{solution.solver} {proof.sentence}; give {more}a larger {naming.name('body_weight_decay')}, or "
        f"{naming.given('unconverged', 'keep')} to keep such a model, which then says so at every prediction"
    )
