"""How long a question will take, from what the fit's own passes took on its device."""

from __future__ import annotations

from lqf.fitting import FittedModel

FORWARD_MODE = 3
"""A forward-mode pass, in passes that only compute features."""
QUICK_PASSES = 1.5
"""Of a quick answer: one backward and one forward; two backward and one forward where curvature is not known."""

EXACT = 2.7
"""A pass in TF32 without kept activations, in the fit's own on a GPU, which are narrow and keep them: ResNet-50 on one
H200 takes 57.5 ms per 128 rows instead of 21.6 (`product_cost-resnet50-cuda-*.json`)."""


def of_forward_pass(model: FittedModel) -> float:
    """Seconds of one forward-mode pass over the training rows; 0 where the fit has not measured it."""
    return FORWARD_MODE * model.report.stages.get("features", 0.0)


def of_product(model: FittedModel) -> float:
    """Seconds of one pass of an answer by conjugate gradients, forward and backward, by the pace of the fit's own."""
    stages, fast = model.report.stages, model.report.device.startswith("cuda")
    own = max(0.0, stages.get("solve", 0.0) - stages.get("curvature", 0.0)) / max(1, model.report.passes)
    return own * (EXACT if fast and model.settings.precision != "float32" else 1.0)


def of_curvature(model: FittedModel) -> float:
    """Seconds of K-FAC."""
    return model.report.stages.get("curvature", 0.0)
