"""How the passes of a solve are computed: in which floating-point type, recorded, compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lqf.fast import FastLinearization
from lqf.fast.cache_budget import keep_activations, release_activations
from lqf.fast.compile_ahead import compile_ahead
from lqf.linear.batch import even_rows
from lqf.linear.inputs import Inputs
from lqf.linear.linearize import Linearization
from lqf.linear.problem import QuadraticProblem
from lqf.runtime.precision import matmul_precision
from lqf.settings import Settings

COMPILATION_PAYS = 300.0
"""Expected seconds of products above which compiled ones (about two minutes to compile, at best twice as fast) end
sooner."""
NARROW = {"float16": torch.float16, "bfloat16": torch.bfloat16}


ROWS = 8
"""By which it is seen whether activations leave the range of a type."""


@dataclass
class Engine:
    """Faster bodies for a problem, made when they are asked for.

    Attributes:
        body: the exact one.
        settings: precision and compilation.
        example: a small batch of its inputs.
        say: called with the reason where recording or compilation fails.
    """

    body: Linearization
    settings: Settings
    example: Tensor
    say: Callable[[str], None]
    _inputs: Inputs | None = None
    _cached: QuadraticProblem | None = None
    _exact: FastLinearization | None = None
    _eager: FastLinearization | None = None
    _compiled: FastLinearization | None = None

    def compile_ahead(self) -> None:
        """Begin to compile kernels that will be needed, of the exact type and of the products'."""
        if self.example.is_cuda:
            compile_ahead(self.body.module, tuple(dict.fromkeys((self.example.dtype, self.dtype))))

    def measured(self, problem: QuadraticProblem) -> QuadraticProblem:
        """The same problem in the same floating-point type, for a few exact residuals."""
        return problem.with_body(self.exact)

    def fast(self, problem: QuadraticProblem, *, compiled: bool = False) -> QuadraticProblem:
        """The same problem with faster passes, for many products; of a narrow type twice as many rows at a time."""
        body = self.compiled if compiled else self.eager
        return replace(problem.with_body(body), inputs=self._batched(problem.inputs))

    def cached(self, problem: QuadraticProblem, *, compiled: bool = False) -> QuadraticProblem:
        """`fast`, with the activations of as many batches as fit kept until `release`, for this and like problems."""
        fast = self.fast(problem, compiled=compiled)
        if self._cached is None:
            self._cached = fast
            with matmul_precision(self.settings.precision != "float32"):  # recordings keep what holds now
                keep_activations(fast, self.measured(problem))
        return fast

    def release(self) -> None:
        """Give up the activations that are kept."""
        if self._cached is not None:
            release_activations(self._cached)
            self._cached = None

    def clear(self) -> None:
        """Give up all that was recorded too; it is made again where it is asked for."""
        self.release()
        self._exact = self._eager = self._compiled = self._inputs = None

    def _batched(self, inputs: Inputs) -> Inputs:
        """On a GPU: in equal batches, none of which is filled up with rows that count for nothing."""
        if not self.example.is_cuda:
            return inputs
        if self._inputs is None or self._inputs.images is not inputs.images:
            most = inputs.batch_size * self.example.element_size() // self.dtype.itemsize
            self._inputs = inputs.in_batches(even_rows(len(inputs.own) * inputs.n_views, most))
        return self._inputs

    def compiles(self, seconds: float) -> bool:
        """Whether to compile products that are expected to take so long; merged ones are no slower as they are."""
        if self.settings.compile == "auto":
            return self.example.is_cuda and seconds > COMPILATION_PAYS and not self.eager.merged
        return self.settings.compile == "on"

    @cached_property
    def dtype(self) -> torch.dtype:
        """Of the products; activations beyond the range of float16 ask for bfloat16."""
        own = self.example.dtype
        if self.settings.precision == "auto" and self.example.is_cuda and own == torch.float32:
            return torch.float16 if in_range(self.body, self.example[:ROWS], torch.float16) else torch.bfloat16
        return NARROW.get(self.settings.precision, own)

    @property
    def exact(self) -> FastLinearization:
        """The body with its layers merged, in its own floating-point type."""
        if self._exact is None:
            self._exact = FastLinearization(self.body, self.example.dtype, self.example, recorded=False)
        return self._exact

    @property
    def eager(self) -> FastLinearization:
        """The body of fast products, recorded."""
        if self._eager is None:
            self._eager = FastLinearization(self.body, self.dtype, self.example, say=self.say)
        return self._eager

    @property
    def compiled(self) -> FastLinearization:
        """The body of fast products, compiled; the recorded one, and what it has recorded, is given up for it."""
        self._eager = None
        if self._compiled is None:
            self._compiled = FastLinearization(self.body, self.dtype, self.example, compiled=True, say=self.say)
        return self._compiled


def in_range(body: Linearization, x: Tensor, dtype: torch.dtype) -> bool:
    """Whether no value of the network leaves the range of a floating-point type."""
    most: list[Tensor] = []

    def look(_: Any, __: Any, y: Any) -> None:
        if isinstance(y, Tensor) and y.is_floating_point():
            most.append(y.abs().max())

    handles = [m.register_forward_hook(look) for m in body.module.modules()]
    try:
        with torch.no_grad():
            z = body.value(x)
    finally:
        for handle in handles:
            handle.remove()
    return float(torch.stack([*most, z.abs().max()]).max()) < torch.finfo(dtype).max / 2
