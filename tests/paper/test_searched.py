"""What a page says of a search: settings in few words, what the paper's grid has beside them, ends, lost runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lqf.paper.experiment import Done, Results
from lqf.paper.experiments import lowshot, table1
from lqf.paper.grid import product
from lqf.paper.grid_text import spelled, value
from lqf.paper.lab import Task
from lqf.paper.scale import PAPER, SHORT
from lqf.paper.searched import cut, searched, table
from lqf.paper.typed import shown_command


def test_settings_in_few_words() -> None:
    sgd = product(learning_rate=(0.01, 0.001), weight_decay=(1e-4, 1e-5), augment=("none", "crop"))
    assert spelled(sgd) == "η 0.01, 0.001 × λ 1e-4, 1e-5 × no crops, crops"
    more = [*sgd, {"learning_rate": 0.001, "weight_decay": 1e-5, "augment": "resized"}]
    assert spelled(more) == f"{spelled(sgd)}; η 0.001 × λ 1e-5 × resized crops"
    assert spelled([{}]) == "the defaults"
    assert spelled([]) == ""
    assert [value(v) for v in (1e-4, 2.5e-5, 0.001, 28, "auto")] == ["1e-4", "2.5e-5", "0.001", "28", "auto"]


def results(task: Task, error: Any) -> Results:
    cells = table1.cells([task], SHORT)
    made = [(c, error(c.params["method"], c.params["settings"])) for c in cells]
    return Results([task], SHORT, [Done(c, {"test_error": e, "diverged": e is None}, 1.0) for c, e in made], cells)


def test_winners_at_an_end_and_runs_that_diverged_are_told(task: Task) -> None:
    def error(method: str, settings: dict[str, Any]) -> float | None:
        rate = settings.get("learning_rate", 0.0)
        if method == "gaf":
            return None if rate == 0.01 else 0.1 + rate
        return 0.5 - rate if method == "nlft" else 0.2 + abs(rate - 0.03)

    rows = {r.method: r for r in searched(results(task, error), table1)}
    assert rows["NLFT"].at_edge == "η 0.05, the highest: one"
    assert rows["LQF (paper)"].at_edge == ""  # the best rate is inside
    assert rows["GaF"].at_edge == "η 1e-4, the lowest: one"
    assert rows["GaF"].diverged == "one: 1, η 0.01 × λ 1e-5 × crops"
    assert rows["NLFT"].length == "300, 28"  # 300 steps, each with all 15 images
    assert rows["LQF FC"].tried == "λ 1e-4, 1e-5, auto"
    assert "7 of 9 not tried" in rows["NLFT"].left_out
    assert "resized crops" in rows["NLFT"].left_out
    assert rows["LQF (ours)"].left_out == ""
    shown = table(list(rows.values()))
    assert shown.columns[-1] == "diverged"
    assert len(shown.rows) == len(table1.METHOD_NAMES)


def test_a_winner_that_one_inside_equals_is_not_at_an_end(task: Task) -> None:
    rows = {r.method: r for r in searched(results(task, lambda method, settings: 0.1), table1)}
    assert all(r.at_edge == "" for m, r in rows.items() if m != "FC")
    assert rows["FC"].at_edge == "η 0.1, the highest: one"  # two rates have no inside


def test_cells_that_are_missing_were_not_tried(task: Task) -> None:
    whole = results(task, lambda method, settings: 0.1)
    part = replace(whole, done=[d for d in whole if d.params["settings"].get("learning_rate") in (0.05, 0.1)])
    rows = {r.method: r for r in searched(part, table1)}
    assert rows["NLFT"].tried == "η 0.05 × λ 1e-4 × crops (1 of 5 cells)"
    assert rows["NLFT"].left_out.startswith("9 of 9 not tried")
    assert rows["LQF (ours)"].tried == "(0 of 1 cells)"


def test_nothing_is_left_out_of_the_papers_own_grid(task: Task) -> None:
    for experiment in (table1, lowshot):
        cells = experiment.cells([task], PAPER)
        made = Results([task], PAPER, [Done(c, {"test_error": 0.1}, 1.0) for c in cells], cells)
        assert {r.left_out for r in searched(made, experiment)} == {""}
        assert cut(made, experiment) == ""


def test_smaller_runs_say_so(task: Task) -> None:
    small = replace(SHORT, epochs=40, shots=(2, None), draws=1, eigenvalues=3, per_class=7)
    told = cut(Results([task], small, [], lowshot.cells([task], small)), lowshot)
    assert "shots 2, all (1, 2, 5, 10, 20, all); draws 1 (5)" in told
    assert "eigenvalues" not in told  # nothing here depends on them
    assert "7 training images per class at the most" in told


def test_pages_show_no_folders_and_the_command_that_computes() -> None:
    typed = "lqf paper table1 bilinear --data /home/me/birds x/flowers --weights 'my net.pth' --out=../results"
    shown = "lqf paper bilinear --data birds flowers --weights 'my net.pth' --out=results"
    data = ("/home/me/birds", "x/flowers")
    assert shown_command(f"{typed} --finished --json", ("table1", "bilinear"), "bilinear", data) == shown
    everything = shown_command("lqf paper all --data ../all --quick", ("table1", "adam"), "adam", ("../all",))
    assert everything == "lqf paper adam --data all --quick"
    assert shown_command("lqf paper adam --data .", ("adam",), "adam", (".",)).split()[-1] not in (".", "")
