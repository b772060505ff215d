"""A fitted model changed so that its outputs satisfy linear constraints: the optimum of the constrained problem.

    min ½ (δ − δ*)ᵀ H (δ − δ*)   subject to   l ≤ U f(δ) ≤ u,     δ = δ* − H⁻¹ Jᵀ Uᵀ λ.

S = U J H⁻¹ Jᵀ Uᵀ is made for the rows that matter alone: equalities, and inequalities once they are violated. A round
measures all outputs, adds the rows that are violated, finds the multipliers λ
(`lqf.changes.constraints.small_program`) and moves the weights; what S does not know to the last digit, the next round
corrects, so that what is reported is measured.

Of a stack f = Σ w_k f_k, whose members' problems are independent of each other, S is the sum of w_k² S_k, and every
member that solves a problem moves by its own H_k. A network that was fine-tuned stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from lqf.changes.constraints.asked import Asked, Directions
from lqf.changes.constraints.conditions import Constraint, Rows
from lqf.changes.constraints.inverse import TOL, Inverse, inverse_of
from lqf.changes.constraints.small_program import Infeasible, SmallProgram
from lqf.data import Images, with_views
from lqf.errors import LQFError
from lqf.fitting import Context, FittedModel, Model, Stack, TrainingProblem
from lqf.fitting.reopen import reopen
from lqf.linear import head_products
from lqf.linear.batch import usual_rows
from lqf.runtime.memory import available_bytes
from lqf.runtime.precision import matmul_precision
from lqf.utils.exactness import Level
from lqf.utils.text import counted

FEASIBLE = {torch.float32: 1e-5, torch.float64: 1e-10}
"""Violation, relative to the scale of the outputs, at which a constraint holds: rounding of a pass."""
ROUNDS = 40
MOST_AT_ONCE = 32
SOLVED_RANK = 1e-6
"""`RANK` of a matrix that iterative solves have made: below it are their errors."""


@dataclass(frozen=True, eq=False)
class Member:
    """One model whose weights move, as part of a sum.

    Attributes:
        model: as it was fitted.
        asked: the images.
        inverse: its H⁻¹.
        at: its weights now.
        weight: its own in the sum.
    """

    model: FittedModel
    asked: Asked
    inverse: Inverse
    at: Directions
    weight: float

    @classmethod
    def of(cls, model: FittedModel, problem: TrainingProblem, images: Sequence[Images], weight: float = 1.0) -> Member:
        """At the optimum of its own problem, to more digits than a fit needs."""
        inverse = inverse_of(model, problem)
        like, head = problem.quadratic.targets, model.head.double()
        if problem.model.around_w0 and not model.head_alone:
            mean = problem.model.of_all_features(problem.model.heads.mean(0))
            head = head - mean.double().cpu()
        at = Directions(head[None].to(like.device), model.delta.to(like)[None])
        if inverse.level == "solved":
            solution = problem.solve(at.body[0], tol=TOL[like.dtype])
            v, body = problem.model.split(solution.delta)
            at = Directions(v.double()[None], body[None])
        member = cls(model, Asked.of(model, problem, images), inverse, at, weight)
        return member if inverse.level == "solved" else replace(member, at=at.plus(inverse.solve(member._slope(at))))

    @property
    def problem(self) -> TrainingProblem:
        """Its training problem."""
        return self.asked.problem

    def outputs(self) -> Tensor:
        """Its part of the sum, (N·C,)."""
        return self.weight * self.asked.outputs(self.at)

    def responses(self, u: Tensor) -> Tensor:
        """w² J H⁻¹ Jᵀ u_j (k, N·C)."""
        return torch.cat([self._responses(some) for some in u.split(self._at_once)])

    def _responses(self, u: Tensor) -> Tensor:
        return self.weight**2 * self.asked.jvp(self.inverse.solve(self.asked.vjp(u)))

    @property
    def _at_once(self) -> int:
        """Right-hand sides that are solved side by side: eight vectors each fit into an eighth of the memory."""
        one = 8 * max(self.at.body.nbytes + self.at.head.nbytes, 1)
        return max(1, min(MOST_AT_ONCE, available_bytes(self.at.head.device) // (8 * one)))

    def moved(self, u: Tensor) -> Member:
        """With δ − w H⁻¹ Jᵀ u."""
        step = self.inverse.solve(self.asked.vjp(self.weight * u[None]))
        return replace(self, at=self.at.plus(step, -1.0))

    def gap(self, u: Tensor) -> float:
        """‖b − Hδ − w Jᵀu‖/‖b‖: what is left of the optimum's condition, measured on the data."""
        pull, own = self.asked.vjp(self.weight * u[None]), self._slope(self.at)
        zero = Directions(torch.zeros_like(self.at.head), torch.zeros_like(self.at.body))
        return float(own.plus(pull, -1.0).norms() / self._slope(zero).norms().clamp_min(1e-300))

    def _slope(self, at: Directions) -> Directions:
        """b − Hδ."""
        problem = self.problem
        if self.model.head_alone:
            z, s = problem.features, problem.quadratic.weights.double()[:, None]
            e = problem.head.residual - head_products.jvp(z, at.head[0])
            return Directions((head_products.vjp(s * e, z) - problem.ridge.head * at.head[0])[None], at.body)
        like = problem.quadratic.targets
        with matmul_precision(fast=False):
            gap = problem.measured.negative_gradient(torch.cat([at.head.flatten().to(like), at.body[0]]))
        head, body = problem.model.split(gap)
        return Directions(head.double()[None], body[None])

    def changed(self) -> FittedModel:
        """The model with these weights."""
        head, linear = self.at.head[0], self.problem.model
        if linear.around_w0 and not self.model.head_alone:
            head = head + linear.of_all_features(linear.heads.mean(0)).double()
        return replace(
            self.model,
            head=head.cpu().to(self.model.head.dtype),
            delta=self.at.body[0].cpu().to(self.model.delta.dtype),
            loo=None,
            tried={},
            known=None,
        )


@dataclass(eq=False)
class _Solving:
    """All rows of all constraints, and the sum that has to satisfy them."""

    members: list[Member]
    fixed: Tensor  # (N·C,) outputs of those that do not move
    weights: Tensor  # (m, N·C), sparse
    lower: Tensor
    upper: Tensor
    tolerance: float
    rounds: int = 0
    lam: Tensor = field(init=False)  # (m,)
    on: Tensor = field(init=False)  # (k,) numbers of the rows that matter
    columns: Tensor = field(init=False)  # (k, N·C) J H⁻¹ Jᵀ Uᵀ of these

    def __post_init__(self) -> None:
        self.lam = torch.zeros(len(self.lower), dtype=torch.float64)
        self.on, self.columns = torch.zeros(0, dtype=torch.long), self.fixed.new_zeros(0, len(self.fixed))

    def values(self) -> Tensor:
        """(m,) U f."""
        f = self.fixed + torch.stack([m.outputs() for m in self.members]).sum(0)
        return torch.sparse.mm(self.weights, f[:, None])[:, 0]

    def violations(self, values: Tensor) -> Tensor:
        """(m,) by how much each row is violated."""
        return torch.maximum(self.lower - values, values - self.upper).clamp_min(0)

    def solve(self) -> Tensor:
        """(m,) values at the constrained optimum."""
        self._add((self.lower == self.upper).nonzero()[:, 0])
        while True:
            values = self.values()
            broken = self.violations(values) > self.tolerance
            if not bool(broken.any()) or self.rounds == ROUNDS:
                return values
            broken[self.on] = False
            self._add(broken.nonzero()[:, 0])
            self._step(values)
            self.rounds += 1

    def _add(self, rows: Tensor) -> None:
        """With J H⁻¹ Jᵀ Uᵀ of further rows."""
        if len(rows):
            u = self.weights.index_select(0, rows).to_dense()
            self.columns = torch.cat([self.columns, torch.stack([m.responses(u) for m in self.members]).sum(0)])
            self.on = torch.cat([self.on, rows])

    def _step(self, values: Tensor) -> None:
        """New multipliers of the rows that matter, and the weights that follow."""
        on = self.on
        u = self.weights.index_select(0, on)
        schur = torch.sparse.mm(u, self.columns.T)
        schur = (schur + schur.T) / 2
        at_zero = values[on] + schur @ self.lam[on]
        rank = {} if _level(self.members) == "exact" else {"rank": SOLVED_RANK}
        try:
            new = SmallProgram(schur, at_zero, self.lower[on], self.upper[on], **rank).multipliers()
        except Infeasible as conflict:
            raise Infeasible(on[conflict.rows].tolist()) from None
        step = torch.sparse.mm(u.t(), (new - self.lam[on])[:, None])[:, 0]
        self.members = [m.moved(step) for m in self.members]
        self.lam[on] = new

    def gap(self) -> float:
        """Of the optimum's condition, the worst of all members."""
        u = torch.sparse.mm(self.weights.t(), self.lam[:, None])[:, 0]
        return max(m.gap(u) for m in self.members)


def constrain(
    model: Model, constraints: Sequence[Constraint], rows: Sequence[Rows], train: Images, context: Context
) -> Model:
    """The model at the optimum of its problem under constraints; its report says how far each was violated before, what
    holds now, and at which price.

    Args:
        model: fitted; its training problem is opened again.
        constraints: as they were asked for.
        rows: what each stands for.
        train: the training images.
        context: device, progress and rows per batch.
    """
    solving = _opened(model, rows, train, context)
    before = solving.violations(solving.values())
    try:
        values = solving.solve()
    except Infeasible as conflict:
        raise _refusal(conflict.rows, rows) from None
    after, level = solving.violations(values), _level(solving.members)
    if float(after.max()) > solving.tolerance:
        raise LQFError(f"constraints are still violated by {float(after.max()):.2g} after {ROUNDS} rounds; loosen them")
    report = {
        "constraints": _each(constraints, rows, before, after, solving.lam),
        "rows": len(before),
        "active": int((solving.lam != 0).sum()),
        "violation_before": float(before.max()),
        "violation": float(after.max()),
        "holds": True,
        "relative_residual": solving.gap(),
        "rounds": solving.rounds,
        "level": level,
    }
    return _changed(model, solving.members, report)


def _opened(model: Model, rows: Sequence[Rows], train: Images, context: Context) -> _Solving:
    images = list({id(r.images): r.images for r in rows}.values())
    parts = list(zip(model.members, model.weights, strict=True))
    members = [
        Member.of(m, reopen(m, with_views(train, m.trained_on), context), images, w) for m, w in parts if m.solved and w
    ]
    if not members:
        raise LQFError(
            "a fine-tuned network solves no quadratic problem, so it cannot be constrained; fit a linear model"
        )
    n, c = sum(len(one) for one in images), len(members[0].model.head)
    fixed = torch.zeros(n * c, dtype=torch.float64)
    for m, w in parts:
        if not m.solved and w:
            fixed += w * torch.cat([_outputs(m, one, context) for one in images]).flatten()
    starts = {id(one): c * sum(len(other) for other in images[:k]) for k, one in enumerate(images)}
    return _Solving(
        members,
        fixed,
        torch.cat([_placed(r, starts[id(r.images)], n * c) for r in rows]).coalesce(),
        torch.cat([r.lower for r in rows]),
        torch.cat([r.upper for r in rows]),
        FEASIBLE[context.dtype] * model.alpha,
    )


def _outputs(model: FittedModel, images: Images, context: Context) -> Tensor:
    rows = context.settings.batch_size or usual_rows(context.device)
    own = with_views(images, model.preprocess)
    return model.outputs(own, device=context.device, batch_size=rows, progress=context.progress).double()


def _placed(rows: Rows, start: int, columns: int) -> Tensor:
    """Its weights among the outputs of all images."""
    own = rows.weights.coalesce()
    where = own.indices() + torch.tensor([[0], [start]])
    return torch.sparse_coo_tensor(where, own.values(), (own.shape[0], columns), check_invariants=False)


def _level(members: Sequence[Member]) -> Level:
    return "exact" if all(m.inverse.level == "exact" for m in members) else "solved"


def _each(
    constraints: Sequence[Constraint], rows: Sequence[Rows], before: Tensor, after: Tensor, lam: Tensor
) -> list[dict[str, Any]]:
    """What became of every constraint; a multiplier is what the objective gains per unit of a looser bound."""
    sizes = [len(r.lower) for r in rows]
    parts = zip(constraints, rows, before.split(sizes), after.split(sizes), lam.split(sizes), strict=True)
    out = []
    for constraint, r, was, now, price in parts:
        top = int(price.abs().argmax())
        active = int((price != 0).sum())
        entry = {
            "what": str(constraint),
            "rows": len(was),
            "active": active,
            "violated_before": int((was > 0).sum()),
            "violation_before": float(was.max()),
            "violation": float(now.max()),
            "largest_multiplier": float(price.abs().max()),
        }
        out.append(entry | ({"dearest": r.name(top)} if active else {}))
    return out


def _refusal(numbers: Sequence[int], rows: Sequence[Rows]) -> LQFError:
    names = [name for r in rows for name in map(r.name, range(len(r.lower)))]
    found = [names[i] for i in numbers]
    if len(found) == 1:
        return LQFError(f"no weights satisfy this constraint: {found[0]}; loosen it")
    shown = "; ".join(found[:6]) + (f"; and {len(found) - 6} more" if len(found) > 6 else "")
    return LQFError(f"these constraints contradict each other: {shown}; drop or loosen one of them")


def _changed(model: Model, members: Sequence[Member], report: dict[str, Any]) -> Model:
    """With the new weights; what the fit knew of unseen images does not hold for them."""
    fit, old = model.report, {id(m.model): m.changed() for m in members}
    active = f"{report['active']} of {counted(report['rows'], 'constraint')} active"
    what = (
        f"optimum under constraints: violated by at most {report['violation']:.1e}, {active}, relative residual "
        f"{report['relative_residual']:.1e}"
    )
    new = replace(
        fit.without_errors(),
        level=report["level"],
        certificate=what,
        relative_residual=report["relative_residual"],
        converged=True,
        constraints=report,
    )
    if not isinstance(model, Stack):
        return replace(old[id(model)], report=new)
    inner = tuple(
        replace(old[id(m)], report=replace(m.report.without_errors(), constraints=report)) if id(m) in old else m
        for m in model.members
    )
    return replace(model, members=inner, report=new, loo=None, tried={})
