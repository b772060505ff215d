"""Batch normalisation by running statistics and the activation behind it, as one map with its own derivatives.

    y = φ(p),  p = a x + c + s,      a = γ/√(var + ε),  c = β − mean·a        per channel, s: a shortcut, if any

    J·v:   dy = φ'(p) (a dx + da x + dc + ds),         da = dγ/√(var + ε),  dc = dβ − mean·da,
    Jᵀ·u:  with g' = φ'(p) g:   x ← a g',   s ← g',   β ← Σ g',   γ ← (Σ g'x − mean Σ g')/√(var + ε).

PyTorch computes these in many passes over the activations, which on a GPU cost more than the convolutions between
them. Here each is one pass (`norm_kernels`), or plain operations where those kernels do not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lqf.backbones.activations import LeakyReLU6
from lqf.backbones.blocks import Residual
from lqf.fast.patch import set_forward
from lqf.fast.primal_cache import remembered
from lqf.fast.triton.norm import Norm, kernels_for


@dataclass(frozen=True)
class Act:
    """φ: "none"; "leaky", ``slope`` below 0; "leaky6", also above 6; "silu"."""

    kind: str = "none"
    slope: float = 0.0

    def value(self, p: Tensor) -> Tensor:
        """φ(p)."""
        if self.kind == "leaky":
            return F.leaky_relu(p, self.slope)
        if self.kind == "leaky6":
            return torch.lerp(F.relu6(p), p, self.slope)
        return F.silu(p) if self.kind == "silu" else p

    def slopes(self, p: Tensor) -> Tensor:
        """φ'(p)."""
        if self.kind == "silu":
            s = torch.sigmoid(p)
            return s * (1 + p * (1 - s))
        linear = p > 0 if self.kind == "leaky" else (p > 0) & (p < 6)
        return torch.where(linear, p.new_ones(()), p.new_full((), self.slope))


def act_of(module: nn.Module) -> Act | None:
    """What an activation module computes, where that is known."""
    kind = type(module)
    if kind in (nn.ReLU, nn.LeakyReLU):
        return Act("leaky", getattr(module, "negative_slope", 0.0))
    if kind in (nn.ReLU6, LeakyReLU6):
        return Act("leaky6", getattr(module, "slope", 0.0))
    return Act("silu") if kind is nn.SiLU else None


class NormAct(torch.autograd.Function):
    """y of x, s, γ and β; their derivatives both ways."""

    @staticmethod
    def forward(
        x: Tensor,
        skip: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        var: Tensor,
        eps: float,
        act: Act,
        kernels: bool,
    ) -> Tensor:
        """y; ``kernels``: by them where they run, which a tracer cannot follow."""
        if kernels and (by := kernels_for(x)) is not None:
            return remembered(by.value, x, skip, (weight, bias, mean, var, eps), act)
        p = F.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)
        return act.value(p if skip is None else p + skip)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what both derivatives need."""
        *tensors, ctx.eps, ctx.act, ctx.kernels = inputs
        ctx.set_materialize_grads(False)  # an absent tangent is None, not zeros that would be read
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients at x, s, γ and β."""
        if g is None:
            return (None,) * 9
        x, skip, *fixed = ctx.saved_tensors
        by = kernels_for(x) if ctx.kernels else None
        dx, dskip, dweight, dbias = (_vjp if by is None else by.vjp)(x, skip, (*fixed, ctx.eps), ctx.act, g)
        return dx, dskip, dweight.to(fixed[0].dtype), dbias.to(fixed[1].dtype), *(None,) * 5

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        """dy."""
        x, skip, *fixed = ctx.saved_tensors
        by = kernels_for(x) if ctx.kernels else None
        return (_tangent if by is None else by.tangent)(x, skip, (*fixed, ctx.eps), ctx.act, *tangents[:4])


def _spread(t: Tensor, x: Tensor) -> Tensor:
    """A number per channel, shaped to broadcast over x (B, channels, …)."""
    return t.to(x.dtype).view((1, -1) + (1,) * (x.ndim - 2))


def _scale(norm: Norm, x: Tensor) -> Tensor:
    """a."""
    weight, _, _, var, eps = norm
    return _spread(weight * torch.rsqrt(var + eps), x)


def _inner(x: Tensor, skip: Tensor | None, norm: Norm) -> Tensor:
    """p."""
    weight, bias, mean, var, eps = norm
    p = torch.addcmul(_spread(bias - mean * weight * torch.rsqrt(var + eps), x), x, _scale(norm, x))
    return p if skip is None else p + skip


def _tangent(
    x: Tensor,
    skip: Tensor | None,
    norm: Norm,
    act: Act,
    dx: Tensor | None,
    dskip: Tensor | None,
    dweight: Tensor | None,
    dbias: Tensor | None,
) -> Tensor:
    weight, _, mean, var, eps = norm
    da = torch.zeros_like(weight) if dweight is None else dweight * torch.rsqrt(var + eps)
    dc = -mean * da if dbias is None else dbias - mean * da
    dp = torch.addcmul(_spread(dc, x), x, _spread(da, x))
    dp = dp if dx is None else torch.addcmul(dp, dx, _scale(norm, x))
    dp = dp if dskip is None else dp + dskip
    return dp if act.kind == "none" else dp * act.slopes(_inner(x, skip, norm))


def _vjp(
    x: Tensor, skip: Tensor | None, norm: Norm, act: Act, g: Tensor
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Gradients at x, s, γ and β; that of a normalisation alone is PyTorch's own."""
    weight, _, mean, var, eps = norm
    g = g if act.kind == "none" else g * act.slopes(_inner(x, skip, norm))
    fixed = (mean, var, mean, torch.rsqrt(var + eps), False, eps, [True] * 3)
    dx, dweight, dbias = torch.ops.aten.native_batch_norm_backward(g, x, weight, *fixed)
    return dx, None if skip is None else g, dweight, dbias


# --- in a network -------------------------------------------------------------------------------------------------


def quicken(module: nn.Module, *, kernels: bool = True) -> list[nn.Module]:
    """Give the plain batch normalisations of ``module`` these derivatives; returns them."""
    norms = [m for m in module.modules() if type(m) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)]
    norms = [m for m in norms if m.affine and m.running_mean is not None]
    for norm in norms:
        _take(norm, Act(), kernels)
    return norms


@torch.no_grad()
def absorb(module: nn.Module, norms: list[nn.Module], example: Tensor) -> int:
    """Let quickened normalisations do what follows them, a sum with the shortcut and an activation.

    What follows shows in a pass over the example. Whether the values between are used elsewhere does not: the outcome
    is compared, and one that differs is taken back.

    Returns:
        How many normalisations do more than they did.
    """
    before, follows = _watched(module, norms, example)
    for each in follows:
        each.absorb()
    if _same(module(example), before):
        return len(follows)
    for each in follows:
        each.restore()
    return 0


@dataclass(frozen=True)
class _Follow:
    """What follows one normalisation: an activation, or a `Residual`'s sum and activation."""

    norm: Any
    act: Any = None
    block: Any = None

    def absorb(self) -> None:
        act = Act() if self.act is None else (act_of(self.act) or Act())
        if self.act is not None:
            self.act.forward = _unchanged
        if self.block is None:
            _take(self.norm, act)
            return
        norm = self.norm
        norm.forward = _unchanged
        set_forward(self.block, lambda block, x: _apply(norm, block.branch(x), block.shortcut(x), act))

    def restore(self) -> None:
        _take(self.norm, Act())
        for other in (self.act, self.block):
            if other is not None:
                del other.forward


def _watched(module: nn.Module, norms: list[nn.Module], x: Tensor) -> tuple[Tensor, list[_Follow]]:
    """The module's value, and what follows its normalisations."""
    made: dict[int, list[tuple[Tensor, int]]] = {}  # with their versions: what is overwritten meanwhile is another
    taken: dict[int, list[tuple[Tensor, int]]] = {}
    acts = [m for m in module.modules() if act_of(m) is not None]
    blocks = [m for m in module.modules() if type(m) is Residual and m.shortcut is not None]
    ends = [*norms, *(b.branch for b in blocks)]
    handles = [
        m.register_forward_hook(lambda m, _, y: made.setdefault(id(m), []).append((y, y._version))) for m in ends
    ]
    handles += [
        m.register_forward_pre_hook(lambda m, xs: taken.setdefault(id(m), []).append((xs[0], xs[0]._version)))
        for m in acts
    ]
    try:
        z = module(x)
    finally:
        for handle in handles:
            handle.remove()

    def meets(norm: nn.Module, seen: list[tuple[Tensor, int]]) -> bool:
        mine = made.get(id(norm), [])
        return len(mine) == len(seen) == 1 and mine[0][0] is seen[0][0] and mine[0][1] == seen[0][1]

    follows = [_Follow(n, act=a) for n in norms for a in acts if meets(n, taken.get(id(a), []))]
    for b in (b for b in blocks if b.act is None or act_of(b.act) is not None):
        follows += [_Follow(n, b.act, b) for n in norms if meets(n, made.get(id(b.branch), []))]
    return z, follows


def _take(norm: Any, act: Act, kernels: bool = True) -> None:
    set_forward(norm, lambda own, x: _apply(own, x, None, act, kernels))


def _apply(norm: Any, x: Tensor, skip: Tensor | None, act: Act, kernels: bool = True) -> Tensor:
    return NormAct.apply(x, skip, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.eps, act, kernels)


def _unchanged(x: Tensor) -> Tensor:
    return x


def _same(a: Tensor, b: Tensor) -> bool:
    size = float(b.abs().max()) + 1e-30
    return bool(((a - b).abs().max() / size) < max(1e-6, 64 * torch.finfo(b.dtype).eps))
