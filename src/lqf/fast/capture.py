"""Functions of tensors as compiled graphs: traced once per shape, freed of what is computed twice, compiled.

A derivative that is traced through automatic differentiation repeats itself (the primal appears in the tangent's and in
the gradient's part, small per-channel factors many times over); equal operations on equal operands are merged before
the compiler sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx


class Captured:
    """``function`` compiled for every shape of its first argument that turns up.

    Args:
        function: of tensors and lists of tensors; no branches on their values.
        say: called with the reason where tracing or compilation fails.
        otherwise: what runs then; default: the function as it is.
        backend: of `torch.compile`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        say: Callable[[str], None] = lambda _: None,
        *,
        otherwise: Callable[..., Any] | None = None,
        backend: str = "inductor",
    ):
        self.function, self.say, self.otherwise, self.backend = function, say, otherwise or function, backend
        self._graphs: dict[torch.Size, Callable[..., Any]] = {}

    def __call__(self, first: Tensor, /, *rest: Any) -> Any:
        """The function's value."""
        graph = self._graphs.get(first.shape)
        if graph is None:
            graph, out = self._compiled(first, *rest)
            self._graphs[first.shape] = graph
            return out
        return graph(first, *rest)

    def _compiled(self, *args: Any) -> tuple[Callable[..., Any], Any]:
        try:
            with torch.no_grad():
                traced = merge_equal(make_fx(lambda *a: self.function(*a))(*args))
                graph = torch.compile(traced, dynamic=False, backend=self.backend)
                return graph, graph(*args)
        except Exception as error:  # whatever a compiler can fail with must not end a fit
            reason = str(error).strip().split("\n")[0][:200] or type(error).__name__
            self.say(f"compilation failed ({reason}); continuing without it")
            return self.otherwise, self.otherwise(*args)


def merge_equal(graph: fx.GraphModule) -> fx.GraphModule:
    """Compute equal pure operations on equal operands once."""
    seen: dict[Hashable, fx.Node] = {}
    for node in list(graph.graph.nodes):
        if node.op != "call_function" or _mutates(node):
            continue
        key = (node.target, _key(node.args), _key(node.kwargs))
        first = seen.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


def _mutates(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is None or schema.is_mutable or "nondeterministic_seeded" in str(getattr(node.target, "tags", ""))


def _key(value: Any) -> Hashable:
    """A hashable stand-in: nodes by identity, everything else by type and value (0 is not 0.0, True is not 1)."""
    if isinstance(value, fx.Node):
        return ("node", id(value))
    if isinstance(value, list | tuple):
        return (type(value).__name__, tuple(_key(v) for v in value))
    if isinstance(value, dict):
        return tuple((k, _key(v)) for k, v in sorted(value.items()))
    return (type(value).__name__, repr(value))
