"""Rewrite foreign layers as the plain layers they are made of, with the same weights and the same result.

Curvature rules and forward-mode derivatives exist for plain layers. A Conv2d subclass that pads inside its forward, a
BatchNorm that also activates or a fused attention kernel either hides its input from the rules or has no derivative in
forward mode. The blocks of ResNets become those that `lqf.fast` knows. Layers not listed here stay; they are
differentiated automatically, only slower. A forward that calls F.scaled_dot_product_attention by itself stays, too: run
it under torch.nn.attention.sdpa_kernel(SDPBackend.MATH).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from lqf.backbones.blocks import PadSame, Residual, named

Form = Callable[[Any], nn.Module | None]
"""A layer -> the same in plain layers; None: it stays."""


def canonicalize(model: nn.Module) -> dict[str, str]:
    """Rewrite `model` in place.

    Returns:
        Full weight names before -> after, where they changed: the names in the model's usual weight files, translated.
    """
    before = {id(t): name for name, t in _tensors(model)}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if getattr(module, "fused_attn", False) is True:  # timm's own switch, per module
            module.fused_attn = False
        if isinstance(getattr(module, "attention_bias_cache", None), dict):
            module.attention_bias_cache = _NoCache()
        new = _plain_form(module, _FORMS) if name else None
        if new is not None:
            model.set_submodule(name, new)
    for name, module in list(model.named_modules(remove_duplicate=False)):  # blocks, once their layers are plain
        block = _plain_form(module, _BLOCKS) if name else None
        if block is not None:
            model.set_submodule(name, block)
    after = ((before[id(t)], name) for name, t in _tensors(model))
    return {old: new for old, new in after if old != new}


class _NoCache(dict[str, Tensor]):
    """Keeps nothing: a bias computed once in eval mode would no longer depend on its weights."""

    def __contains__(self, key: object) -> bool:
        return False

    def __getitem__(self, key: str) -> Tensor:
        return self.pop(key)


def _tensors(model: nn.Module) -> chain[tuple[str, Tensor]]:
    return chain(model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))


def _plain_form(module: nn.Module, forms: dict[str, Form]) -> nn.Module | None:
    kind = type(module)  # exactly this class: a subclass of it may do something else again
    library = kind.__module__.partition(".")[0]
    form = forms.get(f"{library}.{kind.__name__}") or forms.get(f"{kind.__module__}.{kind.__name__}")
    new = form(module) if form else None
    return new.train(module.training) if new is not None else None


def _share(new: nn.Module, old: nn.Module) -> nn.Module:
    """Give `new` the very tensors of `old`."""
    for name, tensor in chain(old.named_parameters(recurse=False), old.named_buffers(recurse=False)):
        setattr(new, name, tensor)
    return new


def _same_conv(old: nn.Module) -> nn.Module | None:
    """TensorFlow-style convolution: padding, then an ordinary convolution."""
    assert isinstance(old, nn.Conv2d)
    extent = [d * (k - 1) + 1 for d, k in zip(old.dilation, old.kernel_size, strict=True)]
    stride = (old.stride[0], old.stride[1])
    if extent != [1, 1] and any(k < s for k, s in zip(extent, stride, strict=True)):
        return None
    pad = PadSame((extent[0], extent[1]), stride) if extent != [1, 1] else None
    kernel, dilation = (old.kernel_size[0], old.kernel_size[1]), (old.dilation[0], old.dilation[1])
    with torch.device("meta"):  # no initial values: they would be drawn from the global random state
        conv = nn.Conv2d(
            old.in_channels, old.out_channels, kernel, stride, 0, dilation, old.groups, bias=old.bias is not None
        )
    return named(pad=pad, conv=_share(conv, old))


def _norm_act(old: nn.Module) -> nn.Module:
    """Batch normalisation that also drops and activates: three layers."""
    assert isinstance(old, nn.BatchNorm2d)
    bn = nn.BatchNorm2d(old.num_features, old.eps, old.momentum, old.affine, old.track_running_stats)
    return named(bn=_share(bn, old), drop=old.get_submodule("drop"), act=old.get_submodule("act"))


class Permute(nn.Module):
    """x.permute(dims)."""

    def __init__(self, *dims: int) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(self.dims)

    def extra_repr(self) -> str:
        return str(self.dims)


def _channel_norm(old: nn.Module) -> nn.Module:
    """Layer normalisation over channels of (B, C, H, W): channels to the end, the ordinary layer, and back."""
    assert isinstance(old, nn.LayerNorm)
    norm = nn.LayerNorm(old.normalized_shape, old.eps, old.elementwise_affine, old.bias is not None)
    return named(before=Permute(0, 2, 3, 1), norm=_share(norm, old), after=Permute(0, 3, 1, 2))


class Attention(nn.Module):
    """softmax(QKᵀ/√d + mask)·V per head, in plain operations, with nn.MultiheadAttention's call and weights."""

    _qkv_same_embed_dim = False  # tells nn.TransformerEncoderLayer not to take its fused path around this module

    def __init__(self, old: nn.MultiheadAttention) -> None:
        super().__init__()
        d = old.embed_dim
        self.num_heads, self.batch_first = old.num_heads, old.batch_first
        self.scale = (d // old.num_heads) ** -0.5
        with torch.device("meta"):
            self.in_proj = nn.Linear(d, 3 * d, bias=old.in_proj_bias is not None)
            self.out_proj = nn.Linear(d, d, bias=old.out_proj.bias is not None)
        self.in_proj.weight = old.in_proj_weight
        self.in_proj.bias = old.in_proj_bias
        _share(self.out_proj, old.out_proj)

    @property
    def in_proj_bias(self) -> Tensor | None:
        """Where nn.TransformerEncoderLayer looks for it."""
        return self.in_proj.bias

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As nn.MultiheadAttention, which see; inputs are (B, L, d), or (L, B, d) without `batch_first`."""
        q, k, v = (self._heads(x) for x in self._projected(query, key, value))  # (B, heads, L, d / heads)
        scores = q @ k.mT * self.scale
        if attn_mask is not None:
            mask = attn_mask if attn_mask.ndim == 2 else attn_mask.unflatten(0, (-1, self.num_heads))
            scores = scores + _additive(mask, scores)
        if key_padding_mask is not None:
            scores = scores + _additive(key_padding_mask, scores)[:, None, None]
        weights = scores.softmax(-1)
        z = self.out_proj((weights @ v).transpose(1, 2).flatten(2))
        z = z if self.batch_first else z.transpose(0, 1)
        if not need_weights:
            return z, None
        return z, weights.mean(1) if average_attn_weights else weights

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        if query is key and key is value:
            q, k, v = self.in_proj(query).chunk(3, -1)
            return q, k, v
        # two thirds of the work are thrown away, but the layer sees every input: rare, and right for curvature
        return tuple(self.in_proj(x).chunk(3, -1)[i] for i, x in enumerate((query, key, value)))

    def _heads(self, x: Tensor) -> Tensor:
        x = x if self.batch_first else x.transpose(0, 1)
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, float("-inf"))
    return mask


def _attention(old: nn.Module) -> nn.Module | None:
    assert isinstance(old, nn.MultiheadAttention)
    plain = old._qkv_same_embed_dim and old.bias_k is None and not old.add_zero_attn
    return Attention(old) if plain else None


def _block(old: Any) -> nn.Module | None:
    """A block of a ResNet: branch, sum and activation, every activation its own, and nothing overwritten."""
    count = 3 if hasattr(old, "conv3") else 2
    layers: dict[str, nn.Module] = {}
    for k in range(1, count + 1):
        layers |= {f"conv{k}": getattr(old, f"conv{k}"), f"bn{k}": getattr(old, f"bn{k}")}
        layers |= {f"act{k}": copy.deepcopy(getattr(old, f"act{k}", None) or old.relu)} if k < count else {}
    between = [getattr(old, name, None) for name in ("drop_block", "aa")]
    if any(m is not None and not isinstance(m, nn.Identity) for m in between):
        return None
    layers |= {name: m for name in ("se", "drop_path") if (m := getattr(old, name, None)) is not None}
    act = copy.deepcopy(getattr(old, f"act{count}", None) or old.relu)
    return Residual(named(**layers), nn.Identity() if old.downsample is None else old.downsample, act)


_FORMS: dict[str, Form] = {
    "timm.Conv2dSame": _same_conv,
    "timm.BatchNormAct2d": _norm_act,
    "timm.LayerNorm2d": _channel_norm,
    "torchvision.LayerNorm2d": _channel_norm,
    "torch.MultiheadAttention": _attention,
}

_BLOCKS: dict[str, Form] = {
    f"{where}.{kind}": _block
    for where in ("torchvision.models.resnet", "timm.models.resnet")
    for kind in ("BasicBlock", "Bottleneck")
}
