"""In which order samples leave a training set: by their information, measured again as others go.

Of two copies of an image each adds nothing to the other, and both together much: a ranking made once lets both
go. With C = I − H over the rows scaled by √s, e their scaled residuals and R = P/√s (P: how some images answer to the
training targets), the outputs of these images change by −R_T C_TT⁻¹ e_T when a unit T leaves. When rows D have left, k
staying, the problem of the others has

    X = C_DD⁻¹ [C_Dk  e_D],      C ← C_kk − C_kD X_C,      R ← R_k − R_D X_C,      e ← e_k − C_kD X_e,

so that all steps together cost about as much as one factorisation.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat

import torch
from torch import Tensor

from lqf.analysis.units import Units
from lqf.errors import LQFError
from lqf.kernels.ridge import KernelRidge, by_size
from lqf.runtime.memory import available_bytes

STEPS = 20
"""Equal parts in which samples leave."""
ENTRIES = 1 << 24
"""Changes of outputs that are held at a time."""


def order_of_leaving(
    ridge: KernelRidge,
    mu: float,
    e: Tensor,
    units: Units,
    p: Tensor | None = None,
    *,
    n_views: int = 1,
    most: bool = False,
    steps: int = STEPS,
) -> Tensor:
    """(U,) numbers of the units, the first to leave first.

    Args:
        ridge: the factorised kernel over m rows: equally many of every sample, by sample and view.
        mu: its ridge strength.
        e: (m, k) residuals at the optimum.
        units: who leaves together.
        p: (Q, m) how the outputs of some images, on which information is measured, answer to the rows' targets; None:
            it is measured on all training samples, but for a unit's own as long as it is there.
        n_views: of every sample.
        most: the most informative first, not the least.
        steps: parts after each of which information is measured again.
    """
    c, r, e, owner = _begun(ridge, mu, e, units, p, n_views)
    each = len(e) // len(units.ids)
    left, member, gone = torch.arange(len(units)), units.member, []
    size = -(-len(units) // steps)
    while len(left) > size:
        place = torch.full((len(units),), -1)
        place[left] = torch.arange(len(left))
        values = _information(c, r, e, place[member], None if owner is None else place[units.member[owner]])
        first = torch.argsort(-values if most else values, stable=True)[:size]
        gone.append(left[first])
        leaves = torch.isin(place[member], first)
        c, r, e = _without(c, r, e, leaves.repeat_interleave(each).to(c.device))
        member, left = member[~leaves], left[~torch.isin(left, left[first])]
    return torch.cat([*gone, left])


def information(
    ridge: KernelRidge, mu: float, e: Tensor, units: Units, p: Tensor | None = None, *, n_views: int = 1
) -> Tensor:
    """(U,) Σ over images of ‖f − f₋S‖², with all samples there; arguments as of `order_of_leaving`."""
    c, r, e, owner = _begun(ridge, mu, e, units, p, n_views)
    return _information(c, r, e, units.member, None if owner is None else units.member[owner])


def _begun(
    ridge: KernelRidge, mu: float, e: Tensor, units: Units, p: Tensor | None, n_views: int
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """C, R and e of all rows, and the samples whose outputs the rows of R are, where they are training samples."""
    root, e, n = ridge.weights.sqrt(), e.to(ridge.q), len(units.ids)
    _check_memory(len(e), len(e) // n_views if p is None else len(p), e.device)
    c = ridge.left_out_block(torch.arange(len(e), device=e.device)[None], mu)[0]
    if p is not None:
        return c, p.to(c) / root, root[:, None] * e, None
    r = (torch.eye(len(c)).to(c) - c).view(n, n_views, -1, len(c)) / root.view(n, n_views, -1, 1)
    owner = torch.arange(n).repeat_interleave(len(e) // n // n_views)
    return c, r.mean(1).flatten(0, 1), root[:, None] * e, owner


def _without(c: Tensor, r: Tensor, e: Tensor, leaves: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """C, R and e of the problem without the rows that leave (a mask)."""
    d, k = leaves.nonzero()[:, 0], (~leaves).nonzero()[:, 0]
    across = c[d][:, k]
    x = torch.linalg.solve(c[d][:, d], torch.cat([across, e[d]], 1))
    x, of_e = x[:, : len(k)], x[:, len(k) :]
    return c[k][:, k] - across.T @ x, r[:, k] - r[:, d] @ x, e[k] - across.T @ of_e


def _information(c: Tensor, r: Tensor, e: Tensor, member: Tensor, owner: Tensor | None) -> Tensor:
    """(U,) Σ over the rows of R of the squared change when a unit leaves.

    C, R and e are those of the rows that are left, ``member`` (N,) has the unit of every sample that is left, and
    ``owner`` (Q,) the unit that a row of R belongs to, or −1: what a unit does to itself does not count.
    """
    n, each = len(member), len(e) // len(member)
    left_out = torch.empty_like(e)
    for rows in by_size(member.repeat_interleave(each).to(c.device), len(e)):
        left_out[rows] = torch.linalg.solve(c[rows[:, :, None], rows[:, None, :]], e[rows])
    at_once = max(1, ENTRIES // (n * e.shape[1]))
    here = Units(tuple(map(str, range(int(member.max()) + 1))), member, tuple(map(str, range(n))))
    owners = repeat(None) if owner is None else owner.split(at_once)
    return squared_changes(zip(r.split(at_once), owners, strict=False), left_out, here)


def squared_changes(pieces: Iterable[tuple[Tensor, Tensor | None]], left_out: Tensor, units: Units) -> Tensor:
    """(U,) Σ over images of ‖Σ_T p_T e_T^loo‖² for every unit T.

    Args:
        pieces: responses (Q, m) of some outputs to the m rows, and the units (Q,) that these outputs belong to, −1 for
            none: what a unit does to itself does not count. None: they are those of other images.
        left_out: (m, k) residuals of the rows, each unit left out in turn.
        units: of the samples, which have equally many rows each.
    """
    n, total = len(units.ids), torch.zeros(len(units), dtype=torch.float64)
    left_out = left_out.reshape(n, -1, left_out.shape[1])
    for p, owner in pieces:
        change = torch.einsum("qnv,nvk->nqk", p.reshape(len(p), n, -1), left_out)
        squared = units.add_up(change).square().sum(2).cpu()  # (U, Q)
        if owner is not None:
            known = (owner >= 0).nonzero()[:, 0]
            squared[owner[known], known] = 0
        total += squared.sum(1)
    return total


def _check_memory(rows: int, answers: int, device: torch.device) -> None:
    need, free = 8 * 2 * rows * (rows + answers), available_bytes(device)
    if need > free:
        raise LQFError(
            f"information needs {need / 2**30:.1f} GB for {rows} rows and {free / 2**30:.1f} GB are free; give fewer "
            "images, or use a machine with more memory"
        )
