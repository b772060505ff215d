"""The work `validation`: one method, one setting, fitted on most training images and judged on the others."""

from __future__ import annotations

from typing import Any

import numpy as np

from lqf.data import select_images
from lqf_paper.methods.catalogue import METHODS, fit_method
from lqf_paper.methods.models import error
from lqf_paper.runner.divergence import judged
from lqf_paper.runner.held_out import held_out
from lqf_paper.runner.registry import defaults_of, work
from lqf_paper.runner.workspace import Task

SHARE = 0.2
"""Of every class, held out; the same images whatever the method and its seed."""


@work("validation", settings_of=lambda params: METHODS[params["method"]].fit, share=SHARE)
def validation(
    task: Task, *, method: str, settings: dict[str, Any], seed: int = 0, pool_channels: int = 256
) -> dict[str, Any]:
    """The error on held-out training images; no test image has a say in it."""
    apart = held_out(task.train.samples.labels, SHARE, 0)
    part, rest = task.some(np.flatnonzero(~apart)), select_images(task.train, apart)
    model = fit_method(method, part, seed=seed, pool_channels=pool_channels, **settings)
    wrong = error(model, rest)
    result = {
        "validation_error": wrong,
        "diverged": wrong is None,
        "losses": list(model.losses[:1] + model.losses[-1:]),
        "fit_seconds": model.seconds,
        "n": len(part.train),
        "validation": len(rest),
    }
    return judged(result, defaults_of(METHODS[method].fit).complete(settings), len(task.classes))
