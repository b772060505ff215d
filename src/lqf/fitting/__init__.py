"""From images to a fitted model: a pipeline of values, each made from the one before.

Samples -> Images -> TrainingSet -> HeadFit -> TrainingProblem -> Solution -> FittedModel
"""

from lqf.fitting.context import Context
from lqf.fitting.fitted_model import FittedModel, TrainingTable
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.ladder import climb
from lqf.fitting.pipeline import fit
from lqf.fitting.stack import Model, Stack
from lqf.fitting.training_problem import TrainingProblem
from lqf.fitting.training_set import TrainingSet

__all__ = [
    "Context",
    "FittedModel",
    "HeadFit",
    "Model",
    "Stack",
    "TrainingProblem",
    "TrainingSet",
    "TrainingTable",
    "climb",
    "fit",
]
