"""How the last feature map or the last tokens become features: on average, by their covariance, or both.

Every pooling gets its closed-form head. The one whose exact leave-one-out outputs have the lowest cross-entropy, each
at its own best ridge strength and temperature, is kept, and everything after goes through it. One pass makes the
average features, the moment of the channels (the reduction) and, where the maps fit into memory, all that the bilinear
features need; otherwise they are another pass. Networks that end in tokens: `lqf.fitting.token_poolings`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace

from lqf.backbones import Backbone
from lqf.backbones.average_pool import AveragePool, find_average_pool, with_bilinear_pool, with_both_pools
from lqf.backbones.bilinear_pool import ChannelMoment
from lqf.backbones.token_pool import Tokens
from lqf.errors import LQFError
from lqf.fitting.both_poolings import Half, Pair, head_of_both
from lqf.fitting.choices import choice_of_pooling
from lqf.fitting.encoder import Encoder
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.token_poolings import OWN, average_of, means_of, that_begin_at, tokens_of, try_token_poolings
from lqf.fitting.training_set import TrainingSet
from lqf.utils import naming
from lqf.utils.text import byte_count

MOST_ROWS = {"cpu": 5000, "cuda": 16000}
"""Rows up to which `auto` tries bilinear pooling: its head is factorised over the rows."""
MAPS = 8
"""The last feature maps of all rows are kept between poolings where they take so small a part of the free memory."""
NEAR = 0.01
"""Of the lowest leave-one-out loss: so much higher may that of both poolings together be, and they are kept."""
ASKED = ("avg", "bilinear", "both")
"""Poolings that the settings name."""


class NoAveragePool(LQFError):
    """A pooling was named for a network whose features are of one kind."""


def select_pooling(data: TrainingSet, backbone: Backbone) -> HeadFit:
    """Features and closed-form head under the pooling that is kept."""
    tried = candidate_heads(data, backbone)
    at = data.context.world.first(lambda: best_head(tried))
    return replace(tried[at], choices=choice_of_pooling(tried, tried[at]))


def best_head(tried: Sequence[HeadFit]) -> int:
    """Which head is kept: the one with the lowest leave-one-out loss, or `both` where that is at most `NEAR` higher.

    The head is where a climb begins. Later rungs stand on its features, and under both poolings the network is
    linearised under the head on the average (`HeadFit.acting`), which leaks least of the labels into it, while the
    covariance stays beside it. A near tie between heads says nothing about that.
    """
    losses = [head.choice.best.loss for head in tried]
    best = min(range(len(tried)), key=losses.__getitem__)
    near = [i for i, head in enumerate(tried) if head.pooling == "both" and losses[i] <= (1 + NEAR) * losses[best]]
    return near[0] if near else best


def candidate_heads(data: TrainingSet, backbone: Backbone, pooling: str | None = None) -> list[HeadFit]:
    """A head for every pooling that the settings ask for, or under one that is given by its name."""
    if pooling in ASKED:
        data = replace(data, context=data.context.with_settings(pooling=pooling))
    encoder, context = Encoder(data, backbone), data.context
    if context.settings.solver != "head":
        encoder.engine.compile_ahead()
    wanted = _wanted(encoder, pooling or context.settings.pooling)
    if wanted.note:
        context.progress.note(wanted.note)
    return try_poolings(wanted, encoder)


@dataclass(frozen=True)
class Candidates:
    """Which poolings to try.

    Attributes:
        pool: the backbone's average pooling, or its last tokens.
        names: of the poolings.
        channels: to which bilinear pooling reduces.
        note: why one is left out, if one is.
        linearised: whether the reduction may change with the other weights.
    """

    pool: AveragePool | Tokens | None
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


def _wanted(encoder: Encoder, asked: str) -> Candidates:
    context, settings = encoder.context, encoder.context.settings
    pool = _pool_of(encoder)
    wanted = candidates(
        asked,
        pool,
        settings.pool_channels,
        encoder.backbone.name,
        len(encoder.inputs),
        context.dtype.itemsize,
        min(context.world.all_gather(context.free_bytes())) // 2,
        context.device.type,
        together=settings.climbs and not settings.linearize_reduction,
    )
    if isinstance(pool, Tokens):
        names = that_begin_at(settings.linearize, encoder.backbone, pool, wanted.names)
        if not names:
            raise LQFError(
                f"pooling `{asked}` takes its features before `{settings.linearize}`, from which on the network is "
                "linearised; linearise it from an earlier stage on, or use `auto`"
            )
        wanted = replace(wanted, names=names)
    return replace(wanted, linearised=settings.linearize_reduction)


def _pool_of(encoder: Encoder) -> AveragePool | Tokens | None:
    """The average pooling at the end of a network, or else its last tokens."""
    module, inputs = encoder.body.module, encoder.inputs
    found = encoder.context.world.first(lambda: (p := find_average_pool(module, inputs.example())) and asdict(p))
    return AveragePool(**found) if found else tokens_of(encoder)


def candidates(
    asked: str,
    pool: AveragePool | Tokens | None,
    channels: int,
    name: str,
    rows: int,
    item: int,
    memory: int,
    device: str,
    together: bool = False,
) -> Candidates:
    """What `--pooling` means for a backbone and so much data.

    Args:
        asked: "auto", "avg", "bilinear" or "both", or another name of a pooling.
        pool: the backbone's average pooling, or its last tokens.
        channels: most channels of bilinear pooling.
        name: of the backbone.
        rows: n.
        item: bytes per number.
        memory: free bytes.
        device: "cpu" or "cuda".
        together: whether "auto" tries both poolings together, too.
    """
    if pool is None:
        if asked in ASKED:
            raise NoAveragePool(
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
    means = means_of(pool, together) if isinstance(pool, Tokens) else ("avg",)
    if isinstance(pool, Tokens) and asked != "auto":
        return Candidates(pool, (average_of(pool) if asked == "avg" else asked,), k)
    if asked in ASKED or pool.positions == 1:
        return Candidates(pool, (asked,) if asked in ASKED else means, k)
    need = 3 * rows * (k * (k + 1) // 2) * item + 6 * 8 * rows * rows
    if min(rows, k * (k + 1) // 2) > MOST_ROWS[device]:
        return Candidates(
            pool,
            means,
            k,
            f"bilinear pooling is not tried for {rows:,} rows; {naming.given('pooling', 'bilinear')} does",
        )
    if need > memory:
        return Candidates(pool, means, k, f"bilinear pooling is not tried: it needs {byte_count(need)} of memory")
    return Candidates(pool, (*means, "bilinear", "both") if together else (*means, "bilinear"), k)


def try_poolings(wanted: Candidates, encoder: Encoder) -> list[HeadFit]:
    """A head for every pooling that is wanted."""
    pool, context = wanted.pool, encoder.context
    if pool is None:
        return [HeadFit.of(encoder, OWN, encoder.features())]
    room = context.free_bytes() // MAPS
    kernels = "both" in wanted.names and len(encoder.inputs) <= MOST_ROWS[context.device.type]
    if isinstance(pool, Tokens):
        return try_token_poolings(
            encoder,
            pool,
            wanted.names,
            channels=wanted.channels,
            room=room,
            kernels=kernels,
            linearised=wanted.linearised,
        )
    return _try_map_poolings(wanted, pool, encoder, room, kernels)


def _try_map_poolings(
    wanted: Candidates, pool: AveragePool, encoder: Encoder, room: int, kernels: bool
) -> list[HeadFit]:
    """The same for a network that averages its last map."""
    tried: list[HeadFit] = []
    watched, average = None, None
    if wanted.reduces:
        watched = ChannelMoment(encoder.reader.module.get_submodule(pool.name), room)
    if watched or wanted.names != ("bilinear",):
        with watched or nullcontext():
            average = Half.of(encoder.features(watched), kernels)
        if "avg" in wanted.names:
            tried.append(HeadFit.of(encoder, "avg", average.features, gram=average.gram))
    if not wanted.bilinear:
        return tried
    reduction = encoder.reduction(watched, pool.channels, wanted.channels) if watched else None
    pooled = with_bilinear_pool(encoder.backbone, pool.name, reduction, wanted.channels, linearised=wanted.linearised)
    other, maps = encoder.with_backbone(pooled), watched and watched.maps
    if all(encoder.context.world.all_gather(maps is not None)):
        z = other.features_from(pooled.body.get_submodule(pool.name), maps or [])
    else:
        z = other.features()
    del maps, watched
    bilinear = Half.of(z, kernels)
    if "bilinear" in wanted.names:
        tried.append(HeadFit.of(other, "bilinear", bilinear.features, gram=bilinear.gram))
    if "both" in wanted.names and average is not None:
        tried.append(
            head_of_both(
                encoder,
                "both",
                Pair(average, bilinear),
                lambda scale: with_both_pools(
                    encoder.backbone, pool.name, reduction, wanted.channels, pool.channels, scale
                ),
            )
        )
    return tried
