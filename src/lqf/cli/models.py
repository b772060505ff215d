"""Fitted models for the commands that use one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lqf.estimator import LQFClassifier


def load_model(args: argparse.Namespace, run: str | None = None) -> LQFClassifier:
    """The model in RUN, or in another folder, to be used as the shared options say (see `options.add_run`)."""
    from lqf.estimator import LQFClassifier

    given = {name: getattr(args, name) for name in ("weights", "device") if hasattr(args, name)}
    model = LQFClassifier.load(
        args.run if run is None else run, verbose=0, **given
    )  # the command has progress of its own
    if hasattr(args, "batch_size"):
        model.set_params(batch_size=args.batch_size)
    return model
