"""How long a question will take, from what the fit's own passes took on its device.

A change of the training set makes too few passes to be timed by; it hands on those of the fit (`handed_on`).
"""

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
    return FORWARD_MODE * _pace(model)["features"]


def of_product(model: FittedModel) -> float:
    """Seconds of one pass of an answer by conjugate gradients, forward and backward, by the pace of the fit's own."""
    fast = model.report.device.startswith("cuda") and model.settings.precision != "float32"
    return _pace(model)["product"] * (EXACT if fast else 1.0)


def of_curvature(model: FittedModel) -> float:
    """Seconds of K-FAC."""
    return _pace(model)["curvature"]


def handed_on(model: FittedModel, samples: int, device: str) -> dict[str, dict[str, float]]:
    """For the entry of a change in the report: seconds of passes over so many samples; nothing on another device."""
    if model.report.device != device:
        return {}
    return {"pace": {name: seconds * samples / model.report.n for name, seconds in _pace(model).items()}}


def _pace(model: FittedModel) -> dict[str, float]:
    """Seconds of a pass that computes features, of a product, of K-FAC."""
    report, stages = model.report, model.report.stages
    if report.changes and "pace" in report.changes[-1]:
        return dict(report.changes[-1]["pace"])
    curvature = stages.get("curvature", 0.0)
    product = max(0.0, stages.get("solve", 0.0) - curvature) / max(1, report.passes)
    return {"features": stages.get("features", 0.0), "product": product, "curvature": curvature}
