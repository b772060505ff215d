"""Problems posed without a fold, and the kernels that they make: by dense Jacobians, and by real refits."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dense import jacobian
from fits import FIXED, classifier, convnet, data, pictures, reopened
from lqf.fitting import HeadFit, TrainingProblem
from lqf.fitting.encoder import Encoder
from lqf.fitting.pose import outlined
from lqf.fitting.select_stages import choose_stages
from lqf.fitting.without_fold import NESTED, nested_choice, nested_kernels, posed_without
from lqf.kernels.nested import NestedKernels
from lqf.linear.model import with_one
from lqf.linear.ridge import Ridge
from real_refits import crossfitted_heads, without_each_fold

N, C = 12, 3
GROUPS = np.arange(N) // 6 * 3 + np.arange(N) % 3
"""Two groups of two samples in each of three classes."""
TIGHT = {"rtol": 1e-9, "atol": 1e-9}
STAGES = (("conv",), ("bn",), ("deep",))
LOG_MU = torch.tensor([0.3, 2.0, -1.0, 0.7], dtype=torch.float64)


def posed(views: str = "none", groups: Any = None, **params: Any) -> TrainingProblem:
    """Twelve weighted pictures of three classes."""
    x, y = pictures(N, side=12)
    s = np.random.default_rng(0).uniform(0.5, 2, N)
    given = {"backbone": convnet(), "size": 8, "views": views, "pooling": "avg", "pool_channels": 3, **FIXED, **params}
    return reopened(classifier(**given).fit(x, y, s, groups=groups), x, y, s, groups)


def with_other_labels(problem: TrainingProblem, k: int) -> TrainingProblem:
    """Those of one fold changed, in the targets and in every head."""
    fold, targets = problem.data.folds, problem.quadratic.targets.clone()
    targets[fold == k] = targets[fold == k].roll(1, 1)

    def changed(head: HeadFit) -> HeadFit:
        return replace(head, head=replace(head.head, residual=targets - problem.data.constant))

    head = changed(problem.head_fit)
    if problem.head_fit.acting is not problem.head_fit:
        vars(head)["acting"] = changed(problem.head_fit.acting)
    return replace(problem, quadratic=replace(problem.quadratic, targets=targets), head_fit=head)


KINDS = pytest.mark.parametrize(
    "params",
    [{}, {"head": "probe"}, {"head": "means"}, {"head": "several"}, {"head": "random"}, {"pooling": "both"}],
    ids=["crossfit", "probe", "means", "several", "random", "both poolings"],
)


# --- the point --------------------------------------------------------------------------------------------------------


@KINDS
def test_no_label_of_the_fold_enters_heads_and_point(params: dict[str, Any]) -> None:
    problem = posed("flip", **params)
    changed, fold = with_other_labels(problem, 1), problem.data.folds
    for k in range(4):
        before, after = (posed_without(p, fold == k) for p in (problem, changed))
        same = torch.allclose(before.model.heads, after.model.heads, rtol=1e-11, atol=1e-11)
        assert same == (k == 1 or params.get("head") == "random")
        assert torch.equal(before.fold, after.fold)


@KINDS
@pytest.mark.parametrize("groups", [None, GROUPS], ids=["alone", "groups"])
def test_rows_that_stay_see_what_they_would_without_the_others(params: dict[str, Any], groups: Any) -> None:
    """As in a problem that is made of them alone, with the same folds and the same strength."""
    problem = posed("flip", groups, **params)
    data, fold = problem.data, problem.data.folds
    for k in range(int(fold.max()) + 1):
        keep = fold != k
        part = data.some(keep[::2].numpy())
        vars(part)["folds"] = torch.unique(fold[keep], return_inverse=True)[1]
        head = HeadFit.at(Encoder(part, problem.head_fit.backbone), "its own", problem.head_fit.point_ridge)
        alone, found = outlined(head).quadratic, posed_without(problem, fold == k)
        expected = alone.model.heads[alone.fold]
        torch.testing.assert_close(found.model.heads[found.fold][keep], expected, **TIGHT)
        assert torch.equal(found.targets[keep], alone.targets)
        torch.testing.assert_close(found.weights[keep], alone.weights)


@KINDS
def test_rows_left_out_see_the_mean_of_the_heads(params: dict[str, Any]) -> None:
    problem = posed("flip", **params)
    fold = problem.data.folds
    found = posed_without(problem, fold == 2)
    heads = found.model.heads[:-1]
    assert len(heads) == (1 if params.get("head") in ("probe", "random") else 3)
    assert sorted(set(found.fold[fold != 2].tolist())) == list(range(len(heads)))
    expected = heads.mean(0).expand(int((fold == 2).sum()), -1, -1)
    torch.testing.assert_close(found.model.heads[found.fold][fold == 2], expected, rtol=1e-14, atol=0)


# --- kernels ----------------------------------------------------------------------------------------------------------


def jacobians(problem: TrainingProblem, k: int) -> Tensor:
    """(n, C, D) of the outputs without fold k, through heads that are made anew."""
    p, fold = problem.quadratic, problem.data.folds
    heads, own = crossfitted_heads(p, fold, k, problem.head_fit.point_ridge)
    w = torch.where((fold == k)[:, None, None], heads.mean(0), heads[own])[..., :-1]
    return w @ jacobian(p.model.body, p.inputs.fetch(torch.arange(len(fold))))


def columns(problem: TrainingProblem, stage: str) -> Tensor:
    """(D,) mask of the weights of a stage."""
    layout = problem.model.body.layout
    own = torch.tensor([name.startswith(f"{stage}.") for name in layout.names])
    return own.repeat_interleave(torch.tensor(layout.sizes))


@pytest.mark.parametrize(
    ("views", "groups", "folds"),
    [("none", None, 4), ("flip", None, 4), ("flip", GROUPS, 2)],
    ids=["plain", "views", "views and groups"],
)
def test_kernels_are_those_of_dense_jacobians_averaged_over_the_outputs(views: str, groups: Any, folds: int) -> None:
    problem = posed(views, groups)
    v = problem.data.n_views
    found = nested_kernels(problem, N * v, C)
    assert found.stages == STAGES
    assert found.body.shape == (folds, len(STAGES), N * v, N * v)
    for k in range(folds):
        j = jacobians(problem, k)
        for s, (stage,) in enumerate(STAGES):
            own = j[..., columns(problem, stage)]
            torch.testing.assert_close(found.body[k, s], torch.einsum("icd,jcd->ij", own, own) / C, **TIGHT)
    z = with_one(problem.features)
    torch.testing.assert_close(found.head, z @ z.T, **TIGHT)
    torch.testing.assert_close(found.residual, problem.quadratic.targets - problem.data.constant)
    assert torch.equal(found.fold, problem.data.folds)
    assert torch.equal(found.samples, torch.arange(N))


def test_kernels_of_random_sums_of_the_outputs() -> None:
    problem = posed()
    found = nested_kernels(problem, N, 2)  # of three outputs
    generator = torch.Generator().manual_seed(problem.context.settings.seed)
    signs = (2 * torch.randint(0, 2, (2, C), generator=generator) - 1).double()
    for k in range(4):
        sums = torch.einsum("rc,ncd->nrd", signs, jacobians(problem, k))
        for s, (stage,) in enumerate(STAGES):
            own = sums[..., columns(problem, stage)]
            expected = torch.einsum("ird,jrd->ij", own, own) / (2 * C)
            torch.testing.assert_close(found.body[k, s], expected, **TIGHT)
    every = nested_kernels(problem, N, C)
    assert not torch.allclose(found.body, every.body, rtol=1e-3)


def test_outputs_are_those_of_ridge_regression_without_the_fold() -> None:
    """On z̃ and on the gradients of all outputs, which every output has to itself."""
    problem = posed("flip")
    mu, fold, s = LOG_MU.exp(), problem.data.folds, problem.quadratic.weights
    found = nested_kernels(problem, 2 * N, C).outputs(LOG_MU)
    for k in range(4):
        j = jacobians(problem, k)
        parts = [with_one(problem.features)]
        parts += [j[..., columns(problem, stage)].flatten(1) / C**0.5 for (stage,) in STAGES]
        a, ridge = torch.cat(parts, 1), torch.cat([m.expand(p.shape[1]) for m, p in zip(mu, parts, strict=True)])
        keep = fold != k
        r = problem.quadratic.targets[keep] - problem.data.constant
        h = a[keep].T @ (s[keep, None] * a[keep]) + torch.diag(ridge)
        delta = torch.linalg.solve(h, a[keep].T @ (s[keep, None] * r))
        torch.testing.assert_close(found[~keep], a[~keep] @ delta, **TIGHT)


def test_with_one_output_they_are_those_of_real_refits() -> None:
    x, y = data(20, 2)
    problem = reopened(classifier(**FIXED).fit(x, y), x, y)
    log_mu = torch.tensor([0.3, 1.1, -0.5], dtype=torch.float64)
    head, first, second = log_mu.exp().tolist()
    p = problem.quadratic.with_ridge(Ridge(head, 1.0, (("first", first), ("second", second))))
    expected = without_each_fold(p, problem.data.folds, problem.head_fit.point_ridge)
    kernels = nested_kernels(problem, 200, 1)
    assert kernels.stages == (("first",), ("second",))
    torch.testing.assert_close(kernels.outputs(log_mu), expected, **TIGHT)
    assert not torch.allclose(kernels.outputs(log_mu.flip(0)), expected, atol=1e-2)


# --- of some samples --------------------------------------------------------------------------------------------------


def rows_of(samples: Tensor, views: int) -> Tensor:
    return (samples[:, None] * views + torch.arange(views)).flatten()


def assert_part(part: NestedKernels, whole: NestedKernels, views: int) -> None:
    """The rows of some samples, each with all that belongs to it."""
    rows = rows_of(part.samples, views)
    torch.testing.assert_close(part.head, whole.head[rows][:, rows])
    torch.testing.assert_close(part.body, whole.body[:, :, rows][..., rows], **TIGHT)
    for name in ("residual", "weights", "fold"):
        assert torch.equal(getattr(part, name), getattr(whole, name)[rows])


@pytest.mark.parametrize(("views", "most"), [("none", 8), ("flip", 16)])
def test_many_samples_are_represented_by_some_of_them(views: str, most: int) -> None:
    """Whose heads have seen all the others: the kernels are a part of those of all samples."""
    problem = posed(views)
    v = problem.data.n_views
    part, whole = nested_kernels(problem, most, C), nested_kernels(problem, N * v, C)
    assert len(part.samples) == 8
    assert part.samples.tolist() == sorted(set(part.samples.tolist()))
    assert part.body.shape[-1] == 8 * v
    assert_part(part, whole, v)


def test_there_are_two_samples_for_every_class_at_the_least() -> None:
    problem = posed()
    assert len(nested_kernels(problem, 1, 18).samples) == 2 * C
    assert_part(nested_kernels(problem, 1, 18), nested_kernels(problem, N, C), 1)


def test_which_samples_is_up_to_the_seed() -> None:
    first, again, other = (nested_kernels(posed(seed=seed), 8, C).samples for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


# --- strengths --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strengths", ["stages", "one"])
def test_strengths_are_chosen_by_these_kernels(strengths: str) -> None:
    given = posed()
    head = HeadFit.of(given.head_fit.encoder, "its own", given.features)
    settings = {"strengths": strengths, "weight_decay": "auto", "body_weight_decay": "auto"}
    problem = replace(given, head_fit=head, context=given.context.with_settings(**settings))
    found, by_stage = nested_choice(problem), strengths == "stages"
    kernels = nested_kernels(problem, *NESTED["cpu"])
    assert found == choose_stages(kernels, problem.data.judge, head.choice.mu, by_stage=by_stage)
    assert [name for name, _ in found.ridge.stages] == ([name for (name,) in STAGES] if by_stage else [])
