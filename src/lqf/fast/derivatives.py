"""Directional derivatives of PyTorch's operations, written in operations that every runtime knows.

A `Dual` is a value and its derivative along δ; None: it does not depend on δ. A rule takes the arguments of an
operation, tensors among them as duals, and gives the dual of its result. Values are computed as the network does;
kinks have derivative 0 on the side where the network is flat, as PyTorch's own derivatives have.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lqf.errors import LQFError
from lqf.fast.gates import leaky6, through_between, through_leaky, through_leaky6, through_relu
from lqf.fast.slopes import between, elu_slope, gelu_slope, hardswish_slope, mish_slope, silu_slope


class Dual(NamedTuple):
    """A value and its derivative."""

    value: Tensor
    tangent: Tensor | None


Rule = Callable[..., Any]
aten = torch.ops.aten


def derive(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operation as a dual, or several of them; of numbers, a number."""
    if not _any_tangent(args) and not _any_tangent(kwargs):
        return _constant(target(*_values(args), **_values(kwargs)))
    rule = RULES.get(target) or RULES.get(getattr(target, "overloadpacket", None))
    if rule is None:
        raise LQFError(f"the derivative of `{target}` is not known; a model of this network cannot be exported")
    return rule(target, *args, **kwargs)


def _any_tangent(x: Any) -> bool:
    if isinstance(x, Dual):
        return x.tangent is not None
    if isinstance(x, dict):
        return any(_any_tangent(v) for v in x.values())
    return isinstance(x, list | tuple) and any(_any_tangent(v) for v in x)


def _values(x: Any) -> Any:
    if isinstance(x, Dual):
        return x.value
    if isinstance(x, dict):
        return {k: _values(v) for k, v in x.items()}
    return type(x)(_values(v) for v in x) if isinstance(x, list | tuple) else x


def _constant(x: Any) -> Any:
    if isinstance(x, Tensor):
        return Dual(x, None)
    return type(x)(_constant(v) for v in x) if isinstance(x, list | tuple) else x


def _sum(*terms: Tensor | None) -> Tensor | None:
    known = [t for t in terms if t is not None]
    return sum(known[1:], known[0]) if known else None


def _times(a: Tensor | None, b: Any) -> Tensor | None:
    return None if a is None else a * b


def _parts(x: Any) -> tuple[Any, Tensor | None]:
    """Value and derivative of a dual or a number."""
    return (x.value, x.tangent) if isinstance(x, Dual) else (x, None)


# --- what is linear in its first argument ----------------------------------------------------------------------------


def _linear_map(target: Any, x: Dual, *args: Any, **kwargs: Any) -> Any:
    args, kwargs = _values(args), _values(kwargs)
    if x.tangent is None:  # another argument has a derivative, and only its shape or type counts
        return _constant(target(x.value, *args, **kwargs))
    y, dy = target(x.value, *args, **kwargs), target(x.tangent, *args, **kwargs)
    return Dual(y, dy) if isinstance(y, Tensor) else type(y)(Dual(a, b) for a, b in zip(y, dy, strict=True))


def _item(target: Any, x: Any, index: Any) -> Any:
    return x[index]


def _identity(target: Any, x: Dual, *_: Any, **__: Any) -> Dual:
    """Dropout and copies of a network that does not train."""
    return x


def _detach(target: Any, x: Dual) -> Dual:
    return Dual(x.value, None)


def _nothing(target: Any, *_: Any, **__: Any) -> None:
    """Checks that a capture leaves behind."""


def _step(target: Any, *args: Any, **kwargs: Any) -> Any:
    """Comparisons."""
    return _constant(target(*_values(args), **_values(kwargs)))


def _pad(target: Any, x: Dual, pad: Any, mode: str = "constant", value: float | None = None) -> Dual:
    outside = 0.0 if mode == "constant" else None
    assert x.tangent is not None
    return Dual(target(x.value, pad, mode, value), target(x.tangent, pad, mode, outside))


def _cat(target: Any, tensors: Any, dim: int = 0) -> Dual:
    tangents = [torch.zeros_like(t.value) if t.tangent is None else t.tangent for t in tensors]
    return Dual(target([t.value for t in tensors], dim), target(tangents, dim))


# --- sums and products -----------------------------------------------------------------------------------------------


def _add(target: Any, a: Any, b: Any, *, alpha: float = 1) -> Dual:
    (x, dx), (y, dy) = _parts(a), _parts(b)
    out = target(x, y, alpha=alpha)
    sign = -1 if target in _SUBTRACTIONS else 1
    return Dual(out, _shaped(_sum(dx, _times(dy, sign * alpha)), out))


def _reverse_sub(target: Any, a: Dual, b: Any, alpha: float = 1) -> Dual:
    (x, dx), (y, dy) = _parts(a), _parts(b)
    out = target(x, y, alpha)
    return Dual(out, _shaped(_sum(dy, _times(dx, -alpha)), out))


def _mul(target: Any, a: Any, b: Any) -> Dual:
    (x, dx), (y, dy) = _parts(a), _parts(b)
    out = target(x, y)
    return Dual(out, _shaped(_sum(_times(dx, y), _times(dy, x)), out))


def _div(target: Any, a: Any, b: Any) -> Dual:
    (x, dx), (y, dy) = _parts(a), _parts(b)
    out = target(x, y)
    own = None if dx is None else dx / y
    return Dual(out, _shaped(_sum(own, None if dy is None else -out * dy / y), out))


def _lerp(target: Any, a: Dual, b: Dual, weight: float) -> Dual:
    out = target(a.value, b.value, weight)
    return Dual(out, _shaped(_sum(_times(a.tangent, 1 - weight), _times(b.tangent, weight)), out))


def _shaped(t: Tensor | None, like: Tensor) -> Tensor | None:
    """Of the result's shape: the other term may have been broadcast."""
    return t if t is None or (t.ndim == like.ndim and t.shape == like.shape) else t.expand(like.shape)


def _matmul(target: Any, a: Dual, b: Dual) -> Dual:
    left = None if a.tangent is None else target(a.tangent, b.value)
    right = None if b.tangent is None else target(a.value, b.tangent)
    return Dual(target(a.value, b.value), _sum(left, right))


def _linear(target: Any, x: Dual, weight: Dual, bias: Dual | None = None) -> Dual:
    b, db = _parts(bias)
    left = None if x.tangent is None else F.linear(x.tangent, weight.value)
    right = None if weight.tangent is None else F.linear(x.value, weight.tangent, db)
    rest = db if weight.tangent is None else None
    out = F.linear(x.value, weight.value, b)
    return Dual(out, _shaped(_sum(left, right, rest), out))


def _conv2d(
    target: Any,
    x: Dual,
    weight: Dual,
    bias: Dual | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Dual:
    b, db = _parts(bias)
    geometry = (stride, padding, dilation, groups)
    left = None if x.tangent is None else F.conv2d(x.tangent, weight.value, None, *geometry)
    right = None if weight.tangent is None else F.conv2d(x.value, weight.tangent, db, *geometry)
    rest = db[:, None, None] if db is not None and weight.tangent is None else None
    out = F.conv2d(x.value, weight.value, b, *geometry)
    return Dual(out, _shaped(_sum(left, right, rest), out))


# --- normalisation ---------------------------------------------------------------------------------------------------


def _batch_norm(
    target: Any,
    x: Dual,
    weight: Dual | None,
    bias: Dual | None,
    mean: Dual,
    var: Dual,
    training: bool,
    momentum: float,
    eps: float,
    *rest: Any,
) -> Dual:
    w, dw = _parts(weight)
    b, db = _parts(bias)
    shape = [1, -1] + [1] * (x.value.ndim - 2)
    scale = (var.value + eps).rsqrt().reshape(shape)
    normalised = (x.value - mean.value.reshape(shape)) * scale
    gain = 1.0 if w is None else w.reshape(shape)
    out = normalised * gain if b is None else normalised * gain + b.reshape(shape)
    terms = (
        None if x.tangent is None else x.tangent * (scale * gain),
        None if dw is None else normalised * dw.reshape(shape),
        None if db is None else db.reshape(shape),
    )
    return Dual(out, _shaped(_sum(*terms), out))


def _layer_norm(
    target: Any, x: Dual, shape: Any, weight: Dual | None = None, bias: Dual | None = None, eps: float = 1e-5, *_: Any
) -> Dual:
    dims = tuple(range(-len(shape), 0))
    normalised, change = _standardised(x, dims, eps)
    return _affine(normalised, change, weight, bias, list(shape))


def _group_norm(
    target: Any, x: Dual, groups: int, weight: Dual | None = None, bias: Dual | None = None, eps: float = 1e-5, *_: Any
) -> Dual:
    split = Dual(*(None if t is None else t.unflatten(1, (groups, -1)).flatten(2) for t in x))  # type: ignore[arg-type]
    normalised, change = _standardised(split, (-1,), eps)
    back = (normalised.view(x.value.shape), None if change is None else change.view(x.value.shape))
    return _affine(*back, weight, bias, [-1] + [1] * (x.value.ndim - 2))


def _standardised(x: Dual, dims: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor | None]:
    """x̂ = (x − mean)/σ and dx̂ = (d − mean d − x̂ mean(x̂ d))/σ."""
    centred = x.value - x.value.mean(dims, keepdim=True)
    scale = (centred.square().mean(dims, keepdim=True) + eps).rsqrt()
    normalised = centred * scale
    if x.tangent is None:
        return normalised, None
    along = (normalised * x.tangent).mean(dims, keepdim=True)
    return normalised, scale * (x.tangent - x.tangent.mean(dims, keepdim=True) - normalised * along)


def _affine(
    normalised: Tensor, change: Tensor | None, weight: Dual | None, bias: Dual | None, shape: list[int]
) -> Dual:
    w, dw = _parts(weight)
    b, db = _parts(bias)
    out = normalised if w is None else normalised * w.reshape(shape)
    terms = (
        change if change is None or w is None else change * w.reshape(shape),
        None if dw is None else normalised * dw.reshape(shape),
        None if db is None else db.reshape(shape),
    )
    out = out if b is None else out + b.reshape(shape)
    return Dual(out, _shaped(_sum(*terms), out))


# --- activations: f and f' from x and f(x) ---------------------------------------------------------------------------


def _activation(slope: Callable[..., Tensor]) -> Rule:
    """A rule from f'(x, f(x), further arguments)."""

    def rule(target: Any, x: Dual, *args: Any, **kwargs: Any) -> Dual:
        assert x.tangent is not None
        y = target(x.value, *args, **kwargs)
        return Dual(y, x.tangent * slope(x.value, y, *args, **kwargs))

    return rule


def _gate(through: Callable[..., Tensor]) -> Rule:
    """A rule from what lets the derivative through: dx, x, further arguments."""

    def rule(target: Any, x: Dual, *args: Any, **kwargs: Any) -> Dual:
        assert x.tangent is not None
        y = target(x.value, *args, **kwargs)
        return Dual(y, through(x.tangent, x.value, *args, **kwargs))

    return rule


def _softmax(target: Any, x: Dual, dim: int, *args: Any, **kwargs: Any) -> Dual:
    assert x.tangent is not None
    p = target(x.value, dim, *args, **kwargs)
    return Dual(p, p * (x.tangent - (p * x.tangent).sum(dim, keepdim=True)))


def _max_pool(target: Any, x: Dual, *args: Any, **kwargs: Any) -> Dual:
    assert x.tangent is not None
    y, at = F.max_pool2d_with_indices(x.value, *args, **kwargs)
    return Dual(y, x.tangent.flatten(2).gather(2, at.flatten(2)).view(y.shape))


def _where(target: Any, condition: Dual, a: Any, b: Any) -> Dual:
    (x, dx), (y, dy) = _parts(a), _parts(b)
    out = target(condition.value, x, y)
    zero = torch.zeros_like(out)
    return Dual(out, torch.where(condition.value, zero if dx is None else dx, zero if dy is None else dy))


def _norm(target: Any, x: Dual, *args: Any, **kwargs: Any) -> Dual:
    """Of the Frobenius norm over the last two dimensions, kept."""
    assert x.tangent is not None
    y = target(x.value, *args, **kwargs)
    return Dual(y, (x.value * x.tangent).sum((-2, -1), keepdim=True) / y)


_SUBTRACTIONS = {aten.sub.Tensor, aten.sub.Scalar, aten.sub_.Tensor}
_LINEAR_MAPS = [
    *(aten.flatten, aten.transpose, aten.t, aten.permute, aten.expand, aten.reshape, aten.view, aten.contiguous),
    *(aten.unsqueeze, aten.squeeze, aten.select, aten.slice, aten.unbind, aten.split, aten.split_with_sizes),
    *(aten.chunk, aten.roll, aten.alias, aten.clone, aten.neg, aten.mean, aten.sum, aten.to, aten._to_copy),
    *(aten.adaptive_avg_pool2d, aten.avg_pool2d, aten.index, aten.unflatten, aten.mT, aten.movedim, aten.repeat),
    *(aten.upsample_bilinear2d, aten.upsample_bicubic2d, aten._upsample_bilinear2d_aa, aten._upsample_bicubic2d_aa),
    *(aten.upsample_nearest2d, aten._upsample_nearest_exact2d, aten.pixel_shuffle, aten.pixel_unshuffle, aten.flip),
    *(aten.gather, aten.index_select, aten.expand_as, aten.view_as, aten.reshape_as, aten.matrix_H, aten.adjoint),
    *(aten.swapaxes, aten.numpy_T, aten.type_as, aten.narrow, aten.diagonal, aten._unsafe_view),
]
RULES: dict[Any, Rule] = {
    **dict.fromkeys(_LINEAR_MAPS, _linear_map),
    **dict.fromkeys([aten.dropout, aten.feature_dropout, aten.lift_fresh_copy], _identity),
    operator.getitem: _item,
    aten.detach: _detach,
    **dict.fromkeys([aten.gt, aten.ge, aten.lt, aten.le, aten.eq, aten.ne, aten.sign, aten.round, aten.floor], _step),
    aten._assert_tensor_metadata: _nothing,
    aten.pad: _pad,
    **dict.fromkeys([aten.cat, aten.stack, aten.concat], _cat),
    **dict.fromkeys([aten.add, aten.add_, aten.sub, aten.sub_], _add),
    aten.rsub: _reverse_sub,
    **dict.fromkeys([aten.mul, aten.mul_], _mul),
    **dict.fromkeys([aten.div, aten.div_], _div),
    aten.lerp: _lerp,
    **dict.fromkeys([aten.matmul, aten.bmm, aten.mm], _matmul),
    aten.linear: _linear,
    aten.conv2d: _conv2d,
    aten.batch_norm: _batch_norm,
    aten.layer_norm: _layer_norm,
    aten.group_norm: _group_norm,
    leaky6: _gate(through_leaky6),
    **dict.fromkeys([aten.relu, aten.relu_], _gate(through_relu)),
    **dict.fromkeys([aten.relu6, aten.relu6_], _gate(lambda dx, x: through_between(dx, x, 0.0, 6.0))),
    **dict.fromkeys([aten.silu, aten.silu_], _activation(silu_slope)),
    **dict.fromkeys([aten.sigmoid, aten.sigmoid_], _activation(lambda x, y: y * (1 - y))),
    **dict.fromkeys([aten.tanh, aten.tanh_], _activation(lambda x, y: 1 - y * y)),
    aten.gelu: _activation(gelu_slope),
    **dict.fromkeys([aten.mish, aten.mish_], _activation(mish_slope)),
    **dict.fromkeys([aten.hardswish, aten.hardswish_], _activation(hardswish_slope)),
    **dict.fromkeys([aten.hardsigmoid, aten.hardsigmoid_], _activation(lambda x, y: between(x, -3, 3) / 6)),
    **dict.fromkeys([aten.leaky_relu, aten.leaky_relu_], _gate(through_leaky)),
    **dict.fromkeys([aten.elu, aten.elu_], _activation(elu_slope)),
    **dict.fromkeys([aten.hardtanh, aten.hardtanh_, aten.clamp], _gate(through_between)),
    aten.clamp_min: _gate(lambda dx, x, low: through_between(dx, x, low, None)),
    aten.softplus: _activation(lambda x, y, beta=1, threshold=20: torch.sigmoid(beta * x)),
    aten.exp: _activation(lambda x, y: y),
    aten.log: _activation(lambda x, y: 1 / x),
    aten.erf: _activation(lambda x, y: 2 / math.sqrt(math.pi) * torch.exp(-x * x)),
    aten.sqrt: _activation(lambda x, y: 0.5 / y),
    aten.rsqrt: _activation(lambda x, y: -0.5 * y / x),
    aten.square: _activation(lambda x, y: 2 * x),
    aten.reciprocal: _activation(lambda x, y: -y * y),
    aten.pow: _activation(lambda x, y, n: n * x ** (n - 1)),
    aten.softmax: _softmax,
    aten._softmax: _softmax,
    aten.max_pool2d: _max_pool,
    aten.where: _where,
    aten.linalg_matrix_norm: _norm,
}
"""By operation: what `derive` calls with the operation and its arguments."""
