"""What a page says of a search: settings in few words, what the paper's grid has in addition, ends, lost runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lqf_paper.experiments import lowshot
from lqf_paper.methods.catalogue import params
from lqf_paper.report.grid_text import spelled, value
from lqf_paper.report.search_report import HEADS, Row, cut, search_rows, table
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Done, Results, Summary
from lqf_paper.runner.grid import product
from lqf_paper.runner.scale import PAPER, SHORT, Scale
from lqf_paper.runner.shown_command import shown_command
from lqf_paper.runner.workspace import Task


def test_settings_in_few_words() -> None:
    sgd = product(learning_rate=(0.01, 0.001), weight_decay=(1e-4, 1e-5), augment=("none", "crop"))
    assert spelled(sgd) == "η 0.01, 0.001 × λ 1e-4, 1e-5 × no crops, crops"
    more = [*sgd, {"learning_rate": 0.001, "weight_decay": 1e-5, "augment": "resized"}]
    assert spelled(more) == f"{spelled(sgd)}; η 0.001 × λ 1e-5 × resized crops"
    assert spelled([{}]) == "the defaults"
    assert spelled([]) == ""
    assert [value(v) for v in (1e-4, 2.5e-5, 0.001, 28, "auto")] == ["1e-4", "2.5e-5", "0.001", "28", "auto"]


GRIDS = {
    "nlft": {
        "paper": product(learning_rate=(0.01, 0.001), weight_decay=(1e-4, 1e-5), augment=("none", "crop")),
        "short": product(learning_rate=(0.05, 0.01, 0.001), weight_decay=(1e-4,), augment=("crop",)),
    },
    "lqf": dict.fromkeys(("paper", "short"), product(learning_rate=(0.1, 0.03, 0.01), weight_decay=(1e-5,))),
    "lqf-fc": dict.fromkeys(("paper", "short"), product(weight_decay=(1e-4, 1e-5, "auto"))),
}


class Few:
    """Three methods over grids of its own, for `searched`."""

    TITLE = "a few"

    def cells(self, tasks: Sequence[Task], scale: Scale) -> list[Cell]:
        every = [(t, m, s) for t in tasks for m, grids in GRIDS.items() for s in grids[scale.name]]
        return [Cell("fit", t.name, params(m, scale, len(t.train), s)) for t, m, s in every]

    def summarise(self, results: Results) -> Summary:
        raise NotImplementedError


def results(task: Task, error: Any, scale: Scale = SHORT) -> Results:
    cells = Few().cells([task], scale)
    made = [(c, error(c.params["method"], c.params["settings"].get("learning_rate"))) for c in cells]
    return Results([task], scale, [Done(c, {"test_error": e, "diverged": e is None}, 1.0) for c, e in made], cells)


def rows_of(of: Results) -> dict[str, Row]:
    return {r.method: r for r in search_rows(of, Few())}


def test_a_search_in_words(task: Task) -> None:
    rows = rows_of(results(task, lambda method, rate: 0.1))
    assert rows["NLFT"].tried == "η 0.05, 0.01, 0.001 × λ 1e-4 × crops"
    assert rows["NLFT"].left_out == (
        "6 of 8 not tried: η 0.01, 0.001 × λ 1e-4 × no crops; η 0.01, 0.001 × λ 1e-5 × no crops, crops. "
        "Also tried: η 0.05 × λ 1e-4 × crops"
    )
    assert rows["NLFT"].length == "300, 28"  # 300 steps, each with all 15 images
    assert rows["LQF FC"] == Row("LQF FC", "", "λ 1e-4, 1e-5, auto", "", "", "")
    shown = table(list(rows.values()))
    assert shown.columns == HEADS[:4]  # nothing is at an end, nothing diverged
    assert len(shown.rows) == 3


def test_winners_at_an_end_and_runs_that_diverged_are_told(task: Task) -> None:
    def error(method: str, rate: float | None) -> float | None:
        if rate is None:
            return 0.3
        if method == "nlft":
            return None if rate == 0.05 else 0.5 - rate
        return 0.2 + abs(rate - 0.03)

    rows = rows_of(results(task, error))
    assert rows["LQF (paper)"].at_edge == ""  # the best rate is inside
    assert rows["NLFT"].at_edge == ""  # the rate above it was tried, and diverged
    assert rows["NLFT"].diverged == "one: 1, η 0.05 × λ 1e-4 × crops"
    assert rows["LQF FC"].at_edge == ""
    rows = rows_of(results(task, lambda method, rate: 0.5 - (rate or 0.0)))
    assert rows["NLFT"].at_edge == "η 0.05, the highest: one"
    rows = rows_of(results(task, lambda method, rate: 0.5 + (rate or 0.0)))
    assert rows["NLFT"].at_edge == "η 0.001, the lowest: one"


def test_a_winner_that_one_inside_equals_is_not_at_an_end(task: Task) -> None:
    assert {r.at_edge for r in rows_of(results(task, lambda method, rate: 0.1)).values()} == {""}
    paper = rows_of(results(task, lambda method, rate: 0.1, PAPER))
    assert paper["NLFT"].at_edge == "η 0.01, the highest: one"  # two rates have no inside


def test_cells_that_are_missing_were_not_tried(task: Task) -> None:
    whole = results(task, lambda method, rate: 0.1)
    rows = rows_of(replace(whole, done=[d for d in whole if d.params["settings"].get("learning_rate") == 0.05]))
    assert rows["NLFT"].tried == "η 0.05 × λ 1e-4 × crops (1 of 3 cells)"
    assert rows["NLFT"].left_out.startswith("8 of 8 not tried")
    assert rows["LQF FC"].tried == "(0 of 3 cells)"


def test_nothing_is_left_out_of_the_papers_own_grid(task: Task) -> None:
    made = results(task, lambda method, rate: 0.1, PAPER)
    assert {r.left_out for r in rows_of(made).values()} == {""}
    assert cut(made, Few()) == ""


def test_smaller_runs_say_so(task: Task) -> None:
    small = replace(SHORT, epochs=40, shots=(2, None), draws=1, eigenvalues=3, per_class=7)
    smaller = cut(Results([task], small, [], lowshot.cells([task], small)), lowshot)
    assert "shots 2, all (1, 2, 5, 10, 20, all); draws 1 (5)" in smaller
    assert "eigenvalues" not in smaller  # nothing here depends on them
    assert "at most 7 training images per class" in smaller


def test_pages_show_no_folders_and_the_command_that_computes() -> None:
    typed = "lqf paper table1 bilinear --data /home/me/birds x/flowers --weights 'my net.pth' --out=../results"
    shown = "lqf paper bilinear --data birds flowers --weights 'my net.pth' --out=results"
    data = ("/home/me/birds", "x/flowers")
    assert shown_command(f"{typed} --finished --json", ("table1", "bilinear"), "bilinear", data) == shown
    everything = shown_command("lqf paper all --data ../all --quick", ("table1", "adam"), "adam", ("../all",))
    assert everything == "lqf paper adam --data all --quick"
    assert shown_command("lqf paper adam --data .", ("adam",), "adam", (".",)).split()[-1] not in (".", "")
