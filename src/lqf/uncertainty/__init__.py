"""How sure a prediction is: covariances, conformal sets, unusual images.

Example:
    >>> model.predict_set("photos/new", coverage=0.9).sets  # doctest: +SKIP
    >>> model.predict_std("photos/new").value  # doctest: +SKIP
    >>> model.novelty("photos/new").p_values  # doctest: +SKIP
"""

from lqf.uncertainty.jackknife import Asked, by_leaving_out, by_model, way_for
from lqf.uncertainty.novelty import Novelty, novelty
from lqf.uncertainty.sets import PredictionSets
from lqf.uncertainty.spread import Spread, spread

__all__ = [
    "Asked",
    "Novelty",
    "PredictionSets",
    "Spread",
    "by_leaving_out",
    "by_model",
    "novelty",
    "spread",
    "way_for",
]
