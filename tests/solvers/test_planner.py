"""What a fit will cost, said before it starts."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from cases import images
from lqf.curvature.parallel_eigh import AT_A_TIME
from lqf.errors import LQFError
from lqf.fast.cache_budget import KEPT_SHARE
from lqf.linear.batch import COPIES, pass_bytes
from lqf.linear.layers import Tape
from lqf.linear.linearize import Linearization
from lqf.linear.model import LinearModel
from lqf.linear.problem import QuadraticProblem
from lqf.runtime.memory import using_share
from lqf.solvers.planner import (
    Plan,
    cost_dense,
    cost_pcg,
    factor_bytes,
    kernel_seconds,
    plan,
    rows_kept,
    sweep_seconds,
    ways_back,
)
from lqf.solvers.rates import Factor, PowerLaw, Rates, device_rates, layer_factors
from problems import problem

SPEEDS = ("forward_rows", "backward_rows", "product_rows", "curvature_rows", "gradient_rows", "flops", "fast_flops")


def rates(rows: float = 100.0, flops: float = 1e9, factor: float = 1.0, **more: Any) -> Rates:
    speeds = {name: (flops if "flops" in name else rows) * factor for name in SPEEDS}
    return Rates(**speeds, eigh=PowerLaw(1e-3 / factor, 100), factor_eigh=PowerLaw(1e-3 / factor, 100), **more)


RATES = rates()
SMALL, MIDDLE, LARGE = 10_000, 150_000, 1 << 40


def test_dense_is_refused_with_a_sentence_where_memory_is_too_small() -> None:
    with pytest.raises(LQFError) as error:
        plan(problem(n=14), "dense", RATES, memory=SMALL)
    for words in ("14 × 3 outputs", "10 kB are free", "use solver `pcg`"):
        assert words in str(error.value)
    assert plan(problem(n=14), "dense", RATES, memory=LARGE).solver == "dense"


def test_auto_takes_dense_where_it_fits() -> None:
    chosen = plan(problem(), "auto", RATES, memory=LARGE)
    assert chosen == cost_dense(problem(), RATES, LARGE)
    assert chosen.sentence.startswith("dense: ")


def test_auto_falls_back_to_pcg_and_says_why() -> None:
    p = problem()
    chosen = plan(p, "auto", RATES, memory=MIDDLE)
    needed = cost_dense(p, RATES, MIDDLE)
    assert chosen.solver == "pcg"
    assert f"dense needs {needed.sentence.split()[1]} " in chosen.sentence
    assert "have 150 kB" in chosen.sentence
    slow = replace(rates(rows=1e6), flops=1.0)
    chosen = plan(p, "auto", slow, memory=LARGE)
    assert chosen.solver == "pcg"
    assert "dense would take about" in chosen.sentence
    assert " min" in chosen.sentence


@pytest.mark.parametrize("asked", ["pcg", "sgd", "adam"])
def test_a_solver_that_was_asked_for_is_only_costed(asked: str) -> None:
    chosen = plan(problem(), asked, RATES, memory=LARGE, epochs=30)
    assert chosen.solver == asked
    assert chosen.sentence.startswith(f"{asked}: ")
    if asked != "pcg":
        assert plan(problem(), asked, RATES, memory=LARGE, epochs=60).seconds > 1.5 * chosen.seconds


@pytest.mark.parametrize("name", ["dense", "pcg"])
def test_costs_are_positive_and_grow_with_the_data(name: str) -> None:
    def cost(n: int) -> Plan:
        return cost_dense(problem(n=n), RATES, LARGE) if name == "dense" else cost_pcg(problem(n=n), RATES, LARGE)

    small, large = cost(8), cost(32)
    assert 0 < small.seconds < large.seconds
    assert 0 < small.bytes
    assert small.jacobian_bytes > 0
    if name == "dense":
        assert large.bytes > 4 * small.bytes  # between linear (the Jacobian) and quadratic (the kernel)
    else:
        assert large.bytes < 16 * small.bytes


def test_dense_counts_its_kernels_and_holds_a_part_of_the_jacobian() -> None:
    p = problem("convnet", n=14)
    whole = cost_dense(p, RATES, LARGE)
    assert whole.jacobian_bytes == 14 * 3 * p.model.body.size * 8
    assert whole.bytes - whole.jacobian_bytes == 6 * 8 * (14 * 3) ** 2
    assert cost_dense(p, RATES, memory=3 << 28).jacobian_bytes <= 1 << 28


def test_a_slower_device_takes_longer() -> None:
    half = rates(factor=0.5)
    for cost in (lambda r: cost_dense(problem(), r, LARGE), lambda r: cost_pcg(problem(), r, LARGE)):
        assert cost(half).seconds == pytest.approx(2 * cost(RATES).seconds)


def test_the_stages_add_up_and_the_sentence_says_their_sum() -> None:
    for asked, names in (("dense", "kernel, weight decay, solve"), ("pcg", "kernel, weight decay, curvature, solve")):
        chosen = plan(problem(), asked, rates(rows=1.0), memory=LARGE)
        assert ", ".join(chosen.stages) == names
        assert chosen.seconds == pytest.approx(sum(chosen.stages.values()))
        assert f"about {chosen.seconds:.0f} s" in chosen.sentence or "min" in chosen.sentence
    assert "curvature" in plan(problem(), "sgd", RATES, memory=LARGE).stages
    assert "curvature" not in plan(problem(), "adam", RATES, memory=LARGE).stages


def test_passes_are_one_sweep_each_way_and_a_kfac_solve() -> None:
    def seconds(passes: int) -> float:
        with_factor = rates(factors=(Factor(2, 30, 10, 4),))
        return cost_pcg(problem(n=14), with_factor, LARGE, passes=passes).stages["solve"]

    kfac = 2 * 2 * 30 * 10 * (30 + 10) / 1e9
    assert seconds(20) - seconds(10) == pytest.approx(10 * (14 / 100 + 14 / 100 + kfac))


def test_rows_whose_activations_are_kept_are_passed_over_faster() -> None:
    kept = rates(kept_forward_rows=200.0, kept_backward_rows=400.0, kept_bytes=1000, keeping_rows=50.0)
    for room, rows in ((10**6, 14), (4001 / KEPT_SHARE, 4), (100, 0)):
        assert rows_kept(14, 8, kept, int(room)) == rows
        forward, backward = sweep_seconds(14, rows, kept)
        assert forward == pytest.approx(rows / 200 + (14 - rows) / 100)
        assert backward == pytest.approx(rows / 400 + (14 - rows) / 100)
    assert rows_kept(14, 8, RATES, LARGE) == 0
    assert rows_kept(14, 8, replace(kept, saved_bytes=100), COPIES * 800 + 2000) == 2  # an exact pass needs the rest
    some, none = (cost_pcg(problem(n=14), r, LARGE) for r in (kept, RATES))
    assert cost_pcg(problem(n=14), replace(kept, kept_bytes=10**6), LARGE).bytes > 14 * 10**6 > some.bytes
    assert none.stages["solve"] - some.stages["solve"] == pytest.approx(12 * 14 / 200 + 14 * 14 * 3 / 400 - 14 / 50)


def test_true_residuals_take_as_long_as_the_exact_type_does() -> None:
    slow, p = rates(exact_rows=2.0), problem(n=14)
    for cost, exact, own in ((cost_pcg, 1, 1), (cost_dense, 2 * 3 / 2, 2 * (1 / 2 + 5 / 6))):
        more = cost(p, slow, LARGE).stages["solve"] - cost(p, RATES, LARGE).stages["solve"]
        assert more == pytest.approx(exact * 14 / 2 - own * 14 / 50)


def test_a_correction_of_the_dense_solution_is_one_way_back_and_a_product() -> None:
    few, many = (cost_dense(problem(n=14), RATES, LARGE, passes=k).stages["solve"] for k in (3, 7))
    assert many - few == pytest.approx(2 * (1 / 2 + 5 / 6) * 14 / 50)


def test_a_solve_that_does_not_fit_is_refused() -> None:
    heavy, p = rates(factors=(Factor(1, 300, 300, 9),)), problem(n=14)
    assert "free" not in plan(p, "pcg", heavy, memory=LARGE).sentence
    for asked in ("pcg", "auto"):
        with pytest.raises(LQFError, match=r"outputs need .* and 10 kB are free; a later linearize"):
            plan(p, asked, heavy, memory=SMALL)
    with using_share(1e-9):  # what did not fit is tried with plans for less, whatever they say
        assert plan(p, "pcg", heavy, memory=SMALL).solver == "pcg"


def test_with_less_and_less_memory_plans_get_smaller_and_then_there_is_a_sentence() -> None:
    """The same for the main memory and for a GPU's: what is taken fits into what there is."""
    heavy, p = rates(factors=(Factor(1, 300, 300, 9),)), problem(n=14)

    def taken(memory: int) -> str:
        try:
            chosen = plan(p, "auto", heavy, memory=memory)
        except LQFError as error:
            return "refused" if "are free; a later linearize" in str(error) else str(error)
        assert chosen.bytes <= memory
        return chosen.solver

    seen = [taken(1 << k) for k in range(40, 9, -1)]
    assert list(dict.fromkeys(seen)) in (["dense", "pcg", "refused"], ["dense", "refused"])
    assert seen == sorted(seen, key=["dense", "pcg", "refused"].index)


def test_factors_with_few_columns_stay_thin() -> None:
    p, item = problem(n=14), 8
    wide = Factor(1, 10_000, 5, 2)  # 28 columns at 14 rows
    assert factor_bytes(p, rates(factors=(wide,))) == item * (10_000 * 28 + 5 * 5 + 28 * 5)


def test_a_jacobian_that_does_not_fit_is_made_in_several_passes() -> None:
    p = problem("convnet", n=14)
    whole = 14 * 3 * p.model.body.size * 8
    one, four = (kernel_seconds(p, RATES, 14, 3, whole // k, 1e9, joint=True) for k in (1, 4))
    assert 2 * one < four <= 4 * one


def test_the_way_back_to_late_layers_is_short() -> None:
    early, late = Factor(1, 10, 10, 9), Factor(1, 30, 10, 1)  # 100 weights in 900 products, 300 weights in 300
    assert ways_back((early, late), 1) == 1
    assert ways_back((early, late), 4) == pytest.approx(1 + 3 * 300 / 1200)


def test_the_averaged_kernel_stops_growing_with_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lqf.solvers.planner.MOST_SAMPLES", 10)
    small, large = (cost_pcg(problem(n=n), RATES, LARGE) for n in (12, 24))
    assert large.stages["kernel"] == small.stages["kernel"]
    assert large.bytes == small.bytes


def test_activations_count_by_the_batch() -> None:
    p = problem(batch_size=8)
    heavy = rates(saved_bytes=1000, output_bytes=10, patch_bytes=1, draws=3)
    assert cost_dense(p, heavy, LARGE).bytes == cost_dense(p, RATES, LARGE).bytes + 8 * (1000 + 10 + 2)


def test_layer_sizes_are_those_of_the_network() -> None:
    body = problem("convnet").model.body
    tape = Tape(body, images(2))
    factors, (saved, outputs, patches) = layer_factors(tape, images(1)), pass_bytes(tape, images(1))
    assert factors[0] == Factor(groups=1, p=2 * 9, o=4, positions=9)
    assert factors[1] == Factor(groups=2, p=2 * 9 + 1, o=2, positions=9)
    assert len(factors) == 4
    assert patches == 4 * 9 * 9 * 8
    assert 0 < outputs <= saved


def test_without_a_number_the_free_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lqf.solvers.planner.available_bytes", lambda device: MIDDLE)
    assert plan(problem(), "auto", RATES).solver == "pcg"


def test_rates_are_measured_without_touching_the_random_numbers() -> None:
    p = problem(heads=2, n=5)
    device_rates.cache_clear()
    before = torch.get_rng_state()
    measured = Rates.measure(p)
    assert min(getattr(measured, name) for name in SPEEDS) > 0
    for law in (measured.eigh, measured.factor_eigh):
        assert 0 < law(10) < law(100)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_device_itself_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[torch.dtype, int]] = []
    monkeypatch.setattr("lqf.solvers.rates.eigh_law", lambda _, *how: seen.append(how) or PowerLaw(1.0, 10))
    device_rates.cache_clear()
    first, again = Rates.measure(problem()), Rates.measure(problem("convnet", n=5))
    assert (again.flops, again.fast_flops, again.eigh) == (first.flops, first.fast_flops, first.eigh)
    assert seen == [(torch.float64, 1), (torch.float64, AT_A_TIME)]
    device_rates(torch.device("cpu"), torch.float32, torch.get_num_threads())
    assert seen[2:] == [(torch.float64, 1), (torch.float32, AT_A_TIME)]
    device_rates.cache_clear()  # the next one measures again


@pytest.mark.parametrize("asked", ["auto", "dense", "pcg", "sgd"])
def test_a_body_without_weights_has_nothing_to_linearise(asked: str) -> None:
    p = problem()
    model = LinearModel(Linearization(nn.Flatten().eval()), torch.zeros(1, 3, 73).double(), False, 5.0)
    empty = QuadraticProblem(model, p.inputs, p.targets, p.weights, p.fold, p.ridge)
    with pytest.raises(LQFError, match=r"no weights below its head .*use solver `head`"):
        plan(empty, asked, RATES, memory=LARGE)
