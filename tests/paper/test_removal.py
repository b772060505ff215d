"""Images that leave: solves with fast products against the kernel's exact refits, and the estimated ranking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from closeness import relative
from dense import rows
from fits import data, network
from lqf.curvature import Preconditioner
from lqf.curvature.preconditioner import head_block
from lqf.fast.cache_budget import keep_within
from lqf.linear.problem import without_weight
from lqf.linear.ridge import Ridge
from lqf_paper.experiments import influence, summarization
from lqf_paper.runner.experiment import Done, Results
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task
from lqf_paper.studies import informativeness as informative
from lqf_paper.studies.kfac_information import kfac_information
from lqf_paper.studies.removal import TOL, ByKernels, BySolves, random_orders, removal
from paper.conftest import EXACT, small_task

SOLVED = {**EXACT, "tol": 1e-11, "weight_decay": 1.0, "body_weight_decay": 50.0}
SHARES = [0.0, 0.25, 0.5]


@pytest.fixture
def vectors() -> Task:
    return small_task(data(40, signal=0.5), data(60, signal=0.5, seed=1), network())


def both(task: Task, **settings: Any) -> tuple[ByKernels, BySolves]:
    images, _ = informative.parted(task, 0)
    made = [removal(task, images, solver, {**SOLVED, **settings}) for solver in ("dense", "pcg")]
    assert isinstance(made[0], ByKernels)
    assert isinstance(made[1], BySolves)
    return made[0], made[1]


@pytest.mark.parametrize("kept", [False, True], ids=["", "kept activations"])
@pytest.mark.parametrize("head", ["random", "crossfit"])
def test_solutions_without_images_are_the_exact_refits(vectors: Task, head: str, kept: bool) -> None:
    exact, solved = both(vectors, head=head)
    if kept:
        assert keep_within(solved.problem.fast, 1 << 28) == len(solved.problem.quadratic.targets)
    start = solved.problem.body(solved.whole)
    for keep in (torch.arange(0, 30, 2), torch.arange(3, 29)):
        part = solved.problem.among(keep)
        for begin in (None, start):
            outputs = part.outputs(vectors.test, part.solve(begin).delta)
            expected = exact.analysis.method.refitted(exact.test, keep)
            assert relative(outputs, expected) < 1e-8
    for order in random_orders(30, 2, 0):
        assert solved.errors(order, SHARES) == exact.errors(order, SHARES)
    assert 0 < solved.worst <= 1e-11
    assert solved.passes > 20


def test_to_the_usual_tolerance_errors_differ_by_little(vectors: Task) -> None:
    exact, solved = both(vectors, head="random", tol=TOL)
    order = random_orders(30, 1, 1)[0]
    gaps = np.array(solved.errors(order, SHARES)) - np.array(exact.errors(order, SHARES))
    assert np.abs(gaps).max() <= 2 / 60
    assert solved.solve_report() == {"refits": "solved", "residual": solved.worst, "passes": solved.passes}
    assert 1e-4 < solved.worst <= TOL


def test_curvature_of_a_part_is_that_of_its_share(vectors: Task) -> None:
    _, solved = both(vectors)
    problem = solved.problem
    half = problem.among(torch.arange(0, 30, 2)).curvature
    assert problem.curvature is not None
    assert half is not None
    v = torch.randn_like(problem.quadratic.zero_body())
    torch.testing.assert_close(half.solve(v, Ridge(3.0, 3.0)), 2 * problem.curvature.solve(v, Ridge(6.0, 6.0)))


def test_the_whole_problem_is_left_as_it_was(vectors: Task) -> None:
    _, solved = both(vectors)
    before = solved.problem.quadratic.weights.clone()
    part = solved.problem.among(torch.arange(10))
    assert torch.equal(solved.problem.quadratic.weights, before)
    assert part.quadratic.weights.count_nonzero() == part.fast.weights.count_nonzero() == 10
    expected = without_weight(solved.problem.quadratic, torch.arange(10)).weights
    assert torch.equal(part.quadratic.weights, expected)


def test_the_estimated_ranking_is_close_to_the_exact_one(vectors: Task) -> None:
    exact, solved = both(vectors, head="random", tol=TOL)
    _, validation = informative.parted(vectors, 0)
    truth, found = exact.information(validation), solved.information(validation)
    assert (truth.level, found.level) == ("exact", "estimated")
    ranks = np.stack([i.values.argsort().argsort().numpy() for i in (truth, found)])
    assert np.corrcoef(ranks)[0, 1] > 0.95
    assert 0.3 < float(found.values.sum() / truth.values.sum()) < 3


def test_two_classes_have_one_output_and_large_tasks_are_solved(vectors: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    assert informative.solver_for(vectors) == "dense"
    monkeypatch.setattr(informative, "MOST_PAIRS", 30 * 3 - 1)
    assert informative.solver_for(vectors) == "pcg"
    assert informative.solver_for(small_task(data(40, 2), data(10, 2, seed=1), network())) == "dense"


def test_the_page_of_a_task_that_is_solved(
    task: Task, tiny: Scale, monkeypatch: pytest.MonkeyPatch, carried_out: Callable[..., Any], tmp_path: Path
) -> None:
    monkeypatch.setattr(informative, "MOST_PAIRS", 0)
    cells = summarization.cells([task], tiny)
    planned = [(c.work, c.params.get("draws")) for c in cells]
    assert planned == [("informativeness", 0), ("removal at random", 1), ("removal as measured again", None)]
    assert influence.cells([task], tiny) == cells[:1]
    carried_out("summarization")
    page = (tmp_path / "README.md").read_text()
    assert "the ranking is estimated (by the kernel averaged over the outputs, whose leverages add up to" in page
    assert "refits are solutions of the whole model with a measured relative residual of" in page
    assert page.count("informative dropped, measured again |") == 4  # of two data sets


@pytest.mark.parametrize("classes", [2, 3], ids=["one output", "three outputs"])
def test_measured_again_without_the_kernel(classes: int) -> None:
    """With one output the order is the exact one; with more it is estimated, and its first half is near."""
    task = small_task(*(data(n, classes, signal=0.5, seed=s) for n, s in ((40, 0), (9, 1))), network())
    exact, solved = both(task, head="random")
    _, validation = informative.parted(task, 0)
    for most in (False, True):
        order, found = (m.leaving(validation, most=most) for m in (exact, solved))
        assert sorted(found.tolist()) == list(range(len(found)))
        if classes == 2:
            assert torch.equal(found, order)
        else:
            half = len(order) // 2
            assert len(set(found[:half].tolist()) & set(order[:half].tolist())) > 0.65 * half


def test_curves_of_all_kinds_of_cells_are_joined(task: Task, tiny: Scale) -> None:
    ranked = {"n": 9, "level": "estimated", "note": "", "shares": [0.0, 0.5], "least": [0.1, 0.2], "most": [0.1, 0.4]}
    ranked |= {"random": [], "again": None, "residual": 0.008, "passes": 30, "ids": [], "information": []}
    alone = {"random": [[0.1, 0.3], [0.1, 0.5]], "residual": 0.009, "passes": 12}
    again = {"again": {"least": [0.1, 0.15], "most": [0.1, 0.45]}, "residual": 0.007, "passes": 10}
    cells = {"informativeness": ranked, "removal at random": alone, "removal as measured again": again}
    done = [Done(c, cells[c.work], 1.0) for c in _cells(task, tiny)]
    curves = summarization.curves(Results([task], tiny, done), task.name)
    assert curves["random"] == pytest.approx([0.1, 0.4])
    assert curves["random_deviation"] == pytest.approx([0.0, 0.02**0.5])
    assert (curves["residual"], curves["passes"], curves["draws"]) == (0.009, 52, 2)
    assert curves["again"] == again["again"]


def _cells(task: Task, scale: Scale) -> list[Any]:
    exact = summarization.cells([task], scale)[0]
    others = ("removal at random", "removal as measured again")
    return [exact, *(type(exact)(work, task.name, dict(exact.params)) for work in others)]


def test_information_by_kfac_is_its_formula(vectors: Task) -> None:
    """E_val ‖J_val P⁻¹ J_iᵀ e_i‖² with dense Jacobians and a dense P."""
    images, validation = informative.parted(vectors, 0)
    _, model = both(vectors, head="random", draws=None)
    q = model.problem.quadratic
    curvature = model.problem.curvature
    assert curvature is not None
    p = Preconditioner(head_block(q, model.problem.features), curvature)
    inverse = torch.stack([p.solve(e, q) for e in torch.eye(q.size, dtype=torch.float64)], 1)
    train, r, _ = rows(q)
    seen = replace(q, inputs=model.problem.inputs_of(validation), fold=q.fold[: len(validation)])
    seen = replace(seen, targets=q.targets[: len(validation)], weights=q.weights[: len(validation)])
    val = rows(seen)[0].flatten(0, 1)
    e = r - torch.einsum("ncd,d->nc", train, model.whole.delta)
    moved = torch.einsum("ncd,nc->nd", train, e) @ inverse.T
    expected = (moved @ val.T).square().sum(1) / len(validation)
    found = kfac_information(model, validation, probes=None)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
    drawn = kfac_information(model, validation, probes=400)
    assert relative(drawn, expected) < 0.2
    exact, _ = both(vectors, head="random", draws=None)
    torch.testing.assert_close(kfac_information(exact, validation, probes=None), expected, rtol=1e-6, atol=1e-8)
    order = torch.argsort(torch.argsort(exact.information(validation).values)).double()
    assert float(torch.corrcoef(torch.stack([order, found.argsort().argsort().double()]))[0, 1]) > 0.5
