"""What the iterates of conjugate gradients leave for the head, from the products that are made anyway.

A product with a direction p passes forward, J_body p, and back. A step of length α changes r − J_body x by −α J_body p:
the head that is best at the end, and the residuals there, need no pass of their own.
"""

from __future__ import annotations

from torch import Tensor

from lqf.solvers.schur import SchurComplement


class Followed:
    """A Schur complement by exact products, for one right-hand side.

    Attributes:
        left: (n, C) r − J_body x of the iterate that `keep` or `residual` was given last.
    """

    def __init__(self, schur: SchurComplement, x: Tensor):
        self.schur, self.left = schur, schur.left(x)
        self._x = x
        self._step: tuple[Tensor, Tensor] | None = None

    def product(self, v: Tensor) -> Tensor:
        """A v of one direction (1, D)."""
        out, moved = self.schur.exact_parts(v[0])
        self._step = v[0], moved
        return out[None]

    def residual(self, x: Tensor, which: Tensor) -> Tensor:
        """b − A x of one body (1, D), measured."""
        r = self.schur.residual(x)
        self._x, self.left, self._step = x[0], self.schur.left(x[0]), None
        return r

    def keep(self, x: Tensor, passes: int, last: bool = False) -> None:
        """Follow the last step to the iterate (1, D)."""
        if self._step is None:
            return
        p, moved = (t.double() for t in self._step)
        length = ((x[0] - self._x).double() * p).sum() / (p * p).sum()
        self.left = self.left - (length * moved).to(self.left)
        self._x, self._step = x[0], None
