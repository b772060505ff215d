"""To cleanlab: leave-one-out probabilities are the out-of-sample `pred_probs` that it asks for."""

from __future__ import annotations

from typing import Any

from lqf.errors import LQFError
from lqf.evaluation.calibration import probabilities
from lqf.reports.classifier import Classifier
from lqf.utils import naming


def for_cleanlab(model: Classifier) -> dict[str, Any]:
    """`labels` (N,) and `pred_probs` (N, n_classes) of a fitted model, as cleanlab's functions take them.

    Example:
        >>> from cleanlab.filter import find_label_issues  # doctest: +SKIP
        >>> find_label_issues(**for_cleanlab(model))  # doctest: +SKIP
    """
    loo, fitted = model.leave_one_out(), model.fitted_
    if not bool(loo.known.all()):
        raise LQFError(
            f"leave-one-out is known for {int(loo.known.sum()):,} of {len(loo.labels):,} samples; fit with "
            f"{naming.given('loo', 'folds')}"
        )
    return {"labels": fitted.train.labels.copy(), "pred_probs": probabilities(loo.outputs, fitted.beta).numpy()}
