"""Kernels that a fit will need, compiled in threads of their own while it reads its features.

Triton compiles a kernel when it is first launched, half a second each, once per machine. A ResNet needs some thirty of
them (types, shortcuts, activations), one after the other, unless they are asked for beforehand.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from lqf.fast.ops.depthwise import window_of
from lqf.fast.ops.norm import Act, act_of
from lqf.fast.triton.depthwise import tile, weight_tile
from lqf.fast.triton.norm import KINDS, TILES, VJP_TILES

WORKERS = 8
MULTIPLE = 64
"""Stands for the number of rows and channels: Triton only looks at whether they are multiples of 16."""


def compile_ahead(module: nn.Module, types: Sequence[torch.dtype]) -> None:
    """Begin to compile the kernels of ``module`` for activations of these ``types``; returns at once."""
    if not torch.cuda.is_available() or find_spec("triton") is None:
        return
    from lqf.fast.triton import depthwise_kernels, norm_kernels

    asked = [(depthwise_kernels, *launch) for launch in depthwise_launches(module, types)]
    if any(type(m) is nn.BatchNorm2d for m in module.modules()):
        acts = {a.kind for m in module.modules() if (a := act_of(m)) is not None} | {Act().kind}
        asked += [(norm_kernels, *launch) for launch in launches(sorted(acts), types)]
    pool = ThreadPoolExecutor(min(WORKERS, os.cpu_count() or 1))
    for kernels, name, args in asked:
        pool.submit(_compile, getattr(kernels, name), args)
    pool.shutdown(wait=False)


def launches(acts: Sequence[str], types: Sequence[torch.dtype]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The launches' arguments as `norm_kernels` gives them, tensors by their types; values first."""
    f32, sizes = torch.float32, (MULTIPLE, MULTIPLE, 0.5)
    cases = [(t, skip, KINDS[act]) for t in types for skip in (False, True) for act in acts]
    for t, skip, kind in cases:
        for shape in TILES:
            yield "value", (*[t] * 3, *[f32] * 4, 1e-5, *sizes, skip, kind, *shape)
    for t, skip, kind in cases:
        for shape in TILES:
            given = (True, skip, skip, True, True)
            yield "tangent", (*[t] * 5, *[f32] * 6, 1e-5, *sizes, *given, kind, *shape)
        yield "vjp", (*[t] * 5, *[f32] * 5, 1e-5, *sizes, skip, kind, *VJP_TILES[skip])


def depthwise_launches(module: nn.Module, types: Sequence[torch.dtype]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The same as `depthwise_kernels` launches them; of the channels tiles and multiples of 16 are all that is seen."""
    cases: dict[Any, Any] = {}
    for conv in module.modules():
        if isinstance(conv, nn.Conv2d) and (window := window_of(conv)) is not None:
            c, k, stride, bias = conv.in_channels, conv.kernel_size[0], window[0], conv.bias is not None
            cases.setdefault((c % 16 == 0, weight_tile(c), k, stride, bias), (c, k, stride, bias))
    for t in types:
        for case in cases.values():
            yield from _depthwise(t, *case)


def _depthwise(t: torch.dtype, c: int, k: int, stride: int, bias: bool) -> Iterator[tuple[str, tuple[Any, ...]]]:
    f32, sizes = torch.float32, (MULTIPLE,) * 7
    pulls = [] if stride > 1 else [(True, False, False)]
    for given in dict.fromkeys([(True, False, bias), (True, True, bias), *pulls]):
        yield "correlate", (t, f32, t, f32, f32, t, *sizes, c, *given, k, stride, *tile(c, t))
    if stride > 1:
        yield "pull_input", (t, f32, t, *sizes, c, k, stride, *tile(c, t, 1)[1:])
    yield "pull_weight", (t, t, f32, *sizes, c, bias, k, stride, *weight_tile(c))


def _compile(kernel: Any, args: tuple[Any, ...]) -> None:
    with suppress(Exception):  # what cannot be compiled ahead is compiled, or complains, at its launch
        kernel.warmup(*args, grid=(1,))
