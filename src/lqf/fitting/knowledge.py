"""What a fit knew about its training rows, kept so that questions about the model need not find it out again.

    features    (n, p)             z of all rows, as the head sees them
    heads, fold (K, C, p+1), (n,)  at the linearisation point, and which of them every row uses; of linearised networks
    q, lam      (m, r), (r,)       the factorised kernel √s K √s = QΛQᵀ: over the rows, of a head alone; over all
                                   (row, output) pairs, where the dense dual was solved

All of it is as the fit had it, digit by digit, so that answers are what they would be if it were computed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from lqf.fitting.head_fit import HeadFit
from lqf.fitting.training_problem import TrainingProblem
from lqf.kernels.ridge import KernelRidge

LIMITS = {"auto": 256 << 20, "all": 1 << 62, "none": 0}
"""Bytes that may be kept, by the setting `keep_for_questions`."""
Tensors = Mapping[str, Tensor]


class Known(Protocol):
    """What is known, in memory or in a file."""

    @property
    def bytes(self) -> int:
        """Its size."""
        ...

    def read(self, say: Callable[[str], None]) -> Tensors | None:
        """By name; None, with a sentence, where it cannot be read any more."""
        ...


@dataclass(frozen=True, eq=False)
class Knowledge:
    """In memory, on the CPU."""

    tensors: Tensors

    @property
    def bytes(self) -> int:
        """Of all tensors."""
        return sum(t.nbytes for t in self.tensors.values())

    def read(self, say: Callable[[str], None]) -> Tensors:
        """As they are."""
        return self.tensors


@dataclass(frozen=True)
class StoredKnowledge:
    """In a file, which is read when it is asked for.

    Attributes:
        path: of the file.
        sha256: of its content, as the model knows it.
        bytes: its size.
    """

    path: Path
    sha256: str
    bytes: int

    def read(self, say: Callable[[str], None]) -> Tensors | None:
        """Where the file is that of the model."""
        try:
            content = self.path.read_bytes()
            if hashlib.sha256(content).hexdigest() == self.sha256:
                return {name: t.clone() for name, t in load_file(self.path).items()}
            why = "is not what was saved with the model"
        except (OSError, SafetensorError) as error:
            why = f"cannot be read ({getattr(error, 'strerror', None) or error})"
        say(f"`{self.path}` {why}; what it held is computed again")
        return None


@dataclass(frozen=True)
class NotKept:
    """Larger than the settings allow; ``bytes``: what it would have taken."""

    bytes: int

    def read(self, say: Callable[[str], None]) -> None:
        """Nothing: it is computed again."""


def of_head(head: HeadFit) -> Known:
    """Of a closed-form head."""
    ridge = head.head.ridge
    return _within(head, {"features": head.features, "q": ridge.q, "lam": ridge.lam})


def of_problem(problem: TrainingProblem) -> Known:
    """Of a linearised network, with the factorised dual where that was solved."""
    tensors = {"features": problem.features, "heads": problem.point.heads, "fold": problem.point.fold}
    dual = problem.factorised
    if dual is not None:
        tensors |= {"q": dual.q, "lam": dual.lam}
    return _within(problem.head_fit, tensors)


def factorised(known: Tensors, weights: Tensor, groups: Tensor) -> KernelRidge | None:
    """The kernel's factorisation, over rows or pairs with these weights and groups; None where it was not kept."""
    if "q" not in known:
        return None
    q, lam = (known[name].to(weights.device) for name in ("q", "lam"))
    return KernelRidge(q, lam, weights, groups)


def fits(known: Tensors | None, rows: int) -> bool:
    """Whether something is known, and of so many rows."""
    return known is not None and "features" in known and len(known["features"]) == rows


def _within(head: HeadFit, tensors: Tensors) -> Known:
    size = sum(t.nbytes for t in tensors.values())
    if size > LIMITS[head.context.settings.keep_for_questions]:
        return NotKept(size)
    # rows after one another, as a file has them: products round by that, too
    return Knowledge({name: t.detach().cpu().contiguous() for name, t in tensors.items()})
