"""Average or bilinear pooling of the last feature map, or both, by leave-one-out.

Every pooling gets its closed-form head. The one whose exact leave-one-out outputs have the lowest cross-entropy, each
at its own best ridge strength and temperature, is kept, and everything after goes through it. One pass makes the
average features, the moment of the channels (the reduction) and, where the maps fit into memory, all that the bilinear
features need; otherwise they are another pass.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from lqf.backbones import Backbone
from lqf.backbones.average_pool import AveragePool, find_average_pool, with_bilinear_pool, with_both_pools
from lqf.backbones.bilinear_pool import ChannelMoment, principal_rows
from lqf.errors import LQFError
from lqf.fitting.encoder import Encoder
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.report import choice_of_pooling
from lqf.fitting.training_set import TrainingSet
from lqf.linear import head_products
from lqf.utils.text import byte_count

OWN = "the backbone's own"
MOST_ROWS = {False: 5000, True: 16000}
"""Rows up to which `auto` tries bilinear pooling, on a CPU and on a GPU: its head is factorised over the rows."""
BILINEAR_SHARE = 3.0
"""Of features pooled both ways: the bilinear half's share of the kernel's trace over the average's. At 224 px 3 has the
lowest cross-entropy on images held out; with 1 and 10 it is higher by 0.01, with 0.3 by 0.03. Small images, whose last
maps have few positions, want less of it: at 96 px 1 is lower by 0.02 (`benchmarks/results/both_poolings-*.json`)."""
MAPS = 8
"""The last feature maps of all rows are kept between poolings where they take so small a part of the free memory."""


def select_pooling(data: TrainingSet, backbone: Backbone) -> HeadFit:
    """Features and closed-form head under the pooling that is kept."""
    tried = candidate_heads(data, backbone)
    at = data.context.world.first(lambda: min(range(len(tried)), key=lambda i: tried[i].choice.best.loss))
    return replace(tried[at], choices=choice_of_pooling(tried, tried[at]))


def candidate_heads(data: TrainingSet, backbone: Backbone, pooling: str | None = None) -> list[HeadFit]:
    """A head for every pooling that the settings ask for, or under one that is given."""
    if pooling is not None and pooling != OWN:
        data = replace(data, context=data.context.with_settings(pooling=pooling))
    encoder, context = Encoder(data, backbone), data.context
    if context.settings.solver != "head":
        encoder.engine.compile_ahead()
    wanted = _wanted(encoder)
    if wanted.note:
        context.progress.say(wanted.note)
    return try_poolings(wanted, encoder)


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
        return self.pool is not None and self.bilinear and self.channels < self.pool.channels

    @property
    def bilinear(self) -> bool:
        """Whether features are pooled bilinearly, alone or with their average."""
        return "bilinear" in self.names or "both" in self.names


def _wanted(encoder: Encoder) -> Candidates:
    context, settings = encoder.context, encoder.context.settings
    module, inputs = encoder.body.module, encoder.inputs
    found = context.world.first(lambda: (p := find_average_pool(module, inputs.example())) and asdict(p))
    wanted = candidates(
        settings.pooling,
        AveragePool(**found) if found else None,
        settings.pool_channels,
        encoder.backbone.name,
        len(inputs),
        context.dtype.itemsize,
        min(context.world.all_gather(context.free_bytes())) // 2,
        context.device.type == "cuda",
        together=settings.climbs and not settings.linearize_reduction,
    )
    return replace(wanted, linearised=settings.linearize_reduction)


def candidates(
    asked: str,
    pool: AveragePool | None,
    channels: int,
    name: str,
    rows: int,
    item: int,
    memory: int,
    cuda: bool,
    together: bool = False,
) -> Candidates:
    """What `--pooling` means for a backbone and so much data.

    Args:
        asked: "auto", "avg", "bilinear" or "both".
        pool: the backbone's average pooling.
        channels: most channels of bilinear pooling.
        name: of the backbone.
        rows: n.
        item: bytes per number.
        memory: free bytes.
        cuda: whether on a GPU.
        together: whether "auto" tries both poolings together, too.
    """
    if pool is None:
        if asked != "auto":
            raise LQFError(
                f"pooling `{asked}` needs a network that ends in an average over its last feature map; "
                f"`{name}` does not, use `auto`"
            )
        return Candidates(None, (OWN,), 0)
    k = min(channels, pool.channels)
    if asked in ("bilinear", "both") and pool.positions == 1:
        raise LQFError(
            f"pooling `{asked}` needs several positions in the last feature map, `{name}` has one for images of this "
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
    return Candidates(pool, ("avg", "bilinear", "both") if together else ("avg", "bilinear"), k)


def try_poolings(wanted: Candidates, encoder: Encoder) -> list[HeadFit]:
    """A head for every pooling that is wanted."""
    tried: list[HeadFit] = []
    watched, average, gram = None, None, None
    if wanted.pool and wanted.reduces:
        room = encoder.context.free_bytes() // MAPS
        watched = ChannelMoment(encoder.reader.module.get_submodule(wanted.pool.name), room)
    if watched or wanted.names != ("bilinear",):
        with watched or nullcontext():
            z = encoder.features(watched)
        if "both" in wanted.names:
            average = z
            gram = head_products.gram(z)
        if wanted.names[0] not in ("bilinear", "both"):
            tried.append(HeadFit.of(encoder, wanted.names[0], z, gram=gram))
        del z
    if wanted.pool is None or not wanted.bilinear:
        return tried
    reduction = _reduction(watched, wanted, encoder) if watched else None
    pooled = with_bilinear_pool(
        encoder.backbone, wanted.pool.name, reduction, wanted.channels, linearised=wanted.linearised
    )
    other, maps = encoder.with_backbone(pooled), watched and watched.maps
    if all(encoder.context.world.all_gather(maps is not None)):
        z = other.features_from(pooled.body.get_submodule(wanted.pool.name), maps or [])
    else:
        z = other.features()
    del maps, watched
    own = head_products.gram(z) if average is not None else None
    if "bilinear" in wanted.names:
        tried.append(HeadFit.of(other, "bilinear", z, gram=own))
    if average is not None and gram is not None and own is not None:
        tried.append(_together(encoder, wanted, reduction, (average, gram), (z, own)))
    return tried


def _together(
    encoder: Encoder,
    wanted: Candidates,
    reduction: Tensor | None,
    average: tuple[Tensor, Tensor],
    bilinear: tuple[Tensor, Tensor],
) -> HeadFit:
    """The head on both kinds of features, each given with its kernel z̃z̃ᵀ; the bilinear ones count `BILINEAR_SHARE`
    times as much.
    """
    assert wanted.pool is not None
    (z, gram), (other, own) = average, bilinear
    traces = [float((k - 1).trace()) for k in (gram, own)]
    scale = (BILINEAR_SHARE * traces[0] / max(traces[1], 1e-300)) ** 0.5
    scale = encoder.context.world.agree(scale)
    pooled = with_both_pools(
        encoder.backbone, wanted.pool.name, reduction, wanted.channels, wanted.pool.channels, scale
    )
    features = torch.cat([z, scale * other], 1)
    return HeadFit.of(encoder.with_backbone(pooled), "both", features, gram=gram + scale**2 * (own - 1))


def _reduction(moment: ChannelMoment, wanted: Candidates, encoder: Encoder) -> Tensor:
    """(k, c), the same on every process, one of which may have no rows."""
    assert wanted.pool is not None
    c, context = wanted.pool.channels, encoder.context
    total = torch.zeros(c, c, dtype=torch.float64, device=context.device) if moment.sum is None else moment.sum
    return context.world.broadcast_(principal_rows(context.world.all_reduce_(total), wanted.channels).contiguous())
