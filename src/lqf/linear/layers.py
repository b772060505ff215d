"""Per-layer view of the Jacobian: what went into a layer and what came back to it.

The gradient of any output with respect to a layer's weights is a sum over positions l (pixels, tokens) of outer
products

    ∂(uᵀz)/∂W = Σ_l g_l a_lᵀ,     a_l: input patch (with a 1 for the bias),   g_l: gradient at the layer's output.

K-FAC and the per-sample Jacobians of the dense dual are both made of these a and g. A `Tape` records them for the
layers that have a rule (Linear, Conv2d of any grouping, normalisation layers); weights without a rule are `others`,
and their per-sample gradients come from automatic differentiation, slower but for any operation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vjp, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from lqf.linear.linearize import Linearization


@dataclass
class Layer(ABC):
    """One layer with a rule.

    Attributes:
        name: dotted name of the module.
        module: an nn.Module of the rule's kind (typed Any: its attributes are those of that kind).
        weight, bias: full names of its linearised weights (None where it has none).
    """

    name: str
    module: Any
    weight: str | None
    bias: str | None

    @abstractmethod
    def patches(self, a: Tensor) -> Tensor:
        """Input as (B, groups, p, L): what each output position multiplies, without the bias's 1."""

    @abstractmethod
    def grads(self, g: Tensor) -> Tensor:
        """Gradient at the output as (B, groups, o, L)."""

    @abstractmethod
    def explains(self, a: Tensor, y: Tensor) -> bool:
        """Whether the rule's own forward pass reproduces the layer's output (a subclass may do more)."""

    def per_sample(self, a: Tensor, g: Tensor, part: slice = slice(None)) -> dict[str, Tensor]:
        """Gradient of every sample for each of the layer's weights: name -> (B, size).

        ``part`` restricts it to some of the output channels of every group, for layers too large to hold at once.
        """
        g = self.grads(g)[:, :, part]
        out = {}
        if self.weight:
            out[self.weight] = (g @ self.patches(a).mT).flatten(1)
        if self.bias:
            out[self.bias] = g.sum(-1).flatten(1)
        return out


class LinearLayer(Layer):
    """y = aWᵀ + b over the last dimension; all dimensions between the first and the last are positions."""

    def patches(self, a: Tensor) -> Tensor:
        """(B, 1, in, L)."""
        return a.reshape(len(a), -1, a.shape[-1]).mT[:, None]

    def grads(self, g: Tensor) -> Tensor:
        """(B, 1, out, L)."""
        return self.patches(g)

    def explains(self, a: Tensor, y: Tensor) -> bool:
        """Compare with F.linear."""
        return _same(F.linear(a, self.module.weight, self.module.bias), y)


class ConvLayer(Layer):
    """Conv2d with zero padding, any stride, dilation and number of groups."""

    def patches(self, a: Tensor) -> Tensor:
        """Im2col: (B, groups, in/groups·k·k, L)."""
        m = self.module
        if m.kernel_size == (1, 1) and m.padding in ((0, 0), "valid"):
            cols = a[..., :: m.stride[0], :: m.stride[1]].flatten(2)
        else:
            cols = _unfolded(self._padded(a), m.kernel_size, m.stride, m.dilation)
        return cols.unflatten(1, (m.groups, -1))

    def grads(self, g: Tensor) -> Tensor:
        """(B, groups, out/groups, L)."""
        return g.flatten(2).unflatten(1, (self.module.groups, -1))

    def explains(self, a: Tensor, y: Tensor) -> bool:
        """Compare with F.conv2d."""
        m = self.module
        return _same(F.conv2d(a, m.weight, m.bias, m.stride, m.padding, m.dilation, m.groups), y)

    def _padded(self, a: Tensor) -> Tensor:
        m = self.module
        if m.padding == "same":
            height, width = (d * (k - 1) for d, k in zip(m.dilation, m.kernel_size, strict=True))
            top, left = height // 2, width // 2
            return F.pad(a, (left, width - left, top, height - top))
        if m.padding == "valid":
            return a
        return F.pad(a, (m.padding[1], m.padding[1], m.padding[0], m.padding[0]))


class NormLayer(Layer):
    """y = γ·x̂ + β with x̂ fixed by the layer (running statistics, or the sample's own); γ, β per channel."""

    def normalised(self, a: Tensor) -> Tensor:
        """x̂, in the layout of the input."""
        m = self.module
        if isinstance(m, _BatchNorm):
            return F.batch_norm(a, m.running_mean, m.running_var, eps=m.eps)
        if isinstance(m, nn.GroupNorm):
            return F.group_norm(a, m.num_groups, eps=m.eps)
        return F.layer_norm(a, m.normalized_shape, eps=m.eps)

    def patches(self, a: Tensor) -> Tensor:
        """x̂ as (B, channels, 1, L)."""
        return self._channels_first(self.normalised(a))

    def grads(self, g: Tensor) -> Tensor:
        """(B, channels, 1, L)."""
        return self._channels_first(g)

    def per_sample(self, a: Tensor, g: Tensor, part: slice = slice(None)) -> dict[str, Tensor]:
        """γ: Σ_l g_l x̂_l; β: Σ_l g_l."""
        g = self.grads(g)
        out = {}
        if self.weight:
            out[self.weight] = (g * self.patches(a)).sum(-1).flatten(1)
        if self.bias:
            out[self.bias] = g.sum(-1).flatten(1)
        return out

    def explains(self, a: Tensor, y: Tensor) -> bool:
        """Compare with γ·x̂ + β."""
        m = self.module
        shape = [1, -1] + [1] * (a.ndim - 2) if self._channel_dim == 1 else list(m.weight.shape)
        bias = torch.zeros_like(m.weight) if m.bias is None else m.bias
        return _same(self.normalised(a) * m.weight.reshape(shape) + bias.reshape(shape), y)

    @property
    def _channel_dim(self) -> int:
        return -1 if isinstance(self.module, nn.LayerNorm) else 1

    def _channels_first(self, x: Tensor) -> Tensor:
        if self._channel_dim == 1:
            return x.reshape(len(x), x.shape[1], 1, -1)
        channels = self.module.weight.numel()
        return x.reshape(len(x), -1, channels).mT[:, :, None]


def _unfolded(a: Tensor, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> Tensor:
    """What `F.unfold` makes, (B, c·k·k, L), in one copy for the whole batch (its own is one launch per sample)."""
    b, c, *sides = a.shape
    out = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(sides, kernel, stride, dilation, strict=True)]
    sb, sc, *steps = a.stride()
    inside = [step * d for step, d in zip(steps, dilation, strict=True)]
    across = [step * s for step, s in zip(steps, stride, strict=True)]
    return a.as_strided((b, c, *kernel, *out), (sb, sc, *inside, *across)).reshape(b, -1, out[0] * out[1])


def _same(x: Tensor, y: Tensor) -> bool:
    return x.shape == y.shape and torch.allclose(x, y, rtol=1e-3, atol=1e-4 * float(y.abs().max() + 1e-12))


RULES: tuple[tuple[type[nn.Module], type[Layer]], ...] = (
    (nn.Linear, LinearLayer),
    (nn.Conv2d, ConvLayer),
    (_BatchNorm, NormLayer),
    (nn.LayerNorm, NormLayer),
    (nn.GroupNorm, NormLayer),
)


@dataclass
class Record:
    """What a layer saw in one call: its input a and its output y (with a graph); g follows by differentiation."""

    layer: Layer
    a: Tensor
    y: Tensor


@dataclass
class Tape:
    """Records a and g for every layer with a rule; `others` are the linearised weights that no rule covers.

    Args:
        body: what is linearised, not a fast version of it.
        example: a small batch; layers whose class only derives from a known one are checked on it, and their weights go
            to `others` when the rule does not reproduce their output. So do weights that the forward pass never uses
            through their layer.
    """

    body: Linearization
    example: Tensor
    layers: list[Layer] = field(init=False)
    others: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not self.body.layers_as_written:
            raise TypeError("a fast body merges layers, and its tape would miss them; record the exact one")
        names = set(self.body.layout.names)
        found = [lay for n, m in self.body.module.named_modules() if (lay := _layer_for(n, m, names))]
        self.layers = found
        with torch.no_grad():
            _, records = self._forward(self.example[:2])
        unsound = {id(r.layer) for r in records if not r.layer.explains(r.a, r.y)}
        used = {id(r.layer) for r in records}
        self.layers = [lay for lay in found if id(lay) in used and id(lay) not in unsound]
        covered = {w for lay in self.layers for w in (lay.weight, lay.bias)}
        self.others = tuple(n for n in self.body.layout.names if n not in covered)

    def record(self, x: Tensor) -> tuple[Tensor, list[Record]]:
        """Forward pass: z (B, O) with a graph, and one record per call of a layer with a rule."""
        with torch.enable_grad():
            return self._forward(x)

    @staticmethod
    def backward(z: Tensor, records: Sequence[Record], u: Tensor, retain: bool = False) -> list[Tensor]:
        """Gradient g of Σ_b u_b·z_b at the output of every record."""
        if not records:
            return []
        ys = [r.y for r in records]
        return list(torch.autograd.grad(z, ys, u, retain_graph=retain, allow_unused=True, materialize_grads=True))

    def others_per_sample(self, x: Tensor, u: Tensor, names: Sequence[str] | None = None) -> dict[str, Tensor]:
        """Per-sample gradients (B, size) of u_b·z_b for the weights without a rule, or those ``names`` of them."""
        wanted = self.others if names is None else names
        weights = {n: w for n, w in self.body.weights().items() if n in wanted}
        if not weights:
            return {}

        def one(xi: Tensor, ui: Tensor) -> dict[str, Tensor]:
            pull = vjp(lambda w: self.body.call(w, xi[None]), weights)[1]
            return pull(ui[None])[0]

        return {n: g.flatten(1) for n, g in vmap(one)(x, u).items()}

    def other_sizes(self) -> dict[str, int]:
        """Entries of each weight without a rule."""
        layout = self.body.layout
        return {n: s.numel() for n, s in zip(layout.names, layout.shapes, strict=True) if n in self.others}

    def _forward(self, x: Tensor) -> tuple[Tensor, list[Record]]:
        records: list[Record] = []
        with _hooked(self.layers, records.append):
            z = self.body.module(x)
        return z, records


def in_groups(sizes: dict[str, int], most: int) -> list[list[str]]:
    """Names in order, as many at a time as make at most ``most`` entries; a larger one is alone."""
    groups: list[list[str]] = []
    filled = 0
    for name, size in sizes.items():
        if not groups or filled + size > most:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += size
    return groups


def _layer_for(name: str, module: nn.Module, names: set[str]) -> Layer | None:
    rule = next((r for base, r in RULES if isinstance(module, base)), None)
    prefix = f"{name}." if name else ""
    weight = f"{prefix}weight" if f"{prefix}weight" in names else None
    bias = f"{prefix}bias" if f"{prefix}bias" in names else None
    if rule is None or not (weight or bias) or not _has_plain_form(module):
        return None
    return rule(name, module, weight, bias)


def _has_plain_form(module: nn.Module) -> bool:
    if isinstance(module, nn.Conv2d):
        return module.padding_mode == "zeros"
    if isinstance(module, _BatchNorm):
        return module.running_mean is not None
    return True


@contextmanager
def _hooked(layers: Sequence[Layer], keep: Callable[[Record], None]) -> Iterator[None]:
    def hook_for(layer: Layer) -> Callable[..., Tensor]:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...], y: Tensor) -> Tensor:
            if torch.is_grad_enabled() and not y.requires_grad:
                y = y.detach().requires_grad_()  # the first layers have nothing differentiable before them
            keep(Record(layer, inputs[0].detach(), y))
            return y

        return hook

    handles = [lay.module.register_forward_hook(hook_for(lay)) for lay in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
