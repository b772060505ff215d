"""Factored curvature as named tensors, and from them again, digit by digit."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from lqf.curvature.blocks import Channelwise, Kronecker
from lqf.curvature.kfac import KFAC
from lqf.linear.layers import NormLayer, Tape

Tensors = Mapping[str, Tensor]


def to_tensors(curvature: KFAC) -> dict[str, Tensor]:
    """u_a, u_g and d of every layer, lam and u of every normalisation."""
    out: dict[str, Tensor] = {}
    for name, block in curvature.kronecker.items():
        out |= {f"{name}/u_a": block.u_a, f"{name}/d": block.d}
        if block.u_g is not None:
            out[f"{name}/u_g"] = block.u_g
    for name, channel in curvature.channels.items():
        out |= {f"{name}/lam": channel.lam, f"{name}/u": channel.u}
    return out


def from_tensors(tape: Tape, tensors: Tensors, like: Tensor) -> KFAC:
    """The curvature of the layers of ``tape``, on the device and in the type of ``like``."""
    found: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, part = key.rpartition("/")
        found.setdefault(name, {})[part] = tensor.to(like)
    names = {lay.name: tuple(w for w in (lay.weight, lay.bias) if w) for lay in tape.layers}
    return KFAC(
        tape.body.layout,
        {n: Kronecker(t["u_a"], t.get("u_g"), t["d"]) for n, t in found.items() if "d" in t},
        {n: Channelwise(t["lam"], t["u"]) for n, t in found.items() if "lam" in t},
        {lay.name: lay for lay in tape.layers},
        {n: w for n, w in names.items() if n in {lay.name for lay in tape.layers if isinstance(lay, NormLayer)}}
        | {n: (n,) for n in tape.others},
    )
