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

from lqf.fast.norm import Act, act_of
from lqf.fast.norm_kernels import KINDS, PULL_TILES, TILES

WORKERS = 8
MULTIPLE = 64
"""Stands for the number of rows and channels: Triton only looks at whether they are multiples of 16."""


def compile_ahead(module: nn.Module, types: Sequence[torch.dtype]) -> None:
    """Begin to compile the normalisation kernels of ``module`` for activations of these ``types``; returns at once."""
    has_norms = any(type(m) is nn.BatchNorm2d for m in module.modules())
    if not has_norms or not torch.cuda.is_available() or find_spec("triton") is None:
        return
    from lqf.fast import norm_triton

    acts = {a.kind for m in module.modules() if (a := act_of(m)) is not None} | {Act().kind}
    pool = ThreadPoolExecutor(min(WORKERS, os.cpu_count() or 1))
    for name, args in launches(sorted(acts), types):
        pool.submit(_compile, getattr(norm_triton, name), args)
    pool.shutdown(wait=False)


def launches(acts: Sequence[str], types: Sequence[torch.dtype]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The launches' arguments as `norm_kernels` gives them, tensors by their types; values first."""
    f32, sizes = torch.float32, (MULTIPLE, MULTIPLE, 0.5)
    cases = [(t, skip, KINDS[act]) for t in types for skip in (False, True) for act in acts]
    for t, skip, kind in cases:
        for tile in TILES:
            yield "value", (*[t] * 3, *[f32] * 4, 1e-5, *sizes, skip, kind, *tile)
    for t, skip, kind in cases:
        for tile in TILES:
            given = (True, skip, skip, True, True)
            yield "tangent", (*[t] * 5, *[f32] * 6, 1e-5, *sizes, *given, kind, *tile)
        yield "pull", (*[t] * 5, *[f32] * 5, 1e-5, *sizes, skip, kind, *PULL_TILES[skip])


def _compile(kernel: Any, args: tuple[Any, ...]) -> None:
    with suppress(Exception):  # what cannot be compiled ahead is compiled, or complains, at its launch
        kernel.warmup(*args, grid=(1,))
