"""What a fit will cost, said before it starts."""

import pytest
import torch
from torch import nn

from lqf.errors import LQFError
from lqf.linearize import Linearization
from lqf.model import LinearModel
from lqf.objective import Problem
from lqf.solvers.planner import Plan, Rates, cost_dense, cost_pcg, plan
from problems import problem

RATES = Rates(product_rows=100.0, backward_rows=200.0, flops=1e9)
SMALL, LARGE = 10_000, 1 << 40


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
    chosen = plan(p, "auto", RATES, memory=SMALL)
    needed = cost_dense(p, RATES, SMALL)
    assert chosen.solver == "pcg"
    assert f"dense needs {needed.sentence.split()[1]} " in chosen.sentence
    assert "have 10 kB" in chosen.sentence
    slow = Rates(product_rows=1e6, backward_rows=1e6, flops=1.0)
    chosen = plan(p, "auto", slow, memory=LARGE)
    assert chosen.solver == "pcg"
    assert "dense would take about" in chosen.sentence
    assert " min" in chosen.sentence


@pytest.mark.parametrize("asked", ["pcg", "sgd", "adam"])
def test_what_was_asked_for_is_only_costed(asked: str) -> None:
    chosen = plan(problem(), asked, RATES, memory=LARGE, epochs=30)
    assert chosen.solver == asked
    assert chosen.sentence.startswith(f"{asked}: ")
    if asked != "pcg":
        assert plan(problem(), asked, RATES, memory=LARGE, epochs=60).seconds > 1.5 * chosen.seconds


@pytest.mark.parametrize("name", ["dense", "pcg"])
def test_costs_are_positive_and_grow_with_the_data(name: str) -> None:
    def cost(n: int) -> Plan:
        return cost_dense(problem(n=n), RATES, LARGE) if name == "dense" else cost_pcg(problem(n=n), RATES)

    small, large = cost(8), cost(32)
    assert 0 < small.seconds < large.seconds
    assert 0 < small.bytes
    assert small.jacobian_bytes > 0
    if name == "dense":
        assert large.bytes > 4 * small.bytes  # between linear (the Jacobian) and quadratic (the kernel)
    else:
        assert large.bytes == small.bytes  # a few vectors, however many samples


def test_dense_counts_its_kernels_and_holds_a_part_of_the_jacobian() -> None:
    p = problem("convnet", n=14)
    whole = cost_dense(p, RATES, LARGE)
    assert whole.jacobian_bytes == 14 * 3 * p.model.body.size * 8
    assert whole.bytes - whole.jacobian_bytes == 6 * 8 * (14 * 3) ** 2
    assert cost_dense(p, RATES, memory=3 << 28).jacobian_bytes <= 1 << 28


def test_a_slower_device_takes_longer() -> None:
    half = Rates(*(x / 2 for x in (RATES.product_rows, RATES.backward_rows, RATES.flops)))
    for cost in (lambda r: cost_dense(problem(), r, LARGE), lambda r: cost_pcg(problem(), r)):
        assert cost(half).seconds == pytest.approx(2 * cost(RATES).seconds)


def test_without_a_number_the_free_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lqf.solvers.planner.available_bytes", lambda device: SMALL)
    assert plan(problem(), "auto", RATES).solver == "pcg"


def test_rates_are_measured_without_touching_the_random_numbers() -> None:
    p = problem(heads=2, n=5)
    before = torch.get_rng_state()
    rates = Rates.measure(p)
    assert min(rates.product_rows, rates.backward_rows, rates.flops) > 0
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("asked", ["auto", "dense", "pcg", "sgd"])
def test_a_body_without_weights_has_nothing_to_linearise(asked: str) -> None:
    p = problem()
    model = LinearModel(Linearization(nn.Flatten().eval()), torch.zeros(1, 3, 73).double(), False, 5.0)
    empty = Problem(model, p.inputs, p.targets, p.weights, p.fold, p.ridge)
    with pytest.raises(LQFError, match=r"no weights below its head .*use solver `head`"):
        plan(empty, asked, RATES, memory=LARGE)
