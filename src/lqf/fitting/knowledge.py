"""What a fit knew about its training rows, kept so that questions about the model need not find it out again.

    features    (n, p)             z of all rows, as the head sees them
    heads, fold (K, C, p+1), (n,)  at the linearisation point, and which of them every row uses; of linearised networks
    q, lam      (m, r), (r,)       the factorised kernel √s K √s = QΛQᵀ: over the rows, of a head alone; over all
                                   (row, output) pairs, where the dense dual was solved
    residuals   (n, C)             t − f of all rows, where conjugate gradients solved it
    ratio       ()                 by which they judged how far they were (`lqf.solvers.energy`)
    averaged_q, averaged_lam       the factorised kernel averaged over the outputs, where the fit had that of all rows
    curvature/…                    K-FAC of the body, as `lqf.curvature.stored` names its tensors
    curvature_of ()                rows that it was made of, where samples were added since
    strength_…  ()                 of kernels that all outputs share, over the head's (`lqf.fitting.leverage_strength`)
    gap         (D,)               the body's part of b − Hδ as bfloat16: a direction for what comes next

All of it is as the fit had it, digit by digit, so that answers are what they would be if it were computed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from lqf.curvature.stored import to_tensors
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.leverage_strength import strengths_of
from lqf.fitting.remembered import Remembered
from lqf.fitting.training_problem import TrainingProblem
from lqf.kernels.ridge import KernelRidge
from lqf.solvers.solution import Solution
from lqf.utils.regular import read_regular

CURVATURE = "curvature/"
STRENGTH = "strength_"
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
        return _size(self.tensors)

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
            content = read_regular(self.path)
            if hashlib.sha256(content).hexdigest() == self.sha256:
                return {name: t.clone() for name, t in load(content).items()}
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


def of_problem(
    problem: TrainingProblem, solution: Solution, loo: LeaveOneOut | None = None, views: int | None = None
) -> Known:
    """Of a linearised network: with the factorised dual where that was solved, else with what iterations need, as far
    as it fits.

    ``loo``: of the fit, averaged over so many ``views``.
    """
    tensors = {"features": problem.features, "heads": problem.point.heads, "fold": problem.point.fold}
    dual = problem.factorised
    if dual is not None:
        tensors |= {"q": dual.q, "lam": dual.lam}
    else:
        more = _of_iteration(problem, solution, LIMITS[problem.context.settings.keep_for_questions] - _size(tensors))
        ratios = strengths_of(problem, _averaged(more, problem), solution.residuals, loo, views)
        tensors |= more | {f"{STRENGTH}{k}": torch.tensor(v, dtype=torch.float64) for k, v in ratios.items()}
    return _within(problem.head_fit, tensors)


def _of_iteration(problem: TrainingProblem, solution: Solution, room: int) -> dict[str, Tensor]:
    """Residuals, averaged kernel, curvature and gap, in this order, each where it takes at most so many bytes with
    those before it.
    """
    kept: dict[str, Tensor] = {} if solution.residuals is None else {"residuals": solution.residuals}
    if solution.ratio is not None:
        kept["ratio"] = torch.tensor(solution.ratio, dtype=torch.float64)
    kernels, n = problem.kernels, len(problem.features)
    whole = kernels is not None and kernels.signs is not None and len(kernels.samples) == len(problem.data)
    if _size(kept) + 8 * n * (n + 1) <= room:
        averaged = kernels.factorise(problem.ridge) if kernels is not None and whole else problem.remembered.averaged
        if averaged is not None:
            kept |= {"averaged_q": averaged.q, "averaged_lam": averaged.lam}
    if problem.curvature_known is not None:
        curvature = {f"{CURVATURE}{k}": t for k, t in to_tensors(problem.curvature_known).items()}
        if _size(kept) + _size(curvature) <= room:
            kept |= curvature
            rows = problem.remembered.curvature_of
            if rows is not None:
                kept["curvature_of"] = torch.tensor(rows)
    if solution.gap is not None and _size(kept) + 2 * len(solution.gap) <= room:
        kept["gap"] = solution.gap.to(torch.bfloat16)
    return kept


def remembered(known: Tensors, problem: TrainingProblem) -> Remembered:
    """What iterations need, of a problem that was opened again."""
    like, averaged = problem.quadratic.targets, _averaged(known, problem)
    e = known.get("residuals")
    curvature = {k.removeprefix(CURVATURE): t for k, t in known.items() if k.startswith(CURVATURE)}
    ratio = float(known["ratio"]) if "ratio" in known else None
    gap = None if "gap" not in known else known["gap"].to(like)
    strengths = {k.removeprefix(STRENGTH): float(t) for k, t in known.items() if k.startswith(STRENGTH)}
    rows = int(known["curvature_of"]) if "curvature_of" in known else None
    return Remembered(None if e is None else e.to(like), averaged, curvature, ratio, strengths, rows, gap)


def _averaged(known: Tensors, problem: TrainingProblem) -> KernelRidge | None:
    if "averaged_q" not in known:
        return None
    weights = problem.quadratic.weights.double()
    q, lam = (known[f"averaged_{name}"].to(weights.device) for name in ("q", "lam"))
    return KernelRidge(q, lam, weights, problem.data.groups)


def factorised(known: Tensors, weights: Tensor, groups: Tensor) -> KernelRidge | None:
    """The kernel's factorisation, over rows or pairs with these weights and groups; None where it was not kept."""
    if "q" not in known:
        return None
    q, lam = (known[name].to(weights.device) for name in ("q", "lam"))
    return KernelRidge(q, lam, weights, groups)


def fits(known: Tensors | None, rows: int) -> bool:
    """Whether something is known, and of so many rows."""
    return known is not None and "features" in known and len(known["features"]) == rows


def _size(tensors: Tensors) -> int:
    return sum(t.nbytes for t in tensors.values())


def _within(head: HeadFit, tensors: Tensors) -> Known:
    size = _size(tensors)
    if size > LIMITS[head.context.settings.keep_for_questions]:
        return NotKept(size)
    # rows after one another, as a file has them: products round by that, too
    return Knowledge({name: t.detach().cpu().contiguous() for name, t in tensors.items()})
