"""First-order Taylor expansion of a module in its weights: J·v, Jᵀ·u and both from one forward pass.

For a module z(x; w) with weights w0 and a chosen subset of them (D numbers in all),

    z(x; w0 + δ) ≈ z(x; w0) + J(x) δ,        J(x) = ∂z/∂w at w0, one (O × D) matrix per sample.

Nothing here is specific to an architecture: forward-mode automatic differentiation gives J·v, reverse mode Jᵀ·u. The
module must be in eval mode, so that batch normalisation is a fixed affine map with linearised scale and shift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.autograd.forward_ad as fwd
from torch import Tensor, nn
from torch.func import functional_call

from lqf.backbones.prefix import split_at
from lqf.errors import LQFError


@dataclass(frozen=True)
class Layout:
    """Where each named weight lives in a flat vector of D numbers."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of entries of each weight."""
        return tuple(shape.numel() for shape in self.shapes)

    @property
    def size(self) -> int:
        """D, the length of the flat vector."""
        return sum(self.sizes)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Split a flat vector (D,) into views of the weights' shapes; writing to a view writes to the vector."""
        parts = flat.split(list(self.sizes))
        return {n: p.view(s) for n, p, s in zip(self.names, parts, self.shapes, strict=True)}

    def flatten(self, tensors: Iterable[Tensor]) -> Tensor:
        """The inverse of `views`."""
        return torch.cat([t.reshape(-1) for t in tensors]) if self.names else torch.zeros(0)


class Linearization:
    """The Taylor expansion of ``module`` in the weights called ``names`` (default: all of them).

    Example:
        >>> net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).eval()
        >>> lin = Linearization(net)
        >>> v = torch.randn(lin.size)
        >>> z, dz = lin.jvp(torch.randn(5, 3), v)
        >>> dz.shape
        torch.Size([5, 2])
    """

    layers_as_written = True
    """Whether the module still runs layer by layer, so that hooks see what each of them is given."""

    def __init__(self, module: nn.Module, names: Sequence[str] | None = None):
        if any(m.training for m in module.modules()):
            raise LQFError("a module is linearised in eval mode; call `module.eval()` first")
        weights = dict(module.named_parameters())
        chosen = tuple(weights) if names is None else tuple(names)
        unknown = [n for n in chosen if n not in weights]
        if unknown:
            raise LQFError(f"the module has no weights called {unknown[:5]}; it has {list(weights)[:5]} …")
        self.module = module
        self._owners = _owners(module, {id(weights[n]): n for n in chosen})
        self.layout = Layout(chosen, tuple(weights[n].shape for n in chosen))

    @property
    def size(self) -> int:
        """D, the number of linearised weights."""
        return self.layout.size

    def weights(self) -> dict[str, Tensor]:
        """The linearised weights at w0, detached from every graph."""
        own = dict(self.module.named_parameters())
        return {n: own[n].detach() for n in self.layout.names}

    def call(self, weights: dict[str, Tensor], x: Tensor) -> Tensor:
        """The module with other values of some linearised weights."""
        swapped = {alias: w for n, w in weights.items() for alias in self._owners[n]}
        return functional_call(self.module, swapped, (x,), tie_weights=False)

    def value(self, x: Tensor) -> Tensor:
        """z(x; w0), (B, O)."""
        with torch.no_grad():
            return self.module(x)

    def jvp(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """z(x; w0) and J(x)·v, both (B, O)."""
        with torch.no_grad():
            return self._dual(self.weights(), self.layout.views(v), x)

    def value_and_vjp(self, x: Tensor, cotangent: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """z(x; w0), (B, O), and J(x)ᵀ·u with u = cotangent(z), summed over the batch, (D,)."""
        weights = {n: w.requires_grad_() for n, w in self.weights().items()}
        z = self.call(weights, x)
        return z.detach(), self._vjp(z, weights, cotangent(z.detach()))

    def vjp(self, x: Tensor, u: Tensor) -> Tensor:
        """J(x)ᵀ·u for u (B, O), summed over the batch, (D,)."""
        return self.value_and_vjp(x, lambda _: u)[1]

    def fused(self, x: Tensor, v: Tensor, cotangent: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """J·v and then Jᵀ·u with u = cotangent(z, J·v), from one shared forward pass of the primal.

        The tangent travels with the primal as a dual number; once the dual level is left, the reverse pass runs on
        the primal's own graph (inside the level it would differentiate the tangent too, at twice the cost).

        Returns:
            J·v, (B, O), and Jᵀ·u, (D,).
        """
        weights = {n: w.requires_grad_() for n, w in self.weights().items()}
        z, dz = self._dual(weights, self.layout.views(v), x)
        dz = dz.detach()
        return dz, self._vjp(z, weights, cotangent(z.detach(), dz))

    def rescale(self) -> bool:
        """Make the products of a narrow floating-point type smaller, where they have left its range and can be."""
        return False

    def _dual(
        self,
        weights: dict[str, Tensor],
        tangents: dict[str, Tensor],
        x: Tensor,
        around: AbstractContextManager[Any] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """z and its tangent; ``around``: entered for the pass itself."""
        with fwd.dual_level():
            duals = {n: fwd.make_dual(w, tangents[n]) for n, w in weights.items()}
            with around or nullcontext():
                out = self.call(duals, x)
            z, dz = fwd.unpack_dual(out)
        return z, torch.zeros_like(z) if dz is None else dz

    def _vjp(self, z: Tensor, weights: dict[str, Tensor], u: Tensor) -> Tensor:
        if not weights:
            return z.new_zeros(0)
        grads = torch.autograd.grad(z, list(weights.values()), u, materialize_grads=True, allow_unused=True)
        return self.layout.flatten(grads)


def _owners(module: nn.Module, chosen: dict[int, str]) -> dict[str, list[str]]:
    """For each weight one name per module object that holds it.

    `functional_call` could tie shared weights itself, but where one module is registered under two names it then
    restores the swapped value instead of the original and silently changes the network.
    """
    out: dict[str, list[str]] = {n: [] for n in chosen.values()}
    seen = set()
    for prefix, owner in module.named_modules(remove_duplicate=True):
        for key, weight in owner._parameters.items():
            if id(weight) in chosen and (id(owner), key) not in seen:
                seen.add((id(owner), key))
                out[chosen[id(weight)]].append(f"{prefix}.{key}" if prefix else key)
    return out


def linearized_body(body: nn.Module, stage: str = "all") -> tuple[nn.Module | None, Linearization]:
    """The frozen prefix (None for "all") and the Taylor expansion of the rest, which begins with ``stage``."""
    if stage == "all":
        return None, Linearization(body)
    prefix, suffix = split_at(body, stage)
    return prefix, Linearization(suffix)
