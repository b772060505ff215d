"""Average or bilinear pooling of the last feature map, by leave-one-out.

Both poolings get their closed-form head. The one whose exact leave-one-out outputs have the lower cross-entropy, each
at its own best ridge strength and temperature, is kept, and everything after goes through it. One pass makes the
average features, the moment of the channels (the reduction) and, where the maps fit into memory, all that the bilinear
features need; otherwise they are another pass.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lqf.backbones import Backbone
from lqf.backbones.average_pool import AveragePool, with_bilinear_pool
from lqf.backbones.bilinear_pool import ChannelMoment, principal_rows
from lqf.errors import LQFError
from lqf.fitting.select_ridge import Choice
from lqf.linear.linearize import Linearization
from lqf.runtime.distributed import World
from lqf.solvers import Head
from lqf.utils.text import byte_count

OWN = "the backbone's own"
MOST_ROWS = {False: 5000, True: 16000}
"""Rows up to which `auto` tries bilinear pooling, on a CPU and on a GPU: its head is factorised over the rows."""

Features = Callable[[Backbone, ChannelMoment | None], Tensor]
"""z (n, p) of all rows under a backbone, in one pass; the moment is added up on the way."""
FromMaps = Callable[[Backbone, nn.Module, list[Tensor]], Tensor]
"""The same from the maps of the batches, in order, by the backbone's pooling."""


@dataclass(frozen=True)
class Pooled:
    """One pooling, with what was computed under it."""

    name: str
    backbone: Backbone
    features: Tensor
    head: Head
    choice: Choice


@dataclass(frozen=True)
class Candidates:
    """Which poolings to try.

    Attributes:
        pool: the backbone's average pooling.
        names: of the poolings.
        channels: to which bilinear pooling reduces.
        note: why one is left out, if one is.
        linearised: whether the reduction may change with the other weights.
    """

    pool: AveragePool | None
    names: tuple[str, ...]
    channels: int
    note: str = ""
    linearised: bool = False

    @property
    def reduces(self) -> bool:
        """Whether bilinear pooling needs a reduction."""
        return self.pool is not None and "bilinear" in self.names and self.channels < self.pool.channels


def candidates(
    asked: str, pool: AveragePool | None, channels: int, name: str, rows: int, item: int, memory: int, cuda: bool
) -> Candidates:
    """What `--pooling` means for a backbone and so much data.

    Args:
        asked: "auto", "avg" or "bilinear".
        pool: the backbone's average pooling.
        channels: most channels of bilinear pooling.
        name: of the backbone.
        rows: n.
        item: bytes per number.
        memory: free bytes.
        cuda: whether on a GPU.
    """
    if pool is None:
        if asked != "auto":
            raise LQFError(
                f"pooling `{asked}` needs a network that ends in an average over its last feature map; "
                f"`{name}` does not, use `auto`"
            )
        return Candidates(None, (OWN,), 0)
    k = min(channels, pool.channels)
    if asked == "bilinear" and pool.positions == 1:
        raise LQFError(
            f"pooling `bilinear` needs several positions in the last feature map, `{name}` has one for images of this "
            "size; give a larger size, or use `avg`"
        )
    if asked != "auto" or pool.positions == 1:
        return Candidates(pool, ("avg" if asked == "auto" else asked,), k)
    need = 3 * rows * (k * (k + 1) // 2) * item + 6 * 8 * rows * rows
    if min(rows, k * (k + 1) // 2) > MOST_ROWS[cuda]:
        return Candidates(
            pool, ("avg",), k, f"bilinear pooling is not tried for {rows:,} rows; --pooling bilinear does"
        )
    if need > memory:
        return Candidates(pool, ("avg",), k, f"bilinear pooling is not tried: it needs {byte_count(need)} of memory")
    return Candidates(pool, ("avg", "bilinear"), k)


def try_poolings(
    wanted: Candidates,
    backbone: Backbone,
    body: Linearization,
    features: Features,
    from_maps: FromMaps,
    judge: Callable[[Tensor], tuple[Head, Choice]],
    world: World,
    room: int,
) -> list[Pooled]:
    """Every pooling that is wanted.

    Args:
        wanted: which.
        backbone: with its own pooling.
        body: the part of it that sees the rows' inputs.
        features: computes them.
        from_maps: the same without a pass.
        judge: features -> closed-form head and its ridge strength by leave-one-out.
        world: the processes that share the rows.
        room: bytes for maps of this process's rows.
    """
    tried, reduction = [], None
    watched = None
    if wanted.pool and wanted.reduces:
        watched = ChannelMoment(body.module.get_submodule(wanted.pool.name), room)
    if watched or "bilinear" not in wanted.names or len(wanted.names) > 1:
        with watched or nullcontext():
            z = features(backbone, watched)
        if wanted.names[0] != "bilinear":
            tried.append(Pooled(wanted.names[0], backbone, z, *judge(z)))
        del z
    if wanted.pool and "bilinear" in wanted.names:
        if watched:
            reduction = _reduction(watched, wanted, world, next(body.module.parameters()).device)
        other = with_bilinear_pool(backbone, wanted.pool.name, reduction, wanted.channels, linearised=wanted.linearised)
        maps = watched and watched.maps
        if all(world.every(maps is not None)):
            z = from_maps(other, other.body.get_submodule(wanted.pool.name), maps or [])
        else:
            z = features(other, None)
        del maps, watched
        tried.append(Pooled("bilinear", other, z, *judge(z)))
    return tried


def _reduction(moment: ChannelMoment, wanted: Candidates, world: World, device: torch.device) -> Tensor:
    """(k, c), the same on every process, one of which may have no rows."""
    assert wanted.pool is not None
    c = wanted.pool.channels
    total = torch.zeros(c, c, dtype=torch.float64, device=device) if moment.sum is None else moment.sum
    return world.spread_(principal_rows(world.sum_(total), wanted.channels).contiguous())


def best(tried: list[Pooled], world: World) -> Pooled:
    """The lowest leave-one-out cross-entropy; the first of equal ones."""
    at = world.first(lambda: min(range(len(tried)), key=lambda i: tried[i].choice.best.loss))
    return tried[at]
