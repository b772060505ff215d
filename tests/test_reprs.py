"""Everything public says in one to three lines what it is and what came out."""

import re
from dataclasses import replace

import pytest

from fits import FIXED, classifier, data
from html_reader import Reader
from lqf.data import load_samples
from lqf.evaluation.leave_one_out import LeaveOneOut
from stacks import stacked

X, Y = data(18)
NEW, NEW_Y = data(5, seed=7)
ERROR = r"leave-one-out error \d+\.\d% \(exact\)"


@pytest.fixture(scope="module")
def model():
    model = classifier(**FIXED, verbose=0).fit(X, Y)
    model.analyse(X, Y)
    return model


SHOWN = {
    "FittedModel": (lambda m: m.fitted_, rf"FittedModel\(LQF of Sequential; 18 images, 3 classes; {ERROR}\)"),
    "FitReport": (lambda m: m.fitted_.report, rf"FitReport\(18 images, 3 classes; {ERROR}; \d+\.\d s\)"),
    "TrainingTable": (lambda m: m.fitted_.train, r"TrainingTable\(18 images of data in memory\)"),
    "Samples": (lambda m: load_samples(X, Y, tensors="normalized"), r"Samples\(the .*: 18 images, 3 classes\)"),
    "Images": (lambda m: m.open(load_samples(NEW, tensors="normalized")), r"TensorImages\(the .*: 5 tensors\)"),
    "Analysis": (lambda m: m.analysis_, r"Analysis\(LQF of Sequential; 18 samples; exact\)"),
    "Queries": (lambda m: m.analysis_.queries(NEW, NEW_Y), r"Queries\(5 images, 5 with a label\)"),
    "Units": (lambda m: m.analysis_.units, r"Units\(18 samples\)"),
    "Influence": (lambda m: m.influence(NEW), r"Influence\(18 samples on 5 images; exact\)"),
    "Top": (lambda m: m.influence(NEW).top(5), r"Top\(\n  helpers: (\d+ [-+][\d.e-]+, ){3}…\n  harmers: .*, …\n\)"),
    "Information": (
        lambda m: m.information(NEW),
        r"Information\(18 samples, from \d+ [\d.e-]+ to \d+ [\d.e-]+; exact\)",
    ),
    "WhatIf": (lambda m: m.what_if(NEW), r"WhatIf\(5 images, none of them with another prediction; exact\)"),
    "LeaveOneOut": (lambda m: m.leave_one_out(), r"LeaveOneOut\(18 samples, error \d+\.\d%; exact\)"),
    "Similarity": (lambda m: m.analysis_.similarity(), r"Similarity\(all pairs of 18 samples; exact\)"),
    "Audit": (
        lambda m: m.audit(),
        r"Audit\(18 images: \d+ labels? contradicted, \d+ pairs? of near-duplicates; leave-one-out error \d+\.\d%\)",
    ),
    "Explanations": (lambda m: m.explain(NEW)[:2], r"Explanations\(2 images; exact\)\n  0: .*\n  1: .*"),
    "Explanation": (lambda m: m.explain(NEW)[0], r"Explanation\(0: . \d+\.\d%\)\n  towards: .*\n  away: .*"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_it_is_and_its_main_figure(name, model):
    make, words = SHOWN[name]
    shown = repr(make(model))
    assert re.fullmatch(words, shown), shown
    assert len(shown.splitlines()) <= 4
    assert max(map(len, shown.splitlines())) <= 120


def test_figures_are_those_of_the_thing(model):
    loo = model.leave_one_out()
    assert f"{100 * loo.error:.1f}%" in repr(loo)
    unknown = loo.value.clone()
    unknown[:3] = float("nan")
    assert "18 samples, known for 15, error" in repr(replace(loo, value=unknown))
    nothing = LeaveOneOut(unknown * float("nan"), "estimated", labels=loo.labels, weights=loo.weights)
    assert repr(nothing) == "LeaveOneOut(18 samples, known for 0, error not known; estimated)"
    grouped = classifier(**FIXED, verbose=0).fit(X, Y, groups=[i // 2 for i in range(18)])
    assert repr(grouped.analyse(X, Y).units) == "Units(9 groups of 18 samples)"


def test_a_report_without_leave_one_out_and_of_a_climb(model):
    report = model.fitted_.report
    assert replace(report, loo_error=None).headline == "18 images, 3 classes; error on unseen images not known"
    climbed = replace(report, error=0.0421, error_standard_error=0.009)
    assert climbed.headline == "18 images, 3 classes; expected error 4.2% ± 0.9"


def test_a_stack_names_its_members():
    models = {name: classifier(solver=name, verbose=0).fit(X, Y) for name in ("head", "dense")}
    stack = stacked(models, (0.25, 0.75))
    headline = "head 25% + dense 75% of Sequential; 18 images, 3 classes; expected error 15.3% ± 1.8"
    assert repr(stack) == f"Stack({headline})"
    view = Reader(stack._repr_html_())
    for words in ("Head 25% + dense 75% of Sequential", "expected error", "head, mirror images", "gains nothing"):
        assert words in view.text
