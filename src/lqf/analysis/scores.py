"""How a few sums of outputs answer to the training targets: first an estimate, then as accurate as an answer needs.

With the head eliminated, as in `lqf.analysis.responses`, A v = b is the body's problem for a right-hand side, of which
the head has the part g, and h = S Z̃ (Z̃ᵀSZ̃ + μ_head)⁻¹ g is what the head alone does. Along z = B⁻¹ b, B being EK-FAC,
the best step has a closed form, and the response after it,

    P ≈ h + α S C J_body z,        α = bᵀz / zᵀA z,

takes one pass backward (for b) and one forward. Conjugate gradients go on from there, until what is left is a small
part of P/√s: by the energy norm, which bounds it (`lqf.solvers.energy`) but counts changes of the weights that no
training image sees, too, or by what the last steps have changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from lqf.curvature import KFAC
from lqf.linear import head_products
from lqf.linear.encoded import EncodedInputs
from lqf.linear.problem import QuadraticProblem
from lqf.runtime.precision import matmul_precision
from lqf.solvers.block_cg import FirstStep, conjugate_gradients
from lqf.solvers.pcg import body_preconditioner, trusted_from
from lqf.solvers.schur import SchurComplement, columns, in_range
from lqf.utils.progress import SILENT, Progress

START = 1.5
"""Passes before the iteration: forward and back for the right-hand side, and forward for the estimate."""
SLOWEST = 0.99
"""Ratio of two steps, at most: beyond it what is still to come cannot be told from them."""
FEWEST = 3
"""Passes below which an answer is its estimate: that took one, and to see how good it is and go on takes two."""


@dataclass(frozen=True)
class Sides:
    """Right-hand sides of k sums.

    Attributes:
        head: g (k, C, p+1).
        h: (k, n, C) what the head alone does, float64.
        b: (k, D) what is left for the body.
    """

    head: Tensor
    h: Tensor
    b: Tensor


@dataclass(frozen=True)
class Response:
    """P of k sums, and the weights it comes from.

    Attributes:
        p: (k, n, C), float64.
        body: (k, D).
        along: (k, n, C) J_body body with the head eliminated.
        gap: the worst estimated error of P/√s, relative to it; NaN where it is not known.
        passes: over the training rows, forward and backward being one.
        first: the step that led here, of an estimate.
    """

    p: Tensor
    body: Tensor
    along: Tensor
    gap: float
    passes: float
    first: FirstStep | None = None

    @classmethod
    def all_of(cls, parts: Sequence[Response]) -> Response:
        """Of all sums, from those of some."""
        p, body, along = (torch.cat([getattr(r, name) for r in parts]) for name in ("p", "body", "along"))
        return cls(p, body, along, max(r.gap for r in parts), sum(r.passes for r in parts))


@dataclass(frozen=True)
class Scores:
    """Solves for sums of outputs.

    Attributes:
        schur: the training problem without its head.
        curvature: K-FAC of the body.
        progress: where to report.
        tf32: whether passes may use it: its error is a small part of what an answer bears.
    """

    schur: SchurComplement
    curvature: KFAC | None
    progress: Progress = SILENT
    tf32: bool = False

    @property
    def problem(self) -> QuadraticProblem:
        """The training problem."""
        return self.schur.problem

    def sides(self, asked: EncodedInputs, u: Tensor) -> Sides:
        """Of the sums of outputs with weights u (k, rows, C): one pass backward."""
        problem, mu = self.problem, self.problem.ridge.head
        with matmul_precision(fast=False):
            g = head_products.vjp(columns(u), asked.features)  # (kC, p+1)
            h = self.schur.ridge.dual(head_products.jvp(self.schur.features, g), mu)  # (n, kC)
            h = h.unflatten(1, (len(u), -1)).transpose(0, 1)  # (k, n, C)
            own = in_range(problem, lambda: asked.body_vjp(problem.model, u.to(problem.targets)), tf32=self.tf32)
            through = in_range(problem, lambda: problem.body_vjp(h.to(problem.targets)), tf32=self.tf32)
        return Sides(g.unflatten(0, (len(u), -1)), h, own - through)

    def estimated(self, sides: Sides) -> Response:
        """After the best step along B⁻¹ b: one pass forward."""
        problem = self.problem
        z = self._precondition(sides.b)
        with matmul_precision(fast=False):
            jz = in_range(problem, lambda: problem.body_jvp(z), tf32=self.tf32)
        left = self.schur.eliminated(jz)
        curved = (problem.weights[:, None] * jz * left).double().sum((1, 2))
        curved += (z.double() * (problem.body_ridge * z).double()).sum(1)
        rz = (sides.b.double() * z.double()).sum(1)
        step = rz / curved.clamp_min(1e-300)
        left = left.double() * step[:, None, None]
        first = FirstStep(z, sides.b, rz, rz * step)
        return Response(self._whole(sides, left), z * step[:, None].to(z), left, float("nan"), 1.0, first)

    def solved(self, sides: Sides, start: Response, tol: float, most: int) -> Response:
        """From an estimate on, until P/√s is known to ``tol`` of its size, or after ``most`` passes, with those of the
        estimate.

        How good the estimate is already is seen by one pass backward; where none is left, it stays as it is.
        """
        if most < FEWEST:
            return replace(start, gap=float("inf"))
        problem, x = self.problem, start.body
        size = (start.p.square() / problem.weights.double()[:, None].clamp_min(1e-300)).sum((1, 2)).sqrt()
        products = _Products(self.schur, x, start.along.clone(), size, self.tf32)
        with matmul_precision(fast=False):
            s = problem.weights[:, None]
            back = in_range(problem, lambda: problem.body_vjp(s * start.along.to(s)), tf32=self.tf32)
            reached = conjugate_gradients(
                products,
                self._precondition,
                x,
                sides.b - back - problem.body_ridge * x,
                size,
                tol=tol,
                energy=size,
                least=trusted_from(self.curvature),
                max_passes=max(0, most - 2),
                refresh=most + 2,
                keep=products.keep,
                arrived=lambda: products.error <= tol,
                agree=problem.inputs.world.agree,
                certify=False,
                first=start.first,
                progress=self.progress,
            )
        assert reached.energy is not None
        gap, passes = float(torch.minimum(reached.energy, products.error).max()), START + reached.passes
        return Response(self._whole(sides, products.along), reached.x, products.along, gap, passes)

    def weights(self, sides: Sides, response: Response) -> Tensor:
        """δ (k, D') of head and body, whose outputs the right-hand sides are held against.

        The head is the best one for its body: V = (g − Z̃ᵀh)/μ_head − Z̃ᵀ S (…)⁻¹ Z̃ J_body v. No pass.
        """
        k, features, mu = len(sides.b), self.schur.features, self.problem.ridge.head
        h, left = (columns(t.double()) for t in (sides.h, response.along))
        taken = head_products.vjp(self.problem.weights.double()[:, None] * left, features).unflatten(0, (k, -1)) / mu
        own = (sides.head.double() - head_products.vjp(h, features).unflatten(0, (k, -1))) / mu
        return torch.cat([(own - taken).flatten(1).to(response.body), response.body], 1)

    def _precondition(self, r: Tensor) -> Tensor:
        return body_preconditioner(self.curvature, self.problem)(r)

    def _whole(self, sides: Sides, along: Tensor) -> Tensor:
        return sides.h + self.problem.weights.double()[:, None].to(sides.h) * along.to(sides.h)


@dataclass(frozen=True, eq=False)
class Begun:
    """Solves for one sum of outputs of every image, that can go on; images in blocks that fit into memory.

    Attributes:
        weights: (Q, C) of the sums.
        sides: of every block.
        quick: the estimates.
        done: as accurate as was wanted; None: not yet.
    """

    weights: Tensor
    sides: Sequence[Sides]
    quick: Sequence[Response]
    done: Sequence[Response] | None = None

    @classmethod
    def of(cls, scores: Scores, asked: EncodedInputs, weights: Tensor, at_once: int) -> Begun:
        """With the estimates."""
        sides = [scores.sides(asked, u) for u in asked.sums(weights).split(at_once)]
        return cls(weights, sides, [scores.estimated(side) for side in sides])

    def finished(self, scores: Scores, tol: float, most: int) -> Begun:
        """Solved, from the estimates on."""
        if self.done is not None:
            return self
        started = zip(self.sides, self.quick, strict=True)
        return replace(self, done=[scores.solved(side, start, tol, most) for side, start in started])

    def response(self, *, quick: bool) -> Response:
        """Of all images."""
        return Response.all_of(self.quick if quick or self.done is None else self.done)


@dataclass
class _Products:
    """A of the problem, whose residuals are the running ones; what an iterate does to the training rows is added up on
    the way, so that it takes no pass of its own.

    ``error`` (k,): what the last step did to P/√s, relative to its ``size``, or what all further ones would do together
    if each did as much less than the one before as the last two have; infinite before there are two.
    """

    schur: SchurComplement
    x: Tensor
    along: Tensor
    size: Tensor
    tf32: bool
    error: Tensor = field(init=False)
    _p: Tensor | None = None
    _left: Tensor | None = None

    def __post_init__(self) -> None:
        self.error, self._last = torch.full_like(self.size, torch.inf), self._norm(self.along)

    def product(self, v: Tensor) -> Tensor:
        problem = self.schur.problem
        jv = in_range(problem, lambda: problem.body_jvp(v), tf32=self.tf32)
        left = self.schur.eliminated(jv)
        self._p, self._left = v.clone(), left.double()
        weighted = problem.weights[:, None] * left.to(jv)
        return problem.body_ridge * v + in_range(problem, lambda: problem.body_vjp(weighted), tf32=self.tf32)

    def keep(self, x: Tensor, passes: int, last: bool = False) -> None:
        """After every step x' = x + α p, of those right-hand sides that took it."""
        if self._p is None or self._left is None:
            return
        moved = x - self.x
        on = moved.any(1).nonzero()[:, 0]
        if len(on) == len(self._p):
            p = self._p.double()
            step = (moved[on].double() * p).sum(1) / p.square().sum(1)
            change = step[:, None, None] * self._left
            self.along[on] += change
            done, before = self._norm(change), self._last[on]
            ratio = (done / before.clamp_min(1e-300)).clamp_max(SLOWEST)
            self.error[on] = done * (ratio / (1 - ratio)).clamp_min(1) / self.size[on]
            self._last[on] = done
            self.x, self._p, self._left = x, None, None

    def _norm(self, along: Tensor) -> Tensor:
        """(k,) of a change of P/√s."""
        return (along.square() * self.schur.problem.weights.double()[:, None]).sum((1, 2)).sqrt()

    def residual(self, x: Tensor, which: Tensor) -> Tensor:
        raise AssertionError("running residuals are trusted")
