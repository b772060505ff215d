"""What results become: the best of a grid, relative errors, effective learning rates, means over draws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lqf_paper.experiments import ablation, leaky, nlft_mse, robustness, stopping, summarization, table1
from lqf_paper.report.compare import edge_sentence, error_table, error_values, relative, winners_at_edges
from lqf_paper.report.winners import winners
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Done, Results, bare_percent
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

SCALE = Scale("paper", shots=(2, None), draws=2)


def done(task: Task, method: str, error: float | None, seed: int = 0, **settings: Any) -> Done:
    shots = settings.pop("shots", None)
    params = {"method": method, "settings": settings, "seed": seed, "shots": shots}
    result = {"test_error": error, "diverged": error is None, "chosen": {}, "fit_seconds": 1.0}
    return Done(Cell("fit", task.name, params), result, 2.0)


def test_the_best_of_a_grid_and_its_spread(task: Task) -> None:
    rows = [
        done(task, "nlft", 0.2, learning_rate=0.1),
        done(task, "nlft", 0.1, learning_rate=0.01),
        done(task, "nlft", None, learning_rate=1.0),
        done(task, "lqf", 0.12),
        done(task, "gaf", None),
    ]
    results = Results([task], SCALE, rows)
    found = winners(results, ["nlft", "lqf", "gaf"])
    assert error_table(found, ["nlft", "lqf", "gaf"]).rows == (
        ("NLFT", "**10.0**"),
        ("LQF (paper)", "12.0"),
        ("GaF", "–"),
    )
    values = error_values(found, results)[task.name]["nlft"]
    assert values["settings"] == {"learning_rate": 0.01}
    assert (values["tried"], values["diverged"], values["worst"], values["seconds"]) == (3, 1, 0.2, 6.0)
    assert relative(found, "lqf", "nlft") == {task.name: pytest.approx(0.2)}
    assert relative(found, "gaf", "nlft") == {}
    assert relative(found, "nlft", "gaf") == {}  # nothing is relative to a run that diverged


def test_the_ablation_ranks_what_was_removed(task: Task) -> None:
    errors = {
        "lqf": 0.1,
        "lqf-no-mse": 0.15,
        "lqf-no-kfac": 0.3,
        "lqf-no-leaky": 0.11,
        "lqf-probe": 0.05,
        "b-lqf": None,
    }
    summary = ablation.summarise(Results([task], SCALE, [done(task, m, e) for m, e in errors.items()]))
    assert summary.values["order"] == ["K-FAC", "MSE", "Leaky-ReLU"]
    assert "K-FAC (+200 %), MSE (+50 %), Leaky-ReLU (+10 %)" in summary.notes[0]
    assert "each part being worth something, is not confirmed by the intervals" in summary.notes[0]
    assert summary.values["paper_order"] == "not confirmed"  # of nine test images
    assert any("ImageNet" in note for note in summary.notes)


def test_the_ablation_ranks_by_the_mean_over_data_sets(task: Task) -> None:
    other = replace(task, name="two")
    errors = {"lqf": (0.1, 0.1), "lqf-no-mse": (0.3, 0.1), "lqf-no-kfac": (0.15, 0.18), "lqf-no-leaky": (0.1, 0.11)}
    rows = [done(t, m, e[k]) for m, e in errors.items() for k, t in enumerate((task, other))]
    summary = ablation.summarise(Results([task, other], SCALE, rows))
    assert summary.values["mean"] == pytest.approx({"MSE": 1.0, "K-FAC": 0.65, "Leaky-ReLU": 0.05})
    assert "mean over 2 data sets: MSE (+100 %), K-FAC (+65 %)" in summary.notes[0]
    assert "two: K-FAC (+80 %), Leaky-ReLU (+10 %), MSE (+0 %)." in summary.notes[0]


def test_a_data_set_where_a_part_is_unknown_has_no_say_in_the_order(task: Task) -> None:
    other = replace(task, name="two")
    errors = {"lqf": (0.1, 0.1), "lqf-no-mse": (0.3, 0.1), "lqf-no-kfac": (0.15, 0.9), "lqf-no-leaky": (0.1, None)}
    rows = [done(t, m, e[k]) for m, e in errors.items() for k, t in enumerate((task, other))]
    summary = ablation.summarise(Results([task, other], SCALE, rows))
    assert summary.values["worth"] == {"one": pytest.approx({"MSE": 2.0, "K-FAC": 0.5, "Leaky-ReLU": 0.0})}
    assert "mean over 1 data set: MSE (+200 %)" in summary.notes[0]


def test_an_ablation_that_diverged_everywhere_is_no_verdict(task: Task) -> None:
    errors = {"lqf": 0.1, "lqf-no-mse": None, "lqf-no-kfac": 0.2, "lqf-no-leaky": 0.1}
    summary = ablation.summarise(Results([task], SCALE, [done(task, m, e) for m, e in errors.items()]))
    assert summary.values["paper_order"] is None
    assert "cannot be judged" in summary.notes[0]


def test_winners_at_the_end_of_their_rates_are_named(task: Task) -> None:
    rows = [done(task, "nlft", e, learning_rate=r) for r, e in ((0.1, 0.3), (0.01, 0.1), (0.001, 0.2))]
    rows += [done(task, "gaf", e, learning_rate=r) for r, e in ((0.1, 0.1), (0.01, 0.2))]
    rows += [done(task, "lqf", e, learning_rate=r) for r, e in ((0.1, None), (0.05, 0.1), (0.01, 0.2))]
    rows += [done(task, "fc", e, learning_rate=r) for r, e in ((0.1, 0.1), (0.01, 0.1), (0.001, 0.2))]  # a tie
    rows += [done(task, "b-lqf", 0.1, learning_rate=0.1), done(task, "lqf-fc", 0.1, weight_decay=0.1)]  # no search
    results = Results([task], SCALE, rows)
    found = winners(results, ["nlft", "gaf", "lqf", "fc", "b-lqf", "lqf-fc"])
    assert winners_at_edges(found, results) == ["GaF on one (0.1)"]
    assert "GaF on one (0.1)." in edge_sentence(found, results)
    only = winners(results, ["nlft"])
    assert edge_sentence(only, results).startswith("No winner")


def test_rates_of_another_augmentation_are_another_search(task: Task) -> None:
    rows = [done(task, "nlft", e, learning_rate=r, augment="crop") for r, e in ((0.1, 0.3), (0.01, 0.2), (0.001, 0.4))]
    rows += [done(task, "nlft", 0.1, learning_rate=0.0001, augment="resized")]  # its only rate
    results = Results([task], SCALE, rows)
    assert winners_at_edges(winners(results, ["nlft"]), results) == []


def test_table1_says_where_the_papers_mode_is_close_to_ours(task: Task) -> None:
    other = replace(task, name="two")
    errors = {"nlft": (0.2, 0.2), "lqf-ours": (0.1, 0.1), "lqf-ours-avg": (0.13, 0.135), "lqf": (0.12, 0.15)}
    rows = [done(t, m, e[k]) for m, e in errors.items() for k, t in enumerate((task, other))]
    for k, (error, averaged) in enumerate([(0.2, 0.19), (0.25, 0.15)]):  # the second is better with both views
        cell = done(task, "nlft", error, learning_rate=k)
        cell.result["test_error_mirrored"] = averaged
        rows.append(cell)
    summary = table1.summarise(Results([task, other], SCALE, rows))
    (ours,) = (v for v in summary.values["statements"] if v["statement"].endswith("2 points of LQF (ours)"))
    assert [ours["data"][name]["value"] for name in ("one", "two")] == pytest.approx([0.02, 0.05])
    assert {of["verdict"] for of in ours["data"].values()} == {"not confirmed"}  # nine test images
    shown = {row[0]: row[1:] for row in summary.table.rows}
    assert shown["NLFT, mirrored"] == ("15.0", "–")
    assert shown["NLFT"] == ("20.0", "20.0")
    assert shown["LQF (ours)"] == ("**10.0**", "**10.0**")


def test_effective_learning_rates(task: Task) -> None:
    assert robustness.effective({"learning_rate": 0.01, "batch_size": 20}) == pytest.approx(0.005)
    rows = [
        done(task, "lqf", 0.3, learning_rate=0.01, batch_size=10, weight_decay=1e-4),
        done(task, "lqf", 0.2, learning_rate=0.02, batch_size=20, weight_decay=1e-4),  # the same rate
        done(task, "lqf", 0.4, learning_rate=0.001, batch_size=10, weight_decay=1e-4),
        done(task, "lqf", None, learning_rate=1.0, batch_size=10, weight_decay=1e-4),
    ]
    assert robustness.curve(rows) == {0.001: 0.4, 0.01: 0.2, 1.0: None}


def test_the_cost_of_one_rate_for_all_tasks() -> None:
    curves: list[dict[float, float | None]] = [{0.1: 0.10, 0.01: 0.12, 1.0: None}, {0.1: 0.30, 0.01: 0.20, 1.0: 0.15}]
    assert robustness.common(curves) == (0.01, pytest.approx((0.02 + 0.05) / 2))
    assert robustness.common([{0.1: 0.2}, {0.2: 0.1}]) is None  # no rate was tried on both


def test_losses_over_shots_are_means_over_draws(task: Task) -> None:
    rows = []
    for seed, errors in enumerate([(0.4, 0.5), (0.2, 0.6)]):
        rows += [done(task, "nlft-mse", e, seed, learning_rate=k, shots=2) for k, e in enumerate(errors)]
        rows += [done(task, "nlft", None if seed else 0.1, seed, learning_rate=0, shots=2)]
    rows += [done(task, "nlft-mse", 0.1), done(task, "nlft", 0.05)]
    summary = nlft_mse.summarise(Results([task], SCALE, rows))
    values, (few, every) = summary.values["errors"][task.name], summary.values["statements"]
    assert values["squared error"] == {"2": pytest.approx(0.3), "all": 0.1}
    assert values["cross entropy"] == {"2": None, "all": 0.05}  # one draw has no run that did not diverge
    assert few["data"] == {}
    assert every["data"][task.name]["value"] == pytest.approx(0.05)


def test_numbers_of_shots_stand_in_their_order_whichever_data_set_has_them(task: Task) -> None:
    scale = Scale("paper", shots=(2, 4, None), draws=1)
    few = replace(task.some([0, 1, 2, 5, 6, 7, 10, 11, 12]), name="few")  # three of every class
    rows = [done(t, method, 0.1, shots=k) for t in (few, task) for method in ("nlft", "nlft-mse") for k in (2, 4, None)]
    table = nlft_mse.summarise(Results([few, task], scale, rows)).table
    assert table.columns[2:] == ("2", "4", "all")
    assert table.rows[0][2:] == ("10.0", "–", "10.0")


def test_percents() -> None:
    assert (bare_percent(0.1234), bare_percent(0.1234, 2), bare_percent(None)) == ("12.3", "12.34", "–")


def test_the_training_images_decide_between_the_activations() -> None:
    known = {"a": {"lqf-leaky": 0.1, "lqf-relu": 0.2}, "b": {"lqf-leaky": 0.3, "lqf-relu": 0.25}}
    assert leaky.preferred({**known, "c": {"lqf-leaky": None, "lqf-relu": 0.1}}) == {"a": "lqf-leaky", "b": "lqf-relu"}
    assert leaky.decision(known) == (
        "On the training images of 2 data sets Leaky-ReLU has the lower error on 1, ReLU on 1; the mean difference is "
        "-2.50 points."
    )
    assert "No data set" in leaky.decision({"c": {"lqf-leaky": None, "lqf-relu": 0.1}})


def test_rank_correlation_of_two_rankings() -> None:
    one, other = {"information": [0.1, 5.0, 2.0]}, {"information": [1.0, 3.0, 2.0]}
    assert summarization.correlation(one, other) == pytest.approx(1.0)
    assert summarization.correlation(one, {"information": [3.0, 1.0, 2.0]}) == pytest.approx(-1.0)


def test_orders_are_judged_at_one_share_with_their_sign(task: Task) -> None:
    result = {"shares": [0.0, 0.38, 0.8], "least": [0.1, 0.5, 0.9], "random": [0.1, 0.2, 0.1], "most": [0.1, 0.6, 0.9]}
    found = {"one": {**result, "again": None}, "two": {**result, "again": {"least": [0, 0.1, 0], "most": [0, 0.9, 0]}}}
    paper, most, least, *again = summarization.judge_orders({"one": 400, "two": 400}, found)
    assert {n: g.value for n, g in most.gaps.items()} == pytest.approx({"one": 0.4, "two": 0.4})
    assert (paper.overall, most.overall, least.overall) == ("confirmed", "confirmed", "contradicted")
    assert [j.overall for j in again] == ["confirmed"] * 3
    assert all(list(j.gaps) == ["two"] for j in again)


def test_crops_and_the_end_of_a_run_are_causes_by_their_intervals(task: Task) -> None:
    """Every run again with other seeds; the difference of the means is what a statement is about."""
    scale = Scale("quick", seeds=2)
    errors = {
        ("lqf-central", 2): 0.9,
        ("lqf", 2): 0.1,
        ("lqf-central", 4): 0.9,
        ("lqf", 4): None,
        ("lqf-solved", 0): 0.9,
    }
    wanted = stopping.cells([task], scale)
    assert [(c.params["method"], c.params["settings"].get("epochs", 0)) for c in wanted] == list(errors)
    result = {"losses": [2.0, 1.0]}
    rows = [Done(c, {**result, "test_error": e}, 1.0) for c, e in zip(wanted, errors.values(), strict=True)]
    again = stopping.further(Results([task], scale, rows, wanted))
    assert [c.params["seed"] for c in again] == [1] * len(wanted)
    more = [Done(c, {**result, "test_error": 0.3}, 1.0) for c in again if c.params["method"] == "lqf"]
    summary = stopping.summarise(Results([task], scale, rows, wanted, {}, more))
    assert summary.table.rows == (
        (task.name, "central crops", "90.0", "90.0", "90.0"),
        (task.name, "random crops", "20.0 ± 14.1", "–", "–"),
    )
    judged = {s["statement"]: s["data"].get(task.name) for s in summary.values["statements"]}
    assert judged["random crops < central crops, 2 epochs"]["value"] == pytest.approx(-0.7)
    assert judged["random crops < central crops, 2 epochs"]["verdict"] == "confirmed"
    assert judged["central crops, 2 epochs < the exact solution"]["verdict"] == "not confirmed"
    assert judged["random crops, 4 epochs < 2 epochs"] is None
