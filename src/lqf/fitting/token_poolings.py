"""Heads on the last tokens of a network that has no average pooling: its own features, their mean, their covariance.

Transformers end in a class token or in a mean of tokens, ConvNeXt and Swin in a map that is averaged and normalised
(`lqf.backbones.tokens`). The poolings that leave-one-out chooses from are, with z the network's own features,

    the backbone's own: z,    mean: m,    own and mean: (z, scale·m),    bilinear: S,    both: (z, scale·S),

m the mean of the patch tokens and S the root of their covariance (`lqf.backbones.token_pool`). One pass makes z, m, the
moment of the channels and, where the tokens fit into memory, all that S needs; otherwise S is another pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

from torch import Tensor, nn

from lqf.backbones import Backbone
from lqf.backbones.prefix import split_at
from lqf.backbones.token_pool import COVARIANCES, TOKEN_POOL, TokenMoment, TokenPool, Tokens
from lqf.backbones.tokens import find_tokens
from lqf.backbones.with_token_pool import with_token_pool, with_tokens_in_sight
from lqf.errors import LQFError
from lqf.fitting.both_poolings import Half, Pair, head_of_both
from lqf.fitting.encoder import Encoder
from lqf.fitting.head_fit import HeadFit

OWN, MEAN, OWN_MEAN = "the backbone's own", "mean", "own and mean"
"""Names of poolings."""
KINDS = {OWN: "own", MEAN: "tokens_mean", OWN_MEAN: "own_mean", "bilinear": "bilinear", "both": "both"}
"""Of features, by the name of the pooling."""


def tokens_of(encoder: Encoder) -> Tokens | None:
    """The last tokens of the whole network, whatever part of it is linearised; known to all processes."""
    encoder.body  # noqa: B018  # puts the network on its device
    found = encoder.context.world.first(
        lambda: (t := find_tokens(encoder.backbone.body, encoder.whole_example())) and asdict(t)
    )
    return Tokens(**found) if found else None


def means_of(tokens: Tokens, together: bool) -> tuple[str, ...]:
    """Poolings without a covariance, with or without those of two kinds of features."""
    return tuple(n for n in (OWN, MEAN, OWN_MEAN) if KINDS[n] in tokens.kinds and (together or n != OWN_MEAN))


def average_of(tokens: Tokens) -> str:
    """The pooling that is the average: of the patch tokens, or the network's own where that is their mean."""
    return MEAN if KINDS[MEAN] in tokens.kinds else OWN


def that_begin_at(stage: str, backbone: Backbone, tokens: Tokens, names: Sequence[str]) -> tuple[str, ...]:
    """Those poolings under which the network can be linearised from a stage on: it has to come before the tokens."""
    if stage == "all":
        return tuple(names)
    return tuple(n for n in names if n == OWN or _can_be_cut(with_token_pool(backbone, tokens, KINDS[n]), stage))


def _can_be_cut(backbone: Backbone, stage: str) -> bool:
    try:
        split_at(backbone.body, stage)
    except LQFError:
        return False
    return True


def try_token_poolings(
    encoder: Encoder,
    tokens: Tokens,
    names: Sequence[str],
    *,
    channels: int,
    room: int,
    kernels: bool,
    linearised: bool = False,
) -> list[HeadFit]:
    """A head for every pooling.

    Args:
        encoder: of the network as it is.
        tokens: its last ones.
        names: of the poolings.
        channels: k, to which the covariance is reduced.
        room: bytes of tokens that may be kept.
        kernels: whether kernels are made once for several heads.
        linearised: whether the reduction may change with the other weights.
    """
    if list(names) == [OWN]:
        return [HeadFit.of(encoder, OWN, encoder.features())]
    seen = encoder.with_backbone(with_tokens_in_sight(encoder.backbone, tokens))
    covariances = any(KINDS[name] in COVARIANCES for name in names)
    moment = TokenMoment(seen.reader.module.get_submodule(TOKEN_POOL), room if covariances else 0)
    with moment:
        own = Half.of(seen.features(moment), kernels)
    del seen
    features = _Features(encoder, tokens, channels, kernels, linearised, own, moment)
    return [features.head(name) for name in names]


@dataclass(frozen=True, eq=False)
class _Features:
    """Of all kinds, made when they are asked for; ``own`` and ``moment`` are of the one pass, the rest is as above."""

    encoder: Encoder
    tokens: Tokens
    channels: int
    kernels: bool
    linearised: bool
    own: Half
    moment: TokenMoment

    def head(self, name: str) -> HeadFit:
        """The head on the features of one pooling."""
        parts = {OWN: lambda: (self.encoder, self.own), MEAN: lambda: self.mean, "bilinear": lambda: self.covariance}
        if name in parts:
            encoder, half = parts[name]()
            return HeadFit.of(encoder, name, half.features, gram=half.gram)
        _, second = self.mean if name == OWN_MEAN else self.covariance
        return head_of_both(self.encoder, name, Pair(self.own, second), lambda scale: self._pooled(KINDS[name], scale))

    @cached_property
    def mean(self) -> tuple[Encoder, Half]:
        """m, and what makes it."""
        encoder = self.encoder.with_backbone(self._pooled("tokens_mean"))
        return encoder, Half.of(encoder.features_from(nn.Identity(), self.moment.means), self.kernels)

    @cached_property
    def covariance(self) -> tuple[Encoder, Half]:
        """S, and what makes it."""
        encoder = self.encoder.with_backbone(self._pooled("bilinear"))
        maps, self.moment.maps = self.moment.maps, None
        if not all(self.encoder.context.world.all_gather(maps is not None)):
            return encoder, Half.of(encoder.features(), self.kernels)
        pool = encoder.backbone.body.get_submodule(TOKEN_POOL)
        assert isinstance(pool, TokenPool)
        assert pool.bilinear is not None
        return encoder, Half.of(encoder.features_from(pool.bilinear, maps or []), self.kernels)

    @cached_property
    def _reduction(self) -> Tensor | None:
        if self.channels == self.tokens.channels:
            return None
        return self.encoder.reduction(self.moment, self.tokens.channels, self.channels)

    def _pooled(self, kind: str, scale: float = 1.0) -> Backbone:
        """The network with features of one kind."""
        if kind not in COVARIANCES:
            return with_token_pool(self.encoder.backbone, self.tokens, kind, scale=scale)
        linearised = self.linearised and kind == "bilinear"
        return with_token_pool(
            self.encoder.backbone, self.tokens, kind, self._reduction, self.channels, scale, linearised=linearised
        )
