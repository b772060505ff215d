"""Know your data: what every training sample does to every prediction, from the solved problem itself.

Example:
    >>> analysis = model.analyse()  # doctest: +SKIP
    >>> analysis.influence("photos/test/x.jpg").top(10)  # doctest: +SKIP
    >>> analysis.what_if("photos/test", without=["rose/12.jpg"]).outputs  # doctest: +SKIP
"""

from lqf.analysis.analysis import Analysis
from lqf.analysis.contrast import Contrast
from lqf.analysis.counterfactual import Change
from lqf.analysis.curve import Curve
from lqf.analysis.influence import Effect, Influence, Top
from lqf.analysis.information import Information
from lqf.analysis.queries import Queries
from lqf.analysis.similarity import Similarity
from lqf.analysis.units import Units
from lqf.analysis.what_if import WhatIf
from lqf.fitting.training_data import open_training

__all__ = [
    "Analysis",
    "Change",
    "Contrast",
    "Curve",
    "Effect",
    "Influence",
    "Information",
    "Queries",
    "Similarity",
    "Top",
    "Units",
    "WhatIf",
    "open_training",
]
