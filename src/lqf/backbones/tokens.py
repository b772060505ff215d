"""The last tokens of a network, of which its features are made: found by what the features depend on.

A tensor t in the middle of a network is its last tokens where
- the features z are a function of t alone, with no weights but those of norms (vectors) after it;
- of t (B, T, D) that function takes one or a few leading tokens (class, distillation), or the mean of all tokens or of
  all after a few; of a map the mean of all positions. With g = ∂(r·z)/∂t for a random r this is: g is zero at all other
  tokens, or it is the same at all tokens that are averaged.

Prefix tokens are those that, where tokens first come together, do not depend on the image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any

import torch
from torch import Tensor, fx, nn

from lqf.backbones.average_pool import find_average_pool
from lqf.backbones.prefix import Trace, as_module, trace
from lqf.backbones.token_pool import Layout, Side, Tokens
from lqf.errors import LQFError

CLOSE = 1e-4
"""Of the largest entry: differences within it are rounding."""


def find_tokens(body: nn.Module, example: Tensor) -> Tokens | None:
    """The last tokens of a network, or its last map; None where there are none, or where it cannot be traced.

    Networks whose features are just the average that a module makes (`find_average_pool`) have none: they are pooled
    in its place.

    Args:
        body: images -> features; the whole of it, from the images on.
        example: a few images as it takes them.
    """
    if find_average_pool(body, example) is not None:
        return None
    try:
        seen = _watched(body, example)
    except LQFError:
        return None
    if seen is None:
        return None
    for name, side, node in _candidates(seen.trace):
        if not seen.ends_in_norms(node):
            return None  # nor do earlier ones
        found = _tokens_at(seen, name, side, node)
        if found is not None:
            return found
    return None


@dataclass
class _Seen:
    """One pass through a network.

    Attributes:
        body: the network.
        trace: its operations.
        values: of every operation.
        versions: of those values that are tensors, when they were made: they may have been overwritten since.
        z: the features.
    """

    body: nn.Module
    trace: Trace
    values: dict[fx.Node, Any]
    versions: dict[fx.Node, int]
    z: Tensor

    def later(self, node: fx.Node) -> list[fx.Node]:
        """Operations after one."""
        return self.trace.nodes[self.trace.nodes.index(node) + 1 :]

    def ends_in_norms(self, node: fx.Node) -> bool:
        """Whether all weights after a value are vectors."""
        later = self.later(node)
        weights = [self.values[n] for user in later for n in user.all_input_nodes if n.op == "get_attr"]
        called = [self.body.get_submodule(str(n.target)) for n in later if n.op == "call_module"]
        weights += [w for module in called for w in module.parameters()]
        return all(w.ndim <= 1 for w in weights if isinstance(w, nn.Parameter))

    def gradient(self, node: fx.Node) -> Tensor | None:
        """∂(r·z)/∂t of a value t; None where z is not a function of t alone, or t was overwritten."""
        t, later = self.values[node], self.later(node)
        if not isinstance(t, Tensor) or not t.requires_grad or t._version != self.versions[node]:
            return None
        used = {n for user in later for n in user.all_input_nodes if n.op != "get_attr"} - {node, *later}
        if any(isinstance(self.values[n], Tensor) for n in used):
            return None
        r = torch.randn(self.z.shape, generator=torch.Generator().manual_seed(0)).to(self.z)
        return torch.autograd.grad((r * self.z).sum(), t, retain_graph=True, allow_unused=True)[0]


def _watched(body: nn.Module, example: Tensor) -> _Seen | None:
    """A pass of two images through the traced network; None where it does not do what the network does."""
    x = example[:2].detach()
    x = x if len(x) == 2 else torch.cat([x, -x])
    traced = trace(body)
    runner = _Runner(as_module(body, traced.graph), garbage_collect_values=False)
    with torch.enable_grad():
        z = runner.run(x.clone().requires_grad_().clone())
    with torch.no_grad():
        expected = body(x)
    alike = isinstance(z, Tensor) and z.ndim == 2 and z.requires_grad and _within(z.detach() - expected, expected)
    return _Seen(body, traced, runner.values, runner.versions, z) if alike else None


class _Runner(fx.Interpreter):
    """Keeps the value of every operation."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.values: dict[fx.Node, Any] = {}
        self.versions: dict[fx.Node, int] = {}

    def run_node(self, n: fx.Node) -> Any:
        out = self.values[n] = super().run_node(n)
        if isinstance(out, Tensor):
            self.versions[n] = out._version
        return out


def _candidates(traced: Trace) -> Iterator[tuple[str, Side, fx.Node]]:
    """What modules make and take, the last first; what several of them make by the name of the outermost."""
    sides: tuple[tuple[Side, dict[str, fx.Node]], ...] = (("output", traced.made), ("input", traced.given))
    names: dict[fx.Node, tuple[str, Side]] = {}
    for side, nodes in sides:
        for name in sorted(nodes, key=lambda n: n.count(".")):
            names.setdefault(nodes[name], (name, side))
    for node in reversed(traced.nodes):
        if node in names:
            yield *names[node], node


def _tokens_at(seen: _Seen, name: str, side: Side, node: fx.Node) -> Tokens | None:
    t, g = seen.values[node], seen.gradient(node)
    p = seen.z.shape[1]
    if g is None or not g.any():
        return None
    if t.ndim == 3 and t.shape[2] == p:
        return _tokens_in_a_row(seen, name, side, g)
    layouts: tuple[tuple[Layout, int, tuple[int, int]], ...] = (("channels_last", 3, (1, 2)), ("map", 1, (2, 3)))
    for layout, channel, (h, w) in layouts:
        if t.ndim == 4 and t.shape[channel] == p and t.shape[h] * t.shape[w] > 1 and _even(g, (h, w)):
            return Tokens(name, side, layout, 0, p, t.shape[h] * t.shape[w], "mean")
    return None


def _tokens_in_a_row(seen: _Seen, name: str, side: Side, g: Tensor) -> Tokens | None:
    """Of tokens (B, T, D) whose gradient is g."""
    count, p = g.shape[1:]
    used = (g.abs().amax((0, 2)) > 0).tolist()
    first, last = used.index(True), count - 1 - used[::-1].index(True)
    if not all(used[first : last + 1]) or (first > 0 and last < count - 1):
        return None
    averaged, known = last == count - 1 and _even(g[:, first:], (1,)), _constant_tokens(seen, count)
    if averaged:
        k = first or known
    elif first == 0 and last < count - 1:
        k = known if known > last else count - isqrt(count - 1 - last) ** 2  # the patches are a square
    else:
        return None
    return Tokens(name, side, "tokens", k, p, count - k, "mean" if averaged else "class") if count - k > 1 else None


def _constant_tokens(seen: _Seen, count: int) -> int:
    """Leading tokens that are the same for two images where so many tokens first come together."""
    for t in seen.values.values():
        if isinstance(t, Tensor) and t.ndim == 3 and t.shape[:2] == (2, count):
            same = (t[0] == t[1]).all(1).tolist()
            return same.index(False) if not all(same) else 0
    return 0


def _even(g: Tensor, dims: Sequence[int]) -> bool:
    return _within(g - g.mean(tuple(dims), keepdim=True), g)


def _within(difference: Tensor, of: Tensor) -> bool:
    return bool(difference.abs().max() <= CLOSE * of.abs().max())
