"""Bilinear pooling: the square root of the covariance of the last feature map, instead of its mean.

For a map of L positions and k channels (after an optional reduction y = Rx from c channels), Y (k × L) centred over the
positions,

    Σ = Y Yᵀ / L,     S = (Σ + εI)^{1/2},     features: the upper triangle of S, √2 off the diagonal,

so that inner products of features are those of the matrices S. ε = EPSILON·tr(Σ)/k keeps S differentiable: Σ has rank
at most L − 1. With fewer positions than channels the root is taken on the small side, of G = YᵀY / L:

    S = √ε I + Y (√(G + εI) + √ε I)⁻¹ Yᵀ / L.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lqf.backbones.matrix_root import matrix_inverse, matrix_root

EPSILON = 1e-4


class BilinearPool(nn.Module):
    """(B, c, H, W) -> (B, k(k+1)/2).

    Args:
        reduction: (k, c) rows that make k channels out of c; None keeps them all.
        channels: k, where there is no reduction.
        linearised: whether the reduction is a weight, which may change, or a constant.

    Attributes:
        newton: whether the root is taken by iteration; None: as suits the device.
    """

    reduction: Tensor | None
    reduce: nn.Conv2d | None
    upper: Tensor
    diagonal: Tensor

    def __init__(self, reduction: Tensor | None, channels: int | None = None, *, linearised: bool = False):
        super().__init__()
        k = len(reduction) if reduction is not None else channels
        if k is None:
            raise ValueError("give a reduction, or the number of channels")
        self.channels = k
        self.newton: bool | None = None
        row, column = torch.triu_indices(k, k)
        self.reduce = _convolution(reduction) if linearised and reduction is not None else None
        self.register_buffer("reduction", reduction if self.reduce is None else None)
        self.register_buffer("upper", row * k + column, persistent=False)
        self.register_buffer("diagonal", row == column, persistent=False)

    @property
    def rows(self) -> Tensor | None:
        """(k, c) of the reduction, whichever it is."""
        return self.reduction if self.reduce is None else self.reduce.weight.detach().flatten(1)

    @property
    def n_features(self) -> int:
        """k(k+1)/2."""
        return len(self.upper)

    def forward(self, x: Tensor) -> Tensor:
        """The features; computed in float32 at the least, under autocast too."""
        if self.reduce is not None:
            x = self.reduce(x)
        elif self.reduction is not None:
            x = F.conv2d(x, self.reduction[:, :, None, None].to(x.dtype))
        wide = torch.promote_types(x.dtype, torch.float32)
        kind = x.device.type
        with torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext():
            s = covariance_root(x.flatten(2).to(wide), newton=self.newton)
        z = s.flatten(1)[:, self.upper]
        return torch.where(self.diagonal, z, 2**0.5 * z).to(x.dtype)

    def extra_repr(self) -> str:
        """Shown by print."""
        return f"channels={self.channels}, features={self.n_features}"


def _convolution(rows: Tensor) -> nn.Conv2d:
    """The reduction as a layer like others: products, K-FAC and per-sample gradients have rules for it."""
    k, c = rows.shape
    with torch.device("meta"):  # no initial values: they would be drawn from the global random state
        layer = nn.Conv2d(c, k, 1, bias=False, dtype=rows.dtype)
    layer.weight = nn.Parameter(rows[:, :, None, None].clone(), requires_grad=False)
    return layer


def covariance_root(y: Tensor, *, newton: bool | None = None) -> Tensor:
    """S (B, k, k) of maps y (B, k, L); ``newton``: by iteration (default: on a GPU)."""
    k, length = y.shape[1:]
    y = y - y.mean(2, keepdim=True)
    trace = y.square().sum((1, 2)) / length
    epsilon = (EPSILON * trace / k + torch.finfo(y.dtype).tiny ** 0.5)[:, None, None]
    if k <= length:
        return matrix_root(y @ y.mT / length + epsilon * _eye(k, y), newton=newton)
    small = matrix_root(y.mT @ y / length + epsilon * _eye(length, y), newton=newton)
    inner = matrix_inverse(small + epsilon.sqrt() * _eye(length, y), newton=newton)
    return epsilon.sqrt() * _eye(k, y) + y @ inner @ y.mT / length


def _eye(n: int, like: Tensor) -> Tensor:
    return torch.eye(n, dtype=like.dtype, device=like.device)


AVERAGES = ("SelectAdaptivePool2d", "FastAdaptiveAvgPool")
"""timm's modules that may be an average over all positions."""


def may_be_average(module: nn.Module) -> bool:
    """Whether a module is of a kind that averages over all positions."""
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return module.output_size in (1, (1, 1), [1, 1])
    return type(module).__name__ in AVERAGES


class ChannelMoment:
    """Σ_i s_i Y_i Y_iᵀ / L over images, Y_i (c × L) the map of an image centred over its positions.

    Example:
        >>> pool = nn.AdaptiveAvgPool2d(1)
        >>> with ChannelMoment(pool) as moment:
        ...     _ = pool(torch.randn(4, 3, 5, 5))
        ...     moment.add(torch.ones(4))
        >>> moment.sum.shape
        torch.Size([3, 3])

    Args:
        module: sees the maps (B, c, H, W) as its input.
        room: bytes of maps that are kept, to be pooled in another way; where they do not suffice none are.
    """

    def __init__(self, module: nn.Module, room: int = 0):
        self._module, self._map, self._room = module, torch.zeros(0), room
        self.sum: Tensor | None = None
        self.maps: list[Tensor] | None = []

    def __enter__(self) -> ChannelMoment:
        self._handle = self._module.register_forward_pre_hook(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.remove()

    def add(self, weights: Tensor) -> None:
        """Count the maps that the module has seen last, with the weights (B,) of their images."""
        x, self._map = self._map, torch.zeros(0)
        self._keep(x)
        y = x - x.mean((2, 3), keepdim=True)
        y = y * (weights.to(y) / y[0, 0].numel()).sqrt()[:, None, None, None]
        y = y.transpose(0, 1).flatten(1)  # (c, B·L)
        product = (y @ y.T).double()
        self.sum = product if self.sum is None else self.sum + product

    def _keep(self, x: Tensor) -> None:
        self._room -= x.numel() * x.element_size()
        if self._room < 0:
            self.maps = None
        if self.maps is not None:
            self.maps.append(x)

    def _see(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._map = inputs[0].detach()


def principal_rows(moment: Tensor, k: int) -> Tensor:
    """(k, c) leading eigenvectors, strongest first, of a second-moment matrix of channels (c, c)."""
    _, v = torch.linalg.eigh(moment.double())
    rows = v.flip(1).T[:k]
    signs = rows.gather(1, rows.abs().argmax(1, keepdim=True)).sign()  # the same on every machine
    return (rows * signs).to(moment.dtype)
