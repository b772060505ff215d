"""Which solver, what it will cost, said before it starts.

The dense dual answers everything exactly and is taken when its kernel fits into memory and its time is bearable;
otherwise the problem is solved by preconditioned conjugate gradients. Times come from the device itself (see `rates`);
the rest is counting.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace

from lqf.curvature.preconditioner import KFAC_SAMPLES, MOMENT_DRAWS, MOMENT_SAMPLES, TRACE_SAMPLES
from lqf.errors import LQFError
from lqf.fast.cache_budget import room_for
from lqf.kernels.gradients import TOGETHER
from lqf.kernels.tangent import RATIOS
from lqf.linear.problem import QuadraticProblem
from lqf.runtime.memory import available_bytes, share_in_use
from lqf.solvers.rates import FUSED, Factor, Rates, require_body
from lqf.utils import naming
from lqf.utils.text import byte_count, rough_duration

__all__ = ["MOST_SAMPLES", "Plan", "Rates", "plan"]

PCG_PASSES = 14
"""Passes a preconditioned solve usually takes to its default tolerance."""
DENSE_PASSES = 5
"""Two corrections by residuals measured on the data, and the right-hand side, which the kernel gives."""
STARTING = 0.2
"""Seconds in which a GPU loads the kernels of a stage and records its passes."""
MOST_SAMPLES = 1000
"""Rows in the averaged kernel."""
AVERAGED_DRAWS = 2
REFITS, REFIT_PRODUCTS = 5, 4
"""Refits without a fold, and the products of each: with ResNet-50 on Flowers and CUB the test error is settled to half
a point after four."""
MASKED = 0.5
"""Where at least this share of the rows has its activations kept, a refit goes over all rows, those of the fold without
weight: kept ones take about half as long, and other batches than these are not kept."""
ENOUGH = 1000
"""Samples whose out-of-sample outputs give the error well enough."""
SHORT = 10.0
"""Seconds that exact answers are worth, where iteration would be quicker."""
TILE = 2048


@dataclass(frozen=True)
class Plan:
    """What will be done and what it is expected to cost.

    Attributes:
        solver: "dense" or "pcg".
        seconds: expected time of kernel, weight decay, curvature and solve.
        bytes: expected peak of memory on the device beyond the images.
        jacobian_bytes: how much of the Jacobian the dense dual holds at a time.
        sentence: for a person.
        stages: the expected seconds of each.
    """

    solver: str
    seconds: float
    bytes: int
    jacobian_bytes: int
    sentence: str
    stages: dict[str, float] = field(default_factory=dict, compare=False)


def plan(
    problem: QuadraticProblem,
    asked: str,
    rates: Rates,
    memory: int | None = None,
    *,
    epochs: int = 30,
    refits: bool = False,
) -> Plan:
    """Choose between the dense dual and PCG, or cost the one that was ``asked`` for.

    Args:
        problem: what will be solved.
        asked: the solver, or "auto".
        rates: of the device.
        memory: bytes that may be used; default: what is free.
        epochs: of "sgd" and "adam".
        refits: whether PCG is followed by refits without each fold.
    """
    require_body(problem)
    memory = available_bytes(problem.targets.device) if memory is None else memory
    dense = cost_dense(problem, rates, memory)
    pcg = cost_pcg(problem, rates, memory, refits=refits)
    fits = dense.bytes <= memory
    if asked == "dense":
        if not fits:
            raise LQFError(
                f"the dense dual of {len(problem.targets)} × {problem.model.n_outputs} outputs needs "
                f"{byte_count(dense.bytes)} and {byte_count(memory)} are free; use solver `pcg`, or `auto`"
            )
        return dense
    if asked in ("sgd", "adam"):
        return cost_passes(asked, problem, rates, epochs, memory)
    if pcg.bytes > memory / share_in_use() and not (asked == "auto" and fits):
        raise LQFError(
            f"conjugate gradients over {len(problem.targets)} × {problem.model.n_outputs} outputs need "
            f"{byte_count(pcg.bytes)} and {byte_count(memory)} are free; a later {naming.name('linearize')}, a smaller "
            f"{naming.name('size')} or solver `head` needs less"
        )
    if asked != "auto":
        return pcg
    if fits and dense.seconds <= max(SHORT, pcg.seconds):
        return dense
    reason = (
        f"dense would take about {rough_duration(dense.seconds)}"
        if fits
        else f"dense needs {byte_count(dense.bytes)}, have {byte_count(memory)}"
    )
    return replace(pcg, sentence=f"{pcg.sentence} ({reason})")


def cost_dense(problem: QuadraticProblem, rates: Rates, memory: int, passes: int = DENSE_PASSES) -> Plan:
    """Kernels of (nC)² float64 entries six times over (two parts, their sum, the factorisation's workspace), and the
    Jacobian in pieces of at most a third of the memory. A correction is a way back and a product.
    """
    n, c = len(problem.targets), problem.model.n_outputs
    m = n * c
    kernels = 6 * 8 * m * m
    held = jacobian_bytes(problem, m, memory - kernels)
    shared = 1.0 if rates.exact_rows else FUSED  # recorded sweeps go forward twice
    stages = {
        "kernel": kernel_seconds(problem, rates, n, c, held, rates.flops, joint=True),
        "weight decay": choice_seconds(rates, m, columns=1, block=c),
        "solve": rates.eigh(m) + (passes - 1) // 2 * (1 / 2 + shared) * exact_seconds(n, rates),
    }
    size = kernels + held + _gradient_bytes(problem, rates, c, memory - kernels - held)
    return _plan("dense", _started(problem, stages), size, held)


def cost_pcg(
    problem: QuadraticProblem,
    rates: Rates,
    memory: int,
    passes: int = PCG_PASSES,
    *,
    refits: bool = False,
) -> Plan:
    """The averaged kernel over some rows, K-FAC, and the usual number of passes of one sweep each way."""
    n, c = len(problem.targets), problem.model.n_outputs
    m, draws = min(n, MOST_SAMPLES), min(AVERAGED_DRAWS, c)
    held = jacobian_bytes(problem, m * draws, memory - 6 * 8 * m * m)
    kept = rows_kept(n, problem.inputs.batch_size, rates, memory)
    forward, backward = sweep_seconds(n, kept, rates)
    product, keeping = forward + backward + kfac_solve_seconds(rates), kept / rates.keeping_rows if kept else 0.0
    stages = {
        "kernel": kernel_seconds(problem, rates, m, draws, held, rates.fast_flops, joint=False),
        "weight decay": choice_seconds(rates, m, columns=c, block=1),
        "curvature": curvature_seconds(rates, min(n, KFAC_SAMPLES)),
        "solve": (passes - 2) * product + 2 * backward + exact_seconds(n, rates) + keeping,
    }
    if refits:
        folds = min(REFITS, math.ceil(REFITS * ENOUGH / n))
        rows = 1.0 if kept >= MASKED * n else (REFITS - 1) / REFITS
        stages["leave-one-out"] = folds * rows * (REFIT_PRODUCTS + 1) * product
    item, factors = problem.targets.element_size(), factor_bytes(problem, rates)
    size = max(
        held + 6 * 8 * m * m + _gradient_bytes(problem, rates, draws, memory - 6 * 8 * m * m - held),
        2 * factors + _batch_bytes(problem, rates, rates.draws),
        factors + 8 * item * problem.size + _batch_bytes(problem, rates, 0) + kept * rates.kept_bytes,
    )
    return _plan("pcg", _started(problem, stages), size, held)


def cost_passes(solver: str, problem: QuadraticProblem, rates: Rates, passes: int, memory: int) -> Plan:
    """So many epochs of fused products; the kernel, and for SGD the curvature, as for PCG."""
    pcg, n = cost_pcg(problem, rates, memory), len(problem.targets)
    stages = pcg.stages | {"solve": passes * n / rates.product_rows}
    if solver == "adam":
        stages.pop("curvature")
    return _plan(solver, stages, pcg.bytes, pcg.jacobian_bytes)


# --- the parts ----------------------------------------------------------------------------------------------------


def jacobian_bytes(problem: QuadraticProblem, gradients: int, memory: int) -> int:
    """What of so many gradients is held at a time: all, but at most three fifths of a GPU's memory.

    In main memory, which other programs share, a third of it; and a third of the gradients suffices beyond the first
    2 GB, since the passes that remake the rest cost little compared with the inner products.
    """
    whole = gradients * problem.model.body.size * problem.targets.element_size()
    cuda = problem.targets.is_cuda
    enough = whole if cuda else max(2 << 30, whole // 3)
    return min(whole, enough, max(3 * memory // 5 if cuda else memory // 3, 1 << 28))


def kernel_seconds(
    problem: QuadraticProblem, rates: Rates, n: int, per_row: int, held: int, flops: float, *, joint: bool
) -> float:
    """Passes that make the gradients, layers in groups that fit; and their inner products, upper tiles only."""
    d, m = problem.model.body.size, n * per_row if joint else n
    passes = math.ceil(n * per_row * d * problem.targets.element_size() / held)
    tiles = math.ceil(m / TILE)
    products = m * m * d * (tiles + 1) / (2 * tiles) * (1 if joint else per_row)
    ways = n * per_row * ways_back(rates.factors, passes) / rates.gradient_rows
    return ways + passes * n / rates.forward_rows / 2 + products / flops


def ways_back(factors: tuple[Factor, ...], passes: int) -> float:
    """The ways back of all passes, in units of a whole one: to the first layer of a group of late ones it is short."""
    work = [f.groups * f.o * f.p * f.positions for f in factors]
    sizes = [f.groups * f.o * f.p for f in factors]
    if not work:
        return float(passes)
    ends = itertools.accumulate(sizes)  # weights up to and including each layer
    begun = [0, *(-(-end * passes // sum(sizes)) for end in ends)]  # passes whose group begins up to each layer
    back = list(itertools.accumulate(reversed(work)))[::-1]  # from the last layer to each
    return sum((after - before) * w for before, after, w in zip(begun, begun[1:], back, strict=False)) / back[0]


def rows_kept(n: int, batch: int, rates: Rates, memory: int) -> int:
    """Rows whose activations are kept between products."""
    return min(n, room_for(memory, batch * rates.saved_bytes) // rates.kept_bytes) if rates.kept_bytes else 0


def exact_seconds(n: int, rates: Rates) -> float:
    """Of one sweep each way for a true residual."""
    return n / rates.exact_rows if rates.exact_rows else n / rates.forward_rows + n / rates.backward_rows


def sweep_seconds(n: int, kept: int, rates: Rates) -> tuple[float, float]:
    """Of one sweep of J·v and one of Jᵀu."""
    forward, backward = (n - kept) / rates.forward_rows, (n - kept) / rates.backward_rows
    if kept:
        forward, backward = forward + kept / rates.kept_forward_rows, backward + kept / rates.kept_backward_rows
    return forward, backward


def choice_seconds(rates: Rates, m: int, columns: int, block: int) -> float:
    """Factorise the kernel for every ratio of ridge strengths, and leave one out."""
    return len(RATIOS) * (rates.eigh(m) + m * m * (2 * columns + block) / rates.flops)


def curvature_seconds(rates: Rates, n: int) -> float:
    """The pass with its trace measured on some rows, all factors' eigendecompositions, and the second moments of
    some rows' gradients in their basis.
    """
    sides = [(f.groups, min(f.p, n * f.positions)) for f in rates.factors]
    sides += [(f.groups, min(f.o, n * f.positions * rates.draws)) for f in rates.factors]
    trace = sum(f.groups * f.o * f.p * f.positions for f in rates.factors) * rates.draws
    basis = MOMENT_DRAWS * sum(f.groups * basis_work(f) for f in rates.factors)
    few, some = min(n, TRACE_SAMPLES), min(n, MOMENT_SAMPLES)
    moments = some * MOMENT_DRAWS / rates.gradient_rows
    pass_ = n / rates.curvature_rows
    return (
        pass_
        + moments
        + (few * trace + some * basis) / rates.fast_flops
        + sum(k * rates.factor_eigh(m) for k, m in sides)
    )


def basis_work(f: Factor) -> int:
    """Multiply-adds that bring one gradient into the eigenbasis, by the cheaper way."""
    return min((f.p**2 + f.o**2) * f.positions, f.o * f.p * (f.o + f.p))


def kfac_solve_seconds(rates: Rates) -> float:
    """Into the eigenbasis and back: 2(o²p + op²) multiply-adds per layer."""
    return sum(2.0 * f.groups * f.o * f.p * (f.o + f.p) for f in rates.factors) / rates.flops


def factor_bytes(problem: QuadraticProblem, rates: Rates) -> int:
    """K-FAC's bases, thin where there are fewer columns than rows, and eigenvalues."""
    n = min(len(problem.targets), KFAC_SAMPLES)
    total = 0
    for f in rates.factors:
        a, g = min(f.p, n * f.positions), min(f.o, n * f.positions * rates.draws)
        total += f.groups * (f.p * a + f.o * g + a * g)
    return total * problem.targets.element_size()


def _gradient_bytes(problem: QuadraticProblem, rates: Rates, per_row: int, free: int) -> int:
    """A batch's pass while per-sample gradients are made of it: see `lqf.kernels.gradients.rows_at_a_time`."""
    if not problem.targets.is_cuda:
        return _batch_bytes(problem, rates, 1)
    return min(_batch_bytes(problem, rates, min(TOGETHER, per_row)), max(0, free // 2))


def _batch_bytes(problem: QuadraticProblem, rates: Rates, gradients: int) -> int:
    """Activations of one batch, with the gradients at all layers' outputs kept so many times, and patches."""
    per_row = rates.saved_bytes + gradients * rates.output_bytes + min(gradients, 1) * 2 * rates.patch_bytes
    return problem.inputs.batch_size * per_row


def _started(problem: QuadraticProblem, stages: dict[str, float]) -> dict[str, float]:
    """With the time that each stage takes to begin."""
    return {k: v + (STARTING if problem.targets.is_cuda else 0.0) for k, v in stages.items()}


def _plan(solver: str, stages: dict[str, float], size: int, held: int) -> Plan:
    total = sum(stages.values())
    return Plan(solver, total, size, held, _sentence(solver, size, total), stages)


def _sentence(solver: str, size: int, seconds: float) -> str:
    return f"{solver}: {byte_count(size)}, about {rough_duration(seconds)}"
