"""Heads at the linearisation point: which labels they have seen."""

import numpy as np
import pytest
import torch
from torch import Tensor

from dense import ridge_regression
from fits import classifier
from lqf.fitting.folds import stratified_folds
from lqf.fitting.point import BLIND, HEAVY, SEVERAL, crossfit_point, make_point, probe_point, random_point
from lqf.linear.model import with_one
from lqf.linear.targets import centre, encode
from lqf.solvers import Head

N, P, C, MU = 24, 6, 3, 0.8
LABELS = torch.arange(N) % C


def features(seed: int = 0) -> Tensor:
    return torch.randn(N, P, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def head(labels: Tensor = LABELS, weights: Tensor | None = None, groups: Tensor | None = None) -> Head:
    residual = encode(labels, C, 15.0) - centre(C, 15.0)
    weights = torch.ones(N, dtype=torch.float64) if weights is None else weights
    return Head.of(features(), residual, weights, torch.arange(N) if groups is None else groups)


def folds_of(labels: Tensor) -> Tensor:
    return stratified_folds(torch.arange(len(labels)), labels)


def head_of(h: Head, keep: Tensor, mu: float) -> Tensor:
    """(C, p+1) from the rows in ``keep``."""
    return ridge_regression(with_one(h.features)[keep], h.residual[keep], h.weights[keep], mu).T


def test_random_is_blind_to_the_labels() -> None:
    a, b = random_point(head(), seed=3), random_point(head(LABELS.flip(0)), seed=3)
    assert torch.equal(a.heads, b.heads)
    assert not torch.equal(a.heads, random_point(head(), seed=4).heads)
    assert a.heads.shape == (1, C, P + 1)
    assert not a.heads[..., -1].any()
    assert a.fold.tolist() == [0] * N


def test_random_has_the_scale_of_a_new_layer() -> None:
    wide = Head.of(torch.zeros(4, 400), torch.zeros(4, 50), torch.ones(4), torch.arange(4))
    assert float(random_point(wide, 0).heads[..., :-1].std()) == pytest.approx(1 / 20, rel=0.02)


def test_probe_is_the_closed_form_head_of_all_rows() -> None:
    h = head(weights=torch.rand(N, dtype=torch.float64) + 0.5)
    point = probe_point(h, MU)
    torch.testing.assert_close(point.heads[0], head_of(h, torch.ones(N, dtype=bool), MU))
    assert point.fold.tolist() == [0] * N


def test_crossfit_is_the_closed_form_head_of_the_other_folds() -> None:
    h = head(weights=torch.rand(N, dtype=torch.float64) + 0.5)
    point = crossfit_point(h, MU, folds_of(LABELS))
    assert len(point.heads) == 5
    for k, made in enumerate(point.heads):
        keep = point.fold != k
        share = float(h.weights[keep].sum() / h.weights.sum())  # so that λ = μ/Σs stays
        torch.testing.assert_close(made, head_of(h, keep, MU * share))


@pytest.mark.parametrize("kind", ["crossfit", "means", "several"])
def test_crossfitted_heads_have_not_seen_their_fold(kind: str) -> None:
    """Given the folds, other labels of fold k's rows change every head but k's."""
    before = make_point(kind, head(), MU, folds_of(LABELS))
    assert before.kind == kind
    for k in range(len(before.heads)):
        changed = torch.where(before.fold == k, (LABELS + 1) % C, LABELS)
        after = make_point(kind, head(changed), MU, folds_of(LABELS))
        same = [torch.equal(a, b) for a, b in zip(before.heads, after.heads, strict=True)]
        assert same == [j == k for j in range(len(before.heads))]


def test_heavy_is_the_closed_form_head_under_a_stronger_ridge() -> None:
    h = head(weights=torch.rand(N, dtype=torch.float64) + 0.5)
    point = make_point("heavy", h, MU, folds_of(LABELS))
    torch.testing.assert_close(point.heads[0], head_of(h, torch.ones(N, dtype=bool), HEAVY * MU))
    assert (point.kind, len(point.heads)) == ("heavy", 1)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_means_are_those_of_the_other_folds(n_classes: int) -> None:
    labels = torch.arange(N) % n_classes
    weights = torch.rand(N, dtype=torch.float64) + 0.5
    residual = encode(labels, n_classes, 15.0) - centre(n_classes, 15.0)
    h = Head.of(features(), residual, weights, torch.arange(N))
    point = make_point("means", h, MU, folds_of(labels))
    for k, made in enumerate(point.heads):
        keep = point.fold != k
        z, s, y, r = features()[keep], weights[keep], labels[keep], residual[keep]
        means = torch.stack([(s[y == c, None] * z[y == c]).sum(0) / s[y == c].sum() for c in range(n_classes)])
        w = means[1:] - means[:1] if n_classes == 2 else means - means.mean(0)
        torch.testing.assert_close(made[:, :-1] / made[:, :-1].norm(), w / w.norm())
        gap = r - with_one(z) @ made.T  # scale and offsets are least squares
        torch.testing.assert_close((s[:, None] * gap).sum(0), torch.zeros(len(w)).double(), rtol=0, atol=1e-10)
        assert abs(float((s[:, None] * gap * (z @ w.T)).sum())) < 1e-9


def test_a_class_that_other_folds_lack_has_no_mean() -> None:
    labels = torch.tensor([2] + [0, 1] * 8 + [0])
    fold = torch.tensor([0] + [1] * 8 + [0] * 9)
    residual = encode(labels, 3, 15.0) - centre(3, 15.0)
    h = Head.of(features()[:18], residual, torch.ones(18).double(), torch.arange(18))
    without = make_point("means", h, MU, fold).heads[0]
    assert not without[2, :-1].any()
    torch.testing.assert_close(without[0, :-1], -without[1, :-1])


def test_several_is_a_mean_of_heads_of_halves() -> None:
    groups = torch.arange(N) // 2
    labels = groups % C
    h = head(labels, groups=groups)
    fold = stratified_folds(groups, labels)
    point = make_point("several", h, MU, fold, seed=2)
    expected = torch.zeros_like(point.heads)
    for k in range(len(expected)):
        rows = (fold != k).nonzero()[:, 0]
        for draw in range(SEVERAL):
            half = rows[stratified_folds(groups[rows], labels[rows], folds=2, seed=2 * SEVERAL + draw) == 0]
            keep = torch.zeros(N, dtype=bool)
            keep[half] = True
            expected[k] += head_of(h, keep, MU * len(half) / N) / SEVERAL
    torch.testing.assert_close(point.heads, expected)
    assert not torch.equal(point.heads, make_point("several", h, MU, fold, seed=3).heads)


@pytest.mark.parametrize("kind", ["crossfit", "means", "several"])
def test_one_fold_is_fitted_on_itself(kind: str) -> None:
    """Its head is the one that these rows make for any other fold."""
    h = head()
    alone = make_point(kind, h, MU, torch.zeros(N, dtype=torch.long)).heads
    assert alone.shape == (1, C, P + 1)
    z, r = torch.cat([h.features, features(1)[:6]]), torch.cat([h.residual, h.residual[:6]])
    more = Head.of(z, r, torch.ones(N + 6, dtype=torch.float64), torch.arange(N + 6))
    fold = (torch.arange(N + 6) >= N).long()
    torch.testing.assert_close(alone[0], make_point(kind, more, MU * (N + 6) / N, fold).heads[1])
    if kind == "crossfit":
        torch.testing.assert_close(alone[0], head_of(h, torch.ones(N, dtype=bool), MU))


def test_a_duplicate_in_the_same_group_equals_weight_two() -> None:
    heavy = head(weights=torch.tensor([2.0] + [1.0] * (N - 1), dtype=torch.float64))
    z, r = (torch.cat([t, t[:1]]) for t in (heavy.features, heavy.residual))
    twice = Head.of(z, r, torch.ones(N + 1, dtype=torch.float64), torch.tensor([*range(N), 0]))
    a = crossfit_point(heavy, MU, stratified_folds(heavy.groups, LABELS))
    b = crossfit_point(twice, MU, stratified_folds(twice.groups, torch.cat([LABELS, LABELS[:1]])))
    assert torch.equal(a.fold, b.fold[:-1])
    torch.testing.assert_close(a.heads, b.heads)


def test_folds_are_stratified() -> None:
    labels = torch.tensor([0] * 23 + [1] * 11 + [2] * 6)[torch.randperm(40)]
    fold = stratified_folds(torch.arange(40), labels, seed=0)
    table = torch.stack([torch.bincount(fold[labels == c], minlength=5) for c in range(3)])
    assert torch.equal(table.sum(1), torch.tensor([23, 11, 6]))
    assert int((table.amax(1) - table.amin(1)).max()) <= 1
    assert int(table.sum(0).max() - table.sum(0).min()) <= 1


def test_folds_depend_on_the_seed_alone() -> None:
    groups = torch.arange(N)
    assert torch.equal(stratified_folds(groups, LABELS, seed=1), stratified_folds(groups, LABELS, seed=1))
    assert not torch.equal(stratified_folds(groups, LABELS, seed=1), stratified_folds(groups, LABELS, seed=2))


def test_groups_stay_in_one_fold() -> None:
    groups = torch.randint(0, 15, (60,)) * 7  # any numbers
    fold = stratified_folds(groups, groups % 2, seed=0)
    assert all(len(fold[groups == g].unique()) == 1 for g in groups.unique())
    assert len(fold.unique()) == 5


@pytest.mark.parametrize("per_class", [2, 3, 4])
def test_every_fold_has_every_class_where_groups_are_few(per_class: int) -> None:
    """Else the head that a row uses would tell its class."""
    groups = torch.arange(3 * per_class).repeat_interleave(4)
    fold = stratified_folds(groups, groups % 3, seed=0)
    assert int(fold.max()) + 1 == per_class
    assert all(len((groups % 3)[fold == k].unique()) == 3 for k in range(per_class))


def test_one_small_class_does_not_take_the_folds_from_the_others() -> None:
    labels = torch.tensor([0, 0] + [1] * 20 + [2] * 20)
    fold = stratified_folds(torch.arange(42), labels, seed=0)
    assert int(fold.max()) == 4
    assert len(fold[:2].unique()) == 2


@pytest.mark.parametrize("kind", BLIND)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_leave_one_out_of_noise_is_not_better_than_chance(n_classes: int, kind: str) -> None:
    """Two groups per class, labels that mean nothing: nobody can predict them."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(2 * n_classes), 8)
    model = classifier(head=kind).fit(rng.normal(size=(len(groups), 12)), groups % n_classes, groups=groups)
    assert model.report_["point"] == kind
    assert model.report_["loo_note"] == ""
    assert model.leave_one_out().error > 0.9 * (1 - 1 / n_classes)
