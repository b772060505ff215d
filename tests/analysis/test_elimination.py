"""Who leaves first: every step is that of real solutions without what has left, and of two copies one stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dense import ridge_regression
from fits import FIXED, classifier, data
from lqf import LQFError
from lqf.analysis import elimination
from lqf.analysis.by_iteration import ByIteration
from lqf.analysis.elimination import order_of_leaving
from lqf.analysis.units import Units
from lqf.kernels.cross import averaged_cross, body_cross
from lqf.kernels.ridge import KernelRidge
from lqf.reports.summary import summarize

N, MU = 12, 0.3


@dataclass
class Ridge:
    """Ridge regression with features of every row, solved in the primal again and again.

    Rows are (sample, view, output of the kernel); several columns share the kernel.
    """

    z: Tensor  # (N, V, c, p)
    r: Tensor  # (N, V, c, k)
    s: Tensor  # (N, V, c)
    queries: Tensor  # (Q, c, p)

    @classmethod
    def random(cls, views: int, outputs: int, columns: int, width: int) -> Ridge:
        g = torch.Generator().manual_seed(views + 10 * outputs + width)
        shape = (N, views, outputs)
        made = [torch.randn(*s, generator=g, dtype=torch.float64) for s in ((*shape, width), (*shape, columns))]
        weights = torch.rand(N, 1, 1, generator=g, dtype=torch.float64).expand(shape) + 0.5
        return cls(*made, weights, torch.randn(5, outputs, width, generator=g, dtype=torch.float64))

    @property
    def images(self) -> Tensor:
        """The training samples as images: means over their views."""
        return self.z.mean(1)

    def predictions(self, keep: list[int], images: Tensor) -> Tensor:
        z, r, s = (t[keep].flatten(0, 2) for t in (self.z, self.r, self.s))
        return images @ ridge_regression(z, r, s, MU)

    def greedy(self, units: Units, own: bool, size: int, most: bool) -> list[int]:
        """By a solution without every unit, in every step."""
        images, gone = self.images if own else self.queries, []
        while len(units) - len(gone) > size:
            values = {}
            for u in set(range(len(units))) - set(gone):
                here = [i for i in range(N) if int(units.member[i]) not in gone]
                without = [i for i in here if int(units.member[i]) != u]
                change = (self.predictions(here, images) - self.predictions(without, images)).square().flatten(1).sum(1)
                values[u] = float(change[units.member != u].sum() if own else change.sum())
            gone += sorted(values, key=lambda u: -values[u] if most else values[u])[:size]
        return gone + sorted(set(range(len(units))) - set(gone))

    def order(self, units: Units, own: bool, size: int, most: bool) -> list[int]:
        weights = self.s.flatten()
        ridge = KernelRidge.from_features(self.z.flatten(0, 2), weights)
        r = self.r.flatten(0, 2)
        p = None if own else ridge.dual((self.queries.flatten(0, 1) @ self.z.flatten(0, 2).T).T, MU).T
        how: dict[str, Any] = {"n_views": self.z.shape[1], "most": most, "steps": -(-len(units) // size)}
        return order_of_leaving(ridge, MU, ridge.residual(r, MU), units, p, **how).tolist()


ALONE = Units.of([str(i) for i in range(N)])
UNEVEN = Units.of(ALONE.ids, ["a", "b", "a", "c", "d", "e", "b", "f", "g", "a", "h", "i"])


@pytest.mark.parametrize("most", [False, True], ids=["least", "most"])
@pytest.mark.parametrize("own", [False, True], ids=["others", "training samples"])
@pytest.mark.parametrize(
    ("views", "outputs", "columns", "width"),
    [(1, 1, 3, 40), (2, 1, 2, 40), (1, 1, 3, 5), (1, 3, 1, 60), (2, 2, 1, 7)],
    ids=["shared", "views", "thin", "pairs", "views of pairs, thin"],
)
def test_every_step_is_that_of_solutions_without_what_has_left(
    views: int, outputs: int, columns: int, width: int, own: bool, most: bool
) -> None:
    ridge = Ridge.random(views, outputs, columns, width)
    for units, size in ((ALONE, 1), (ALONE, 3), (UNEVEN, 1), (UNEVEN, 2)):
        assert ridge.order(units, own, size, most) == ridge.greedy(units, own, size, most)


def test_changes_are_held_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    ridge = Ridge.random(2, 1, 2, 40)
    whole = [ridge.order(ALONE, own, 1, False) for own in (False, True)]
    monkeypatch.setattr(elimination, "ENTRIES", 60)
    assert [ridge.order(ALONE, own, 1, False) for own in (False, True)] == whole


def test_too_many_rows_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elimination, "available_bytes", lambda _: 1000)
    with pytest.raises(LQFError, match=r"needs 0\.0 GB for 12 rows"):
        Ridge.random(1, 1, 1, 3).order(ALONE, True, 1, False)


@pytest.mark.parametrize("solver", ["dense", "head"])
def test_the_first_to_leave_are_the_least_informative(solver: str) -> None:
    x, y = data(18)
    ridge = FIXED if solver == "dense" else {"weight_decay": 0.1}
    analysis = classifier(solver=solver, **ridge).fit(x, y).analyse(x)
    for most in (False, True):
        values = analysis.information().values
        assert analysis.leaving(most=most, steps=6)[:3].tolist() == values.argsort(descending=most)[:3].tolist()


def test_with_one_output_the_averaged_kernel_is_the_exact_one() -> None:
    x, y = data(N, 2)
    well = {"tol": 1e-7, "max_passes": 400, **FIXED}
    model = classifier(solver="pcg", loo="none", **well).fit(x, y, np.random.default_rng(3).uniform(0.5, 2, N))
    new = data(5, 2, seed=7)[0]
    solved, exact = model.analyse(x), model.analyse(x, method="dense")
    assert isinstance(solved.method, ByIteration)
    for images in (None, new):
        assert solved.leaving(images).tolist() == exact.leaving(images).tolist()


def test_the_averaged_kernel_with_other_images_is_the_mean_over_signs() -> None:
    x, y = data(N)
    analysis = classifier(solver="pcg", loo="none", **FIXED).fit(x, y).analyse(x)
    method = analysis.method
    assert isinstance(method, ByIteration)
    problem, side = method.problem.quadratic, method._asked(analysis.queries(data(4, seed=7)[0]))
    signs = torch.tensor([[1.0, 1, -1], [-1, 1, 1]])
    whole = body_cross(problem, side.inputs, budget=1 << 28).view(4, 3, N, 3)
    mean = torch.einsum("rc,qcnd,rd->qn", signs.to(whole), whole, signs.to(whole)) / 6
    for budget in (1 << 28, 1 << 12):
        torch.testing.assert_close(body_cross(problem, side.inputs, signs, budget=budget), mean)
    head = torch.ones(4, N) + side.features @ method.problem.features.T
    found = averaged_cross(problem, method.problem.features, side, signs, budget=1 << 28)
    torch.testing.assert_close(found, head.double() + mean)


@pytest.mark.parametrize("solver", ["dense", "head", "pcg"])
def test_of_two_copies_a_summary_keeps_one(solver: str) -> None:
    x, y = data(9)
    ridge = {"weight_decay": 1e-3} | ({} if solver == "head" else {"body_weight_decay": 1e-2})
    twice, labels = np.concatenate([x, x]), np.concatenate([y, y])
    model = classifier(solver=solver, head="random", loo="none", **ridge).fit(twice, labels)
    summary = summarize(model.analyse(twice, labels), 0.5)
    once = sorted(i % 9 for i in summary.kept)
    assert once[:9] == list(range(9))
    assert summary.level == ("estimated" if solver == "pcg" else "exact")


def test_kfac_refuses_to_say_who_leaves() -> None:
    x, y = data(9)
    model = classifier(solver="pcg", loo="none", **FIXED).fit(x, y)
    with pytest.raises(LQFError, match="method='dense' or method='pcg'"):
        model.analyse(x, method="kfac").leaving()
