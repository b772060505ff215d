"""Explanations agree with really leaving the sample out."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fits import FIXED, classifier, data
from lqf.reports.explanation import explanations
from lqf.reports.summary import summarize

X, Y = data(18)
NEW = data(5, seed=7)[0]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_probability_without_a_sample_is_that_of_what_if_between_the_two_classes(n_classes):
    x, y = data(18, n_classes)
    model = classifier(**FIXED).fit(x, y)
    analysis = model.analyse(x, y)
    explained = explanations(analysis.contrast(NEW), analysis.labels, most=3)
    assert [e.query for e in explained] == list(range(5))
    for e in explained:
        assert e.label is None
        assert [e.explained, e.against] == list(e.probabilities)[:2]
        assert e.explained == e.predicted
        assert e.share == pytest.approx(e.probability / sum(list(e.probabilities.values())[:2]))
        assert e.probability == pytest.approx(model.predict_proba(NEW)[e.query].max(), abs=1e-6)
        assert list(e.probabilities.values()) == sorted(e.probabilities.values(), reverse=True)
        assert 0 < len(e.towards) <= 3
        for push in (*e.towards, *e.away):
            what = analysis.what_if(NEW, without=[push.name])
            p = dict(zip(what.classes, what.probabilities[e.query].tolist(), strict=True))
            share = p[e.explained] / (p[e.explained] + p[e.against])
            assert push.probability == pytest.approx(share, abs=1e-8)
            assert push.label == str(y[int(push.name)])
        assert all(p.change < 0 for p in e.towards)
        assert all(p.change > 0 for p in e.away)
        assert e.to_dict()["towards"][0]["name"] == e.towards[0].name


@pytest.mark.parametrize("groups", [None, [f"g{i // 2}" for i in range(30)]])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_the_order_is_that_of_the_numbers_that_are_shown(n_classes, groups):
    x, y = data(30, n_classes, signal=0.5)
    model = classifier(**FIXED).fit(x, y, groups=groups)
    analysis = model.analyse(x, y)
    explained = explanations(analysis.contrast(data(8, n_classes, seed=7)[0]), analysis.labels, most=30)
    for e in explained:
        towards, away = ([p.probability for p in side] for side in (e.towards, e.away))
        assert towards == sorted(towards)
        assert away == sorted(away, reverse=True)
        assert all(p < e.share for p in towards)
        assert all(p > e.share for p in away)
        assert len(towards) + len(away) == (30 if groups is None else 15)


def test_certain_predictions_are_ordered_where_their_digits_no_longer_tell():
    x, y = data(18)
    model = classifier(**FIXED).fit(x, y)
    analysis = model.analyse(x, y)
    contrast = analysis.contrast(NEW)
    contrast = replace(contrast, value=contrast.value * 1e4 / contrast.beta, beta=1e4)
    for e in explanations(contrast, analysis.labels, most=18):
        changes = [p.change for p in e.towards]
        assert changes == sorted(changes)
        assert changes[0] < changes[-1] < 0


def test_a_group_is_one_push():
    groups = [f"g{i // 2}" for i in range(18)]
    model = classifier(**FIXED).fit(X, Y, groups=groups)
    analysis = model.analyse(X, Y)
    explained = explanations(analysis.contrast(NEW), analysis.labels, most=9)
    pushes = [*explained[0].towards, *explained[0].away]
    assert {p.size for p in pushes} == {2}
    assert {p.name for p in pushes} <= set(groups)
    assert all(p.sample == 2 * int(p.name[1:]) for p in pushes)


def test_a_summary_keeps_what_leaves_last():
    model = classifier(**FIXED).fit(X, Y)
    analysis = model.analyse(X, Y)
    summary = summarize(analysis, 0.5)
    values = analysis.information().samples()
    last, counts = set(analysis.leaving()[-9:].tolist()), summary.per_class.values()
    more = set(summary.kept.tolist()) - last
    assert last <= set(summary.kept.tolist())
    assert len(more) == sum(max(0, 2 - int((analysis.labels[list(last)] == k).sum())) for k in range(3))
    assert sum(c["kept"] for c in counts) == 9 + len(more)
    share = float(values[summary.kept].sum() / values.sum())
    assert summary.to_dict()["information_share"] == pytest.approx(share)
    assert torch.equal(torch.tensor(summary.information), values)


def test_a_summary_counts_the_labels_that_the_fits_leave_one_out_contradicts(monkeypatch):
    monkeypatch.setattr("lqf.analysis.audit.labels.SURE", 0.5)
    model = classifier(**FIXED).fit(X, np.where(np.arange(18) == 4, 2, Y))
    analysis, loo = model.analyse(X), model.leave_one_out()
    summary = summarize(analysis, 0.5)
    wrong = (loo.predicted != loo.labels).nonzero()[:, 0].tolist()
    sure = [row["index"] for row in model.audit(X).suspicious]
    assert summary.contradicted.tolist() == wrong
    assert summary.suspicious.tolist() == sorted(sure)
    found = summary.to_dict()
    assert (found["contradicted"], found["suspicious"]) == (len(wrong), len(sure))
    assert found["suspicious_kept"] == len(set(sure) & set(summary.kept.tolist()))
    assert 4 in sure
    unknown = summarize(replace(analysis, model=replace(analysis.model, loo=None)), 0.5).to_dict()
    assert [unknown[k] for k in ("contradicted", "suspicious", "suspicious_kept")] == [None, None, None]


def test_a_summary_keeps_two_of_every_class():
    model = classifier(solver="dense").fit(X, Y)
    analysis = model.analyse(X, Y)
    summary, values = summarize(analysis, 0.06), model.information().samples()
    assert [c["kept"] for c in summary.per_class.values()] == [2, 2, 2]
    for k in range(3):
        mine = (analysis.labels == k).nonzero()[:, 0]
        assert set(mine[values[mine].topk(2)[1]].tolist()) <= set(summary.kept.tolist())


def test_with_validation_images_a_summary_keeps_what_leaves_last():
    model = classifier(**FIXED).fit(X, Y)
    analysis = model.analyse(X, Y)
    summary = summarize(analysis, 1 / 3, NEW)
    assert set(analysis.leaving(NEW)[-6:].tolist()) <= set(summary.kept.tolist())
    assert len(summary.kept) < 12


def test_the_probability_of_the_class_that_was_asked_for_is_among_those_given(monkeypatch):
    monkeypatch.setattr("lqf.reports.explanation.MOST_CLASSES", 2)
    x, y = data(18, 3)
    analysis = classifier(**FIXED).fit(x, y).analyse(x, y)
    for e in explanations(analysis.contrast(NEW, of="2"), analysis.labels):
        assert e.explained == "2"
        assert "2" in e.probabilities
        assert len(e.probabilities) in (2, 3)
