"""Batch normalisation by running statistics and the activation behind it, as one map with its own derivatives.

    y = φ(p),  p = a x + c,      a = γ/√(var + ε),  c = β − mean·a        per channel,

    J·v:   dy = φ'(p) (a dx + da x + dc),         da = dγ/√(var + ε),  dc = dβ − mean·da,
    Jᵀ·u:  with g' = φ'(p) g:   x ← a g',   β ← Σ g',   γ ← (Σ g'x − mean Σ g')/√(var + ε).

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
from lqf.norm_kernels import kernels_for


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
    """y of x, γ and β; their derivatives both ways."""

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, eps: float, act: Act, kernels: bool
    ) -> Tensor:
        """y; ``kernels``: by them where they run, which a tracer cannot follow."""
        if kernels and (by := kernels_for(x)) is not None:
            return by.value(x, *_affine(weight, bias, mean, var, eps), act)
        return act.value(F.batch_norm(x, mean, var, weight, bias, False, 0.0, eps))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what both derivatives need."""
        *tensors, ctx.eps, ctx.act, ctx.kernels = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients at x, γ and β."""
        x, weight, bias, mean, var = ctx.saved_tensors
        a, c = _affine(weight, bias, mean, var, ctx.eps)
        if ctx.kernels and (by := kernels_for(x)) is not None:
            dx, sums, moments = by.pull(x, g, a, c, ctx.act)
        else:
            dx, sums, moments = _pull(x, g, a, c, ctx.act)
        dweight = (moments - mean * sums) * torch.rsqrt(var + ctx.eps)
        return dx, dweight.to(weight.dtype), sums.to(bias.dtype), *(None,) * 5

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dweight: Tensor | None, dbias: Tensor | None, *_: Any) -> Tensor:
        """dy."""
        x, weight, bias, mean, var = ctx.saved_tensors
        a, c = _affine(weight, bias, mean, var, ctx.eps)
        da = torch.zeros_like(a) if dweight is None else dweight * torch.rsqrt(var + ctx.eps)
        dc = -mean * da if dbias is None else dbias - mean * da
        if ctx.kernels and (by := kernels_for(x)) is not None:
            return by.tangent(x, dx, a, c, da, dc, ctx.act)
        a, c, da, dc = (_spread(t, x) for t in (a, c, da, dc))
        dp = torch.addcmul(dc, x, da)
        dp = dp if dx is None else torch.addcmul(dp, dx, a)
        return dp if ctx.act.kind == "none" else dp * ctx.act.slopes(torch.addcmul(c, x, a))


def _affine(weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    a = weight * torch.rsqrt(var + eps)
    return a, bias - mean * a


def _spread(t: Tensor, x: Tensor) -> Tensor:
    """A number per channel, beside x (B, channels, …)."""
    return t.to(x.dtype).view((1, -1) + (1,) * (x.ndim - 2))


def _pull(x: Tensor, g: Tensor, a: Tensor, c: Tensor, act: Act) -> tuple[Tensor, Tensor, Tensor]:
    """a g', Σ g' and Σ g'x, the sums over all but the channels and in the type of a."""
    if act.kind != "none":
        g = g * act.slopes(torch.addcmul(_spread(c, x), x, _spread(a, x)))
    others = [d for d in range(x.ndim) if d != 1]
    return g * _spread(a, x), g.sum(others, dtype=a.dtype), (g * x).sum(others, dtype=a.dtype)


# --- in a network -------------------------------------------------------------------------------------------------


def quicken(module: nn.Module, *, kernels: bool = True) -> list[nn.Module]:
    """Give the plain batch normalisations of ``module`` these derivatives; returns them."""
    norms = [m for m in module.modules() if type(m) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)]
    norms = [m for m in norms if m.affine and m.running_mean is not None]
    for norm in norms:
        _take(norm, Act(), kernels)
    return norms


@torch.no_grad()
def absorb_activations(module: nn.Module, norms: list[nn.Module], example: Tensor) -> int:
    """Let quickened normalisations do the activation that follows them; returns how many do.

    Which activation that is shows in a pass over the example. Whether the value between the two is used elsewhere does
    not: the outcome is compared, and one that differs is taken back.
    """
    before, pairs = _watched(module, norms, example)
    for norm, act in pairs:
        _take(norm, act_of(act) or Act())
        act.forward = _unchanged
    if _same(module(example), before):
        return len(pairs)
    for norm, act in pairs:
        _take(norm, Act())
        del act.forward
    return 0


def _watched(module: nn.Module, norms: list[nn.Module], x: Tensor) -> tuple[Tensor, list[tuple[nn.Module, Any]]]:
    """The module's value, and the pairs of a normalisation and the activation that takes its output."""
    made: list[tuple[nn.Module, Tensor]] = []
    taken: list[tuple[nn.Module, Tensor]] = []
    handles = [m.register_forward_hook(lambda m, _, y: made.append((m, y))) for m in norms]
    acts = [m for m in module.modules() if act_of(m) is not None]
    handles += [m.register_forward_pre_hook(lambda m, inputs: taken.append((m, inputs[0]))) for m in acts]
    try:
        z = module(x)
    finally:
        for handle in handles:
            handle.remove()
    once = {id(m) for each in (made, taken) for m, _ in each if sum(m is other for other, _ in each) == 1}
    pairs = [(norm, act) for norm, y in made for act, p in taken if p is y and {id(norm), id(act)} <= once]
    return z, pairs


def _take(norm: Any, act: Act, kernels: bool = True) -> None:
    def forward(x: Tensor) -> Tensor:
        return NormAct.apply(x, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.eps, act, kernels)

    norm.forward = forward


def _unchanged(x: Tensor) -> Tensor:
    return x


def _same(a: Tensor, b: Tensor) -> bool:
    size = float(b.abs().max()) + 1e-30
    return bool(((a - b).abs().max() / size) < max(1e-6, 64 * torch.finfo(b.dtype).eps))
