"""Cut a network in two at a named stage: the frozen prefix is computed once, the suffix is what gets linearised.

    suffix(prefix(x)) = body(x),    and the suffix holds exactly the weights that act from the stage on.

An nn.Sequential is cut between its children. Any other module is traced with torch.fx and its graph is cut where the
stage begins; that needs the module to be traceable and a single tensor to cross the cut (no skip connection over it).
The two parts share their weights with the body, under the same names.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import fx, nn

from lqf.backbones.bilinear_pool import BilinearPool, may_be_average
from lqf.backbones.both_pool import BothPool
from lqf.backbones.token_pool import TokenPool
from lqf.errors import LQFError

OURS = "lqf"
"""Marks graphs whose operations know the submodules they were traced in."""


def split_at(body: nn.Module, stage: str) -> tuple[nn.Module, nn.Module]:
    """(prefix, suffix) of `body`; `stage` is the dotted name of the submodule with which the suffix begins."""
    if stage not in dict(body.named_modules()) or not stage:
        raise LQFError(f"the backbone has no stage `{stage}`; choose one of {_listed(stages(body))}")
    parts = _split_sequential(body, stage) or _split_graph(body, stage)
    _refuse_shared_weights(*parts, stage)
    return parts[0].eval(), parts[1].eval()


def stages(body: nn.Module) -> tuple[str, ...]:
    """Names at which `body` can be cut, in forward order: submodules with weights, and the parts of large ones."""
    children = tuple(name for name, m in body.named_children() if _size(m))
    if _is_sequential(body) and len(children) > 1:
        return children
    try:
        traced = trace(body)
    except LQFError:
        return ()
    first: dict[int, str] = {}  # where two names begin at the same place, the outer one comes first and stays
    for name in _candidates(body):
        if name in traced.starts and len(traced.crossing(name)) == 1:
            first.setdefault(traced.starts[name], name)
    return tuple(first[at] for at in sorted(first))


def _candidates(module: nn.Module, path: str = "") -> Iterator[str]:
    for name, child in module.named_children():
        if _size(child):
            yield path + name
            if _size(child) > _size(module) / 2 and path.count(".") < 2:
                yield from _candidates(child, f"{path}{name}.")


def _size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _split_sequential(body: nn.Module, stage: str) -> tuple[nn.Module, nn.Module] | None:
    """Cut between children, and inside a child where that is an nn.Sequential too; None where one is not."""
    if not _is_sequential(body):
        return None
    name, _, inner = stage.partition(".")
    children = list(body._modules.items())  # named_children() would leave out a module that appears twice
    at = [n for n, _ in children].index(name)
    before, after = children[:at], children[at:]
    if inner:
        cut = _split_sequential(body.get_submodule(name), inner)
        if cut is None:
            return None
        before, after = [*before, (name, cut[0])], [(name, cut[1]), *after[1:]]
    return nn.Sequential(OrderedDict(before)), nn.Sequential(OrderedDict(after))  # type: ignore[arg-type]


def _is_sequential(module: nn.Module) -> bool:
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


@dataclass
class Trace:
    """A module's operations in order, and for each submodule the position at which it first begins.

    Attributes:
        graph: the operations.
        starts: by name of a submodule.
        given: the tensor that a submodule takes, where it is called once and that is a value of the graph.
        made: the tensor that it makes, likewise.
    """

    graph: fx.Graph
    starts: dict[str, int]
    given: dict[str, fx.Node]
    made: dict[str, fx.Node]
    nodes: list[fx.Node] = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = list(self.graph.nodes)

    def crossing(self, stage: str) -> list[fx.Node]:
        """Values made before the stage begins and used from there on."""
        cut = self.starts[stage]
        later = set(self.nodes[cut:])
        return [n for n in self.nodes[:cut] if any(user in later for user in n.users)]

    @property
    def maker(self) -> str | None:
        """Name of the submodule whose result is the output as it stands; None where something else makes it."""
        made = self.nodes[-1].args[0]
        return str(made.target) if isinstance(made, fx.Node) and made.op == "call_module" else None


def trace(module: nn.Module) -> Trace:
    """Trace the forward of one tensor; further arguments keep their defaults."""
    if isinstance(module, fx.GraphModule) and OURS in module.meta:
        return _traced_before(module.graph)
    tracer = _Tracer()
    try:
        graph = tracer.trace(module)
    except Exception as error:  # whatever a foreign forward does with a symbolic tensor
        reason = str(error).partition("\n")[0].partition(". ")[0] or type(error).__name__
        raise LQFError(
            f"{type(module).__name__} cannot be cut: torch.fx cannot trace its forward ({reason}); "
            "linearise all of it, or write it as an nn.Sequential of stages"
        ) from error
    return Trace(graph, tracer.starts, tracer.once(tracer.given), tracer.once(tracer.made))


def _traced_before(graph: fx.Graph) -> Trace:
    """Of a part of a network: it calls layers alone, but its operations know what they were a part of."""
    starts: dict[str, int] = {}
    given: dict[str, fx.Node] = {}
    made: dict[str, fx.Node] = {}
    for at, node in enumerate(graph.nodes):
        for name, _ in node.meta.get("nn_module_stack", {}).values():
            starts.setdefault(name, at)
        if node.op == "call_module":
            starts.setdefault(str(node.target), at)
            made[str(node.target)] = node
            given |= {str(node.target): n for n in node.args[:1] if isinstance(n, fx.Node)}
    return Trace(graph, starts, given, made)


def as_module(body: nn.Module, graph: fx.Graph) -> fx.GraphModule:
    """Operations of a trace of ``body`` as a module, with the body's own weights under their names."""
    out = fx.GraphModule(body, graph)
    out.meta[OURS] = True
    return out


class _Tracer(fx.Tracer):
    """Notes where each submodule begins; leaves alone what timm declares untraceable, if timm is loaded."""

    def __init__(self) -> None:
        layers = sys.modules.get("timm.layers")
        super().__init__(autowrap_functions=tuple(layers.get_notrace_functions()) if layers else ())
        self._opaque = tuple(layers.get_notrace_modules()) if layers else ()
        self.starts: dict[str, int] = {}
        self.given: dict[str, fx.Node] = {}
        self.made: dict[str, fx.Node] = {}

    def once(self, nodes: dict[str, fx.Node]) -> dict[str, fx.Node]:
        """Of those submodules that are called only once."""
        return {name: node for name, node in nodes.items() if self.num_calls[name] == 1}

    def create_args_for_root(self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None) -> Any:
        # one tensor only: an optional mask would otherwise become symbolic, and `if mask is not None` would be true
        return root_fn, [self.root, self.create_proxy("placeholder", "x", (), {})]

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if isinstance(m, BilinearPool | BothPool | TokenPool) or may_be_average(m):
            return True  # looked for, and replaced, as a whole
        if isinstance(m, nn.LayerNorm):  # timm's, too: a layer that there are rules for
            return True
        return type(m) in self._opaque or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        name = self.path_of_module(m)
        self.starts.setdefault(name, len(self.graph.nodes))
        out = super().call_module(m, forward, args, kwargs)
        if args and isinstance(args[0], fx.Proxy):
            self.given[name] = args[0].node
        if isinstance(out, fx.Proxy):
            self.made[name] = out.node
        return out


def _split_graph(body: nn.Module, stage: str) -> tuple[nn.Module, nn.Module]:
    traced = trace(body)
    usable = _listed(stages(body))
    if stage not in traced.starts:
        raise LQFError(f"`{stage}` is never called as a whole; choose one of {usable}")
    crossing = traced.crossing(stage)
    if len(crossing) != 1:
        found = ", ".join(n.name for n in crossing)
        raise LQFError(
            f"the network cannot be cut at `{stage}`: {len(crossing)} values cross there ({found}), "
            f"one tensor is needed; choose one of {usable}"
        )
    cut, (passed,) = traced.starts[stage], crossing
    prefix, suffix = fx.Graph(), fx.Graph()
    _copy(traced.nodes[:cut], prefix, {}, passed)
    _copy(traced.nodes[cut:-1], suffix, {passed: suffix.placeholder("x")}, traced.nodes[-1].args[0])
    return as_module(body, prefix), as_module(body, suffix)


def _copy(nodes: list[fx.Node], graph: fx.Graph, known: dict[fx.Node, fx.Node], result: Any) -> None:
    for node in nodes:
        known[node] = graph.node_copy(node, known.__getitem__)
    graph.output(fx.map_arg(result, known.__getitem__))


def _refuse_shared_weights(prefix: nn.Module, suffix: nn.Module, stage: str) -> None:
    later = {id(p): name for name, p in suffix.named_parameters()}
    shared = [later[id(p)] for p in prefix.parameters() if id(p) in later]
    if shared:
        raise LQFError(f"the network cannot be cut at `{stage}`: `{shared[0]}` acts on both sides of the cut")


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) if names else "`all`"
