"""Sentences of a report; each states a measurement or what to do about it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lqf.analysis.audit.audit import Audit
from lqf.evaluation.metrics import standard_error
from lqf.fitting.fitted_model import FINETUNING
from lqf.fitting.report import FitReport, last_kept
from lqf.fitting.rungs.finetuned import FINETUNED, LOWER_RATE
from lqf.reports import rungs
from lqf.reports.html.environment import number, percent
from lqf.reports.shift import Shift
from lqf.utils import naming
from lqf.utils.text import counted

FAR = 0.02
"""A difference of errors that matters, if it is also more than chance."""


def lead(fit: FitReport) -> str:
    """What was fitted on what."""
    pooling, images = rungs.POOLINGS.get(fit.pooling, "its own pooling"), counted(fit.n, "image")
    if fit.images_given is not None:
        images += f" (of {fit.images_given:,}: the time limit)"
    data = f"fitted to {images} of {counted(len(fit.classes), 'class')}"
    if fit.solver == "stack":
        members = last_kept(fit.rungs).get("members", {}) if fit.rungs else {}
        trained = FINETUNED in members or LOWER_RATE in members
        how = "by solving one convex quadratic problem" + (", or by fine-tuning all weights" if trained else "")
        return f"A stack of models of {fit.backbone}, each {data} {how}."
    if fit.solver == FINETUNING:
        return f"{fit.backbone}, {data} by fine-tuning all weights from its closed-form head on."
    return f"{fit.backbone} with {pooling}, {data} by solving one convex quadratic problem."


def tried(fit: FitReport) -> str:
    """Which model it is, what the network's body adds, and what would come next."""
    return " ".join(filter(None, [rungs.which_model(fit.rungs), rungs.next_up(fit.next_rung)])) if fit.rungs else ""


def further(fit: FitReport) -> str:
    """The option with which a fit goes on; empty where nothing comes next."""
    return "" if fit.next_rung is None else f"lqf fit --effort {fit.next_rung['effort']} --resume"


def judged() -> str:
    """By what a rung is kept."""
    return (
        "Every model was judged by what it says about training images that it was fitted without, on folds that all "
        "share. Its gain is in cross-entropy over the best model before it, image by image, ± one standard error; it "
        "is kept where it gains. The time includes the judging."
    )


def whole_choice(fit: FitReport) -> str:
    """The error on unseen images of all that a fit does, its choices included."""
    if fit.error is None or fit.error_standard_error is None:
        return ""
    return (
        f"On unseen images {percent(fit.error)} ± {points(fit.error_standard_error)} are to be expected: "
        f"{fit.error_note}, so that nothing was chosen by what it is measured on. "
    )


def errors(loo: float, n: float, level: str, note: str, test: Mapping[str, Any] | None) -> str:
    """Leave-one-out, compared with the test."""
    how = ", ".join(filter(None, [level, note]))
    text = (
        f"Leave-one-out asks for every training image what a model without it would say: "
        f"{percent(loo)} ± {points(standard_error(loo, n))} are wrong ({how})."
    )
    if test is None or test["error"] is None:
        return f"{text} Give {naming.given('test', 'DIR')} to compare it with labelled test images."
    share, se = percent(test["error"]), points(standard_error(test["error"], test["n"]))
    return f"{text} Of {counted(test['n'], 'test image')}, {share} ± {se} are."


def measured() -> str:
    """How the figures and their intervals come about."""
    return (
        "Each figure with the range that chance alone leaves open with so many images (95 %). Balanced accuracy and F1 "
        "are means over the classes. AUC is how often an image of a class scores higher for it than an image of "
        "another. The calibration error is the mean distance between confidence and accuracy in at most ten bins of "
        "equally many images, 25 of them or more. Probabilities were calibrated on the answers of leave-one-out, whose "
        "last two figures are therefore a little too good."
    )


def points(share: float) -> str:
    """A standard error in percent."""
    return f"{100 * share:.1f}"


def far_above(loo: float, n: int, test: Mapping[str, Any] | None) -> bool:
    """Whether the test error exceeds leave-one-out by more than chance (three standard errors) and by enough."""
    if test is None or test["error"] is None:
        return False
    chance = math.hypot(standard_error(loo, n), standard_error(test["error"], test["n"]))
    return test["error"] - loo > max(3 * chance, FAR)


def warning(fit: FitReport, loo: float, test: Mapping[str, Any] | None, shift: Shift | None) -> dict[str, str] | None:
    """Said at the top where the test error is far above leave-one-out: the likely reason, and what to do."""
    if not far_above(loo, fit.n, test):
        return None
    assert test is not None
    gap = f"Leave-one-out predicted {percent(loo)}, the test set gives {percent(test['error'])}: more than chance."
    if shift is not None and shift.visible:
        text = (
            f"{gap} Test images can be told from training images of the same class (AUC {shift.auc:.2f}, out of "
            "sample), so both numbers can be right, each for images like its own. Which kind will the model see? For "
            "images like the test set, add some of them to the training set."
        )
        if fit.views in ("none", "flip"):
            text += (
                f" Without any, try {naming.given('views', 'resized')}: crops bind a model less to how its images "
                "are framed."
            )
        return {"title": "The test set comes from another distribution.", "text": text}
    text = (
        f"{gap} The images of both sets look alike to the model, so look for the reason elsewhere: copies or several "
        "images of one subject in the training set (give a group column), or wrong labels in the test set."
    )
    return {"title": "The test error is far above leave-one-out.", "text": text}


def shifted(shift: Shift | None, far: bool) -> str:
    """How well the sets can be told apart."""
    if shift is None:
        return "Too few images of shared classes to compare the two sets."
    found = f"AUC {shift.auc:.2f} ± {shift.standard_error:.2f}"
    question = (
        "A classifier was asked to tell test from training images by the model's features, every class counting "
        f"equally in both sets, and judged out of sample: {found}, where 0.50 is chance."
    )
    if not shift.visible:
        return f"{question} The sets look alike."
    if far:
        return f"{question} The sets differ, and the error with them. These are the images that differ most:"
    return f"{question} The sets differ, but the error hardly does. These are the images that differ most:"


def labels(audit: Audit) -> str:
    """How many labels leave-one-out contradicts."""
    n, wrong = len(audit.suspects), len(audit.contradicted)
    if wrong == 0:
        return f"None: a model without the image agrees with its label for all {n:,} of them."
    text = (
        "What would the model say of a training image had it not seen it? "
        f"For {wrong:,} of {n:,} it contradicts the label"
    )
    return f"{text}; the strongest contradictions come first. A wrong label looks like this, and so does a hard image."


def duplicates(audit: Audit) -> str:
    """How many pairs, and how many of them disagree."""
    pairs = audit.duplicates
    other = sum(r["label"] != r["other_label"] for r in pairs)
    text = (
        f"{counted(len(pairs), 'pair')} of training images {'is' if len(pairs) == 1 else 'are'} almost one and the "
        "same to the model (cosine of its kernel, centred). Copies count twice, and they flatter leave-one-out: the "
        "copy is still there. Keep one of each, or give them one group."
    )
    if other:
        text += f" {counted(other, 'pair')} {'has' if other == 1 else 'have'} two different labels: one must be wrong."
    return text


def information() -> str:
    """What F-SI is."""
    return (
        "The number below an image is its functional information: the mean squared change of the model's outputs when "
        "that image alone is left out. Informative images are rare kinds, hard cases, and wrong labels; the least "
        "informative ones say what others have said already."
    )


def cases() -> str:
    """What influence is."""
    return (
        "Test images with the training images that pushed the prediction to where it is, and those that pushed it "
        "away, the strongest first: the surest mistakes, then the least sure right answers. “Without it” is the "
        "probability of the predicted class, of it and the runner-up, had that training image not been there."
    )


def one_decay(choice: Mapping[str, Any]) -> str:
    """What a plot of one weight decay shows."""
    kept = number(choice["kept"])
    return f"Kept {kept}: the lowest leave-one-out cross-entropy, which need not be the lowest error."


def decays_of_stages(choice: Mapping[str, Any]) -> str:
    """What a plot of the weight decays of all stages shows."""
    losses = [f"{name} {found['loss']:.3f}" for name, found in choice["tried"].items()]
    text = f"A high weight decay leaves a stage as it is. Cross-entropy out of sample: {', '.join(losses)}."
    return text if choice["first"] == "all" else f"{text} What comes before {choice['first']} is not changed at all."


def chosen(choices: Sequence[Mapping[str, Any]]) -> str:
    """Whether there was something to choose."""
    if not choices:
        return "Nothing: pooling and weight decay were given."
    return (
        "No test image was used: candidates are compared by their leave-one-out cross-entropy on the training images."
    )


def calibration(error: float | None, what: str) -> str:
    """How far probabilities are from frequencies."""
    text = "Where the model is sure to 80 %, it should be right in 80 % of the cases: on the dashed line."
    return text if error is None else f"{text} Mean distance {percent(error)} ({what})."
