"""From images to a fitted model.

images -> TrainingSet -> HeadFit -> TrainingProblem -> Solution -> FittedModel
"""

from __future__ import annotations

from lqf.backbones import Backbone
from lqf.data import Images, Preprocess
from lqf.fitting.assemble import assemble, assemble_head
from lqf.fitting.checkpoint import read_state
from lqf.fitting.context import Context
from lqf.fitting.fitted_model import FittedModel
from lqf.fitting.out_of_sample import leave_one_out
from lqf.fitting.pose import pose
from lqf.fitting.relinearize import relinearize
from lqf.fitting.select_pooling import select_pooling
from lqf.fitting.select_shown import given_shown
from lqf.fitting.select_views import select_views
from lqf.fitting.training_set import TrainingSet


def fit(images: Images, backbone: Backbone, preprocess: Preprocess, context: Context) -> FittedModel:
    """Everything, in order.

    Args:
        images: training images, checked.
        backbone: the network, on the CPU.
        preprocess: pixels to inputs.
        context: settings, device, processes, progress, checkpoint.
    """
    settings, state = context.settings, None
    if settings.solver != "head":
        state = read_state(context.checkpoint, context.dtype, context.world, context.progress.say)
    head = select_pooling(TrainingSet.of(images, preprocess, context), backbone)
    head = select_views(head, fixed=state.views if state else None)
    if settings.solver == "head":
        return assemble_head(head, given_shown(head.data.preprocess.views, settings))
    if settings.moves:
        problem, solution = relinearize(head, state)
    else:
        problem = pose(head, state.ridge if state else None)
        solution = problem.solve(state=state)
    shown = given_shown(problem.data.preprocess.views, settings)
    loo = leave_one_out(problem, shown)
    problem.release()
    return assemble(problem, solution, loo, shown)
