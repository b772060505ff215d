"""A network and its derivative along δ as two streams through one graph: x -> (z(x), J(x)·δ).

The network is captured as a graph of PyTorch's operations, batch normalisation is absorbed by the convolutions before
it, and every operation then takes value and derivative along (`lqf.fast.derivatives`). The derivative of a folded
convolution in (w, γ, β) is a convolution again:

    W = γ/σ · w,  dW = γ/σ · dw + dγ/σ · w,      B = β − γμ/σ,  dB = dβ − dγ μ/σ        (b of w: B + γ/σ · b).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from lqf.fast.derivatives import Dual, derive
from lqf.fast.gates import join_leaky6

aten = torch.ops.aten
LARGEST = 65_535
"""Inputs of a batch: as many as a batch normalisation on a GPU takes."""


class TwoStreams(nn.Module):
    """x -> (z, J·δ), by ordinary operations.

    Args:
        network: in eval mode.
        tangents: δ, by the name of every weight that it changes.
        example: inputs (B, …), B ≥ 2.
    """

    def __init__(self, network: nn.Module, tangents: dict[str, Tensor], example: Tensor):
        super().__init__()
        with torch.no_grad():
            batch = torch.export.Dim("batch", min=1, max=LARGEST)  # made here: the first one imports all of SymPy
            program = torch.export.export(network, (example,), dynamic_shapes=({0: batch},), strict=False)
        graph = program.module(check_guards=False)
        assert isinstance(graph, fx.GraphModule)
        self.nodes = fx.Graph()
        self.nodes.output(self.nodes.graph_copy(graph.graph, {}))
        self._names: dict[str, str] = {}
        tangents = _by_every_name(network, tangents)
        for node in graph.graph.nodes:
            if node.op == "get_attr":
                value = _attribute(graph, node.target)
                self._keep(node.target, value.detach(), tangents.get(node.target))
        _absorb_batch_norms(self)
        join_leaky6(self.nodes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """z and J·δ, both (B, p)."""
        known: dict[fx.Node, Any] = {}
        out: Dual = Dual(x, None)
        for node in self.nodes.nodes:
            if node.op == "placeholder":
                known[node] = Dual(x, None)
            elif node.op == "get_attr":
                known[node] = self.weight(node.target)
            elif node.op == "call_function":
                args, kwargs = fx.map_arg((node.args, node.kwargs), known.__getitem__)
                known[node] = derive(node.target, _plain(args), dict(kwargs))
            elif node.op == "output":
                out = _first(fx.map_arg(node.args[0], known.__getitem__))
            else:
                raise TypeError(f"a captured network has no `{node.op}`")
        return out.value, torch.zeros_like(out.value) if out.tangent is None else out.tangent

    def weight(self, name: str) -> Dual:
        """A weight and its change."""
        value = self._buffers[self._names[name]]
        assert value is not None
        return Dual(value, self._buffers.get(f"{self._names[name]}_change"))

    def _keep(self, name: str, value: Tensor, tangent: Tensor | None) -> None:
        self._names[name] = flat = f"w{len(self._names)}" if name not in self._names else self._names[name]
        self.register_buffer(flat, value)
        if tangent is not None:
            self.register_buffer(f"{flat}_change", tangent.detach().to(value))

    def _drop_unused(self) -> None:
        used = {node.target for node in self.nodes.nodes if node.op == "get_attr"}
        for name in [n for n in self._names if n not in used]:
            flat = self._names.pop(name)
            for buffer in (flat, f"{flat}_change"):
                self._buffers.pop(buffer, None)


def _absorb_batch_norms(streams: TwoStreams) -> None:
    """Convolutions followed by nothing but a batch normalisation become one convolution."""
    graph = streams.nodes
    for norm in [n for n in graph.nodes if n.target is aten.batch_norm.default]:
        conv = norm.args[0]
        known = all(a is None or (isinstance(a, fx.Node) and a.op == "get_attr") for a in norm.args[1:5])
        if not known or conv.target is not aten.conv2d.default or len(conv.users) != 1:
            continue
        if any(a is not None and a.op != "get_attr" for a in conv.args[1:3]):
            continue
        weight, bias = _folded(streams, conv, norm)
        names = [f"{conv.name}.folded_{what}" for what in ("weight", "bias")]
        for name, dual in zip(names, (weight, bias), strict=True):
            streams._keep(name, *dual)
        with graph.inserting_before(conv):
            nodes = [graph.create_node("get_attr", name) for name in names]
        conv.args = (conv.args[0], *nodes, *conv.args[3:])
        norm.replace_all_uses_with(conv)
        graph.erase_node(norm)
    graph.eliminate_dead_code()
    streams._drop_unused()


def _folded(streams: TwoStreams, conv: Any, norm: Any) -> tuple[Dual, Dual]:
    """W and B of the module's docstring, computed in float64."""

    def of(node: Any, otherwise: float | None = None) -> tuple[Tensor | None, Tensor | None]:
        if node is None:
            return (None if otherwise is None else torch.full_like(mean, otherwise)), None
        value, tangent = streams.weight(node.target)
        return value.double(), None if tangent is None else tangent.double()

    eps = norm.args[7]
    mean, var = (streams.weight(a.target).value.double() for a in norm.args[3:5])
    (w, dw), (b, db) = of(conv.args[1]), of(conv.args[2] if len(conv.args) > 2 else None, 0.0)
    (gamma, dgamma), (beta, dbeta) = of(norm.args[1], 1.0), of(norm.args[2], 0.0)
    assert w is not None and b is not None and gamma is not None and beta is not None
    sigma, dtype = (var + eps).sqrt(), streams.weight(conv.args[1].target).value.dtype
    zero = torch.zeros_like(mean)
    scale, dscale = gamma / sigma, (zero if dgamma is None else dgamma / sigma)
    weight, bias = scale[:, None, None, None] * w, beta + scale * (b - mean)
    if all(t is None for t in (dw, db, dgamma, dbeta)):
        return Dual(weight.to(dtype), None), Dual(bias.to(dtype), None)
    dweight = dscale[:, None, None, None] * w + (0 if dw is None else scale[:, None, None, None] * dw)
    dbias = (zero if dbeta is None else dbeta) + dscale * (b - mean) + (zero if db is None else scale * db)
    return Dual(weight.to(dtype), dweight.to(dtype)), Dual(bias.to(dtype), dbias.to(dtype))


def _by_every_name(network: nn.Module, tangents: dict[str, Tensor]) -> dict[str, Tensor]:
    """A weight that the network holds under several names has its change under each of them."""
    by_weight = {id(w): tangents[n] for n, w in network.named_parameters(remove_duplicate=False) if n in tangents}
    every = network.named_parameters(remove_duplicate=False)
    return {n: by_weight[id(w)] for n, w in every if id(w) in by_weight}


def _attribute(module: nn.Module, name: str) -> Tensor:
    owner, _, leaf = name.rpartition(".")
    value = getattr(module.get_submodule(owner), leaf)
    assert isinstance(value, Tensor)
    return value


def _plain(x: Any) -> Any:
    """Graphs have immutable lists of their own; operations want ordinary ones. A `Dual` stays what it is."""
    if isinstance(x, Dual):
        return x
    if isinstance(x, tuple):
        return tuple(_plain(v) for v in x)
    return [_plain(v) for v in x] if isinstance(x, list) else x


def _first(x: Any) -> Dual:
    out = x if isinstance(x, Dual) else x[0]
    assert isinstance(out, Dual)
    return out
