"""Many processes answer as one does, digit by digit as far as sums over processes allow, and all of them alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from closeness import relative
from fits import FIXED, classifier, data, photos
from launches import by_agent
from lqf import LQFClassifier
from lqf.cli import main
from lqf.runtime.distributed import ALONE, World, joined

N = 10
PCG = {"solver": "pcg", "tol": 1e-2, "max_passes": 100, "weight_decay": 1.0, "body_weight_decay": 3.0}
KINDS: dict[str, dict[str, Any]] = {
    "pcg": {**PCG, "loo": "none"},
    "pcg, nothing kept": {**PCG, "keep_for_questions": "none"},
    "dense": {"solver": "dense", **FIXED},
    "head": {"solver": "head"},
}
X, Y = data(N)
NEW = data(3, seed=5)[0]


def answers(kind: str, world: World = ALONE) -> dict[str, list[Any]]:
    """What an analysis answers, as JSON."""
    model = classifier(linearize="second", **KINDS[kind]).fit(X, Y)
    analysis = model.analyse(X, world=world)
    queries = analysis.queries(NEW)
    found = {
        "quick": analysis.contrast(queries, quick=True).effects,
        "exact": analysis.contrast(queries).effects,
        "what if": analysis.what_if(queries, without=[1, 8]).outputs,
        "left out": analysis.leave_one_out([0, N - 1]).outputs,
        "influence": analysis.influence(queries, units=[2, 9]).effects,
        "order": analysis.leaving(queries, steps=2).double(),
        "information": analysis.information(queries).value,
        "covariance": analysis.method.covariance(queries, analysis.units).value,
    }
    return {name: value.flatten().tolist() for name, value in found.items()}


def work() -> int:
    """One of the processes; the first one writes what all of them found."""
    with joined("cpu") as world:
        found = {kind: answers(kind, world) for kind in KINDS}
        every = world.all_gather(found)
        if world.rank == 0:
            Path("out.json").write_text(json.dumps(every))
    return 0


def lqf(*words: str) -> int:
    """A command in one of the processes."""
    return main(list(words))


def command(folder: Path) -> dict[str, Any]:
    """What the command line says in one process, in a folder with a model."""
    photos(folder / "photos", 3)
    LQFClassifier("mobilenet_v2", device="cpu", verbose=0, size=32, linearize="final", pooling="avg", **PCG).fit(
        folder / "photos"
    ).save(folder / "run")
    return (
        LQFClassifier.load(folder / "run", device="cpu", verbose=0)
        .explain(folder / "photos", quick=False, without=["green/0.png"])
        .to_dict()
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("many")


@pytest.fixture(scope="module")
def many(folder: Path) -> list[dict[str, Any]]:
    done = by_agent(work, [], folder, 2)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "out.json").read_text())


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_answer_as_one_does(kind: str, many: list[dict[str, Any]]) -> None:
    alone = answers(kind)
    for name, value in alone.items():
        gap = relative(torch.tensor(many[0][kind][name]), torch.tensor(value))
        assert gap < 1e-7, (name, gap)


def test_both_have_the_same_bits(many: list[dict[str, Any]]) -> None:
    assert many[0] == many[1]


def test_the_command_line_answers_once_with_the_same_digits(folder: Path) -> None:
    explained = command(folder)
    words = ["explain", "run", "photos", "--json", "-o", "page.html", "--exact", "--without", "green/0.png", "-q"]
    done = by_agent(lqf, words, folder, 2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    found = json.loads(done.stdout)
    assert found["note"].split(";")[0] == explained["note"].split(";")[0]
    for a, b in zip(found["explanations"], explained["explanations"], strict=True):
        assert a["without"]["probability"] == pytest.approx(b["without"]["probability"], rel=1e-4)
        assert [p["name"] for p in a["towards"]] == [p["name"] for p in b["towards"]]
        changes = [[p["change"] for p in e["towards"] + e["away"]] for e in (a, b)]
        assert changes[0] == pytest.approx(changes[1], rel=1e-3, abs=1e-5)
    assert (folder / "page.html").exists()
    assert {p.name for p in folder.iterdir()} - {"out.json"} == {"photos", "run", "page.html"}
