"""Many processes: the same optimum as one, each image decoded once, and no silence when a process is lost."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cli.conftest import SOLVE, paint
from faults import at_call
from fits import convnet, pictures
from golden.cases import COMMON, FITS, FIXED
from launches import by_agent, torchrun
from lqf import LQFClassifier
from lqf.cli import main
from lqf.curvature.random_signs import random_signs
from lqf.errors import LQFError
from lqf.fitting.checkpoint import Checkpoint
from lqf.runtime.distributed import ALONE, World, joined, launched
from lqf.solvers.schur import SchurComplement

N, BATCH = 17, 6
"""Images, of which processes have unequal shares, and batches, of which each of two has more than one."""
CASES: dict[str, dict[str, Any]] = {
    "head": FITS["head"],
    "dense": FITS["dense"],
    "chosen": FITS["pcg-chosen"],
    "pcg": FITS["pcg"],
    "views": FITS["views"],
    "kept views": {**FIXED, "views": "auto", "size": 8, "linearize": "deep"},
    "moved": FITS["relinearised"],
    "prefix": FITS["prefix"],
    "w0": {**FIXED, "form": "w0"},
    "bilinear": FITS["bilinear"],
    "float32": {**FIXED, "tol": 1e-7, "dtype": "float32"},
}

AMONG_THREE = ("dense", "pcg", "views")
"""Cases that are fitted by three processes, too."""
BY_STEPS = ("chosen", "pcg", "views", "prefix", "w0")
"""Cases whose iterations are compared."""


def cases_of(processes: int) -> tuple[str, ...]:
    """What so many processes fit."""
    return tuple(CASES) if processes == 2 else AMONG_THREE


def fit(case: str, world: World = ALONE) -> dict[str, Any]:
    """What a fit finds, as JSON."""
    options = {"backbone": convnet(), **COMMON, "batch_size": BATCH, **CASES[case]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lqf.fitting.select_views.GAIN", -9.0)  # what `auto` tries is kept
        model = LQFClassifier(**options).fit(*pictures(N), world=world)
    fitted, report = model.fitted_, model.report_
    return {
        "delta": torch.cat([fitted.head.flatten(), fitted.delta]).tolist(),
        "loo": fitted.loo.outputs.tolist(),
        "decay": [report["weight_decay"], report["body_weight_decay"] or 0],
        "residuals": [step["residual"] for step in report["history"]],
        "processes": report["processes"],
        "views": report["views"],
    }


def worked(world: World) -> str:
    """Everything that is checked with real processes, in one start of them."""
    import lqf.data.images

    decoded, read, sums, per_product = lqf.data.images.decoded, [], [], []
    all_reduce_, product = World.all_reduce_, SchurComplement.product

    def counting(samples: Any, preprocess: Any, i: int) -> Any:
        read.append(samples.ids[i])
        return decoded(samples, preprocess, i)

    def counted_sum(self: World, tensor: torch.Tensor) -> torch.Tensor:
        sums.append(tensor.numel())
        return all_reduce_(self, tensor)

    def counted_product(self: SchurComplement, v: torch.Tensor) -> torch.Tensor:
        before = len(sums)
        out = product(self, v)
        per_product.append(sums[before:])
        return out

    lqf.data.images.decoded, World.all_reduce_, SchurComplement.product = counting, counted_sum, counted_product
    fits = {"pcg": fit("pcg", world)}
    read_each = world.all_gather(read)
    fits |= {case: fit(case, world) for case in cases_of(world.size) if case != "pcg"}

    def refuse() -> int:
        if world.rank == 1:
            raise LQFError("not with me")
        return world.rank

    refused = []
    for attempt in (refuse, lambda: world.same("number", world.rank), lambda: fit("refused", world)):
        try:
            CASES["refused"] = {"solver": "sgd"}
            world.together(attempt)
        except LQFError as error:
            refused.append(str(error))
    same = world.all_gather([fits[case]["delta"] for case in fits])
    return json.dumps(
        {
            "fits": fits,
            "read": read_each,
            "product": per_product[0],
            "every": world.all_gather({"rank": world.rank, "text": "ß" * world.rank}),
            "first": world.first(lambda: world.rank),
            "spread": world.broadcast_(torch.full((2,), 7.0 + world.rank)).tolist(),
            "refused": refused,
            "bitwise": all(each == same[0] for each in same),
        }
    )


def work() -> int:
    """One of the processes; the first one writes what they found."""
    with joined("cpu") as world:
        result = worked(world)
        if world.rank == 0:
            Path("out.json").write_text(result)
    return 0


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    return {case: fit(case) for case in CASES}


@pytest.fixture(scope="module")
def found_by(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], dict[str, Any]]:
    @cache
    def find(processes: int) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp("many")
        done = by_agent(work, [], folder, processes)
        assert done.returncode == 0, done.stderr
        return json.loads((folder / "out.json").read_text())  # type: ignore[no-any-return]

    return find


@pytest.fixture(params=[2, 3])
def many(request: pytest.FixtureRequest, found_by: Callable[[int], dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    return request.param, found_by(request.param)


@pytest.mark.parametrize(("many", "case"), [(k, c) for k in (2, 3) for c in cases_of(k)], indirect=["many"])
def test_the_optimum_is_that_of_one_process(alone: dict[str, Any], many: Any, case: str) -> None:
    processes, found = many
    expected, result = alone[case], found["fits"][case]
    assert result["processes"] == processes
    assert result["views"] == expected["views"] == ("flip" if "views" in case else "none")
    assert result["decay"] == pytest.approx(expected["decay"], rel=1e-6 if case == "float32" else 1e-8)
    for key in ("delta", "loo"):
        a, b = np.array(expected[key]), np.array(result[key])
        assert np.linalg.norm(a - b) < (1e-5 if case == "float32" else 1e-7) * np.linalg.norm(a), key


@pytest.mark.parametrize(
    ("many", "case"), [(k, c) for k in (2, 3) for c in BY_STEPS if c in cases_of(k)], indirect=["many"]
)
def test_the_residuals_of_every_step_are_those_of_one_process(alone: Any, many: Any, case: str) -> None:
    assert many[1]["fits"][case]["residuals"] == pytest.approx(alone[case]["residuals"], rel=1e-3)
    assert case == "chosen" or alone[case]["residuals"][-1] < 1e-9


def test_every_process_ends_with_the_same_bits(many: Any) -> None:
    assert many[1]["bitwise"]


def test_each_image_is_decoded_by_one_process(many: Any) -> None:
    processes, found = many
    assert [len(part) for part in found["read"]] == [len(World(k, processes).share(N)) for k in range(processes)]
    assert sorted(int(id) for part in found["read"] for id in part) == list(range(N))


def test_a_product_makes_two_sums_one_over_rows_and_one_over_weights(many: Any) -> None:
    rows, weights = many[1]["product"]
    assert rows == 3 * N
    assert weights == sum(p.numel() for n, p in convnet().named_parameters() if not n.startswith("head"))


def test_what_processes_tell_each_other(many: Any) -> None:
    processes, found = many
    assert found["every"] == [{"rank": k, "text": "ß" * k} for k in range(processes)]
    assert found["first"] == 0
    assert found["spread"] == [7.0, 7.0]


def test_a_refusal_of_one_is_a_refusal_of_all(many: Any) -> None:
    one, different, stochastic = many[1]["refused"]
    assert one == "not with me"
    assert "not given the same number" in different
    assert "without torchrun" in stochastic


# --- the command line -------------------------------------------------------------------------------------------------

NETWORK = ["--backbone", "mobilenet_v2"]  # the last one counts: processes of their own know the built-in ones
FIT = ["fit", "train", "-o", "run", *SOLVE, *NETWORK, "--json"]


def dying(rank: str, how: str, *words: str) -> int:
    """`lqf` in a process that is lost in its fourth product if it has this number, with a checkpoint left."""
    save = Checkpoint.save

    def die() -> None:
        if os.environ["RANK"] == rank:
            if how == "raise":
                raise RuntimeError("no room")
            os.kill(os.getpid(), int(how))

    def eager(self: Checkpoint, vectors: Any, state: Any, force: bool = False) -> None:
        save(self, vectors, state, force=force or rank == "0")

    with pytest.MonkeyPatch.context() as patch:
        at_call(patch, SchurComplement, "product", 4, die)
        patch.setattr(Checkpoint, "save", eager)
        return main(list(words))


def lqf(*words: str) -> int:
    return main(list(words))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    paint(tmp_path / "train", 6, seed=0)
    paint(tmp_path / "test", 4, seed=1)
    return tmp_path


def scores(folder: Path) -> list[float]:
    model = LQFClassifier.load(folder / "run", device="cpu")
    return model.predict_proba(folder / "test").flatten().tolist()


def is_lost(done: subprocess.CompletedProcess[str], folder: Path) -> None:
    """A fit in which one process was lost ended, with a checkpoint and the way on."""
    assert done.returncode != 0
    assert not (folder / "run").exists()
    assert (folder / "run.checkpoint").exists(), done.stderr
    assert "To continue:\n  torchrun … -m lqf fit train" in done.stderr
    assert "--resume" in done.stderr


def test_a_killed_process_ends_the_fit_which_continues_with_another_number(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert main(FIT) == 0
    expected = scores(folder)
    (folder / "run").rename(folder / "plain")
    done = by_agent(dying, ["1", str(int(signal.SIGKILL)), *FIT], folder, 3)
    is_lost(done, folder)
    assert done.stdout.count("\n") == 1
    assert "run.checkpoint" in json.loads(done.stdout)["error"]
    done = torchrun(["-m", "lqf", *FIT, "--resume"], folder, 2)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("resuming after") == 1
    result = json.loads(done.stdout)
    assert result["converged"]
    assert result["processes"] == 2
    assert scores(folder) == pytest.approx(expected, abs=1e-4)
    assert {p.name for p in folder.iterdir()} == {"train", "test", "plain", "run"}


def test_a_process_that_stops_says_why_by_the_first_one(folder: Path) -> None:
    done = by_agent(dying, ["1", "raise", *FIT], folder, 2)
    is_lost(done, folder)
    assert done.stderr.count("lqf: ") == 1
    assert json.loads(done.stdout)["error"].startswith("process 2 of 2 stopped (RuntimeError: no room); what was")


def test_when_the_first_process_dies_the_second_speaks_and_the_last_checkpoint_counts(folder: Path) -> None:
    done = by_agent(dying, ["0", str(int(signal.SIGKILL)), *FIT], folder, 2)
    is_lost(done, folder)
    assert "another of the 2 processes ended" in done.stderr


def test_a_wrong_path_is_refused_once(folder: Path) -> None:
    words = ["fit", "nowhere", "-o", "run", "--device", "cpu", "--json"]
    done = by_agent(lqf, words, folder, 2)
    assert done.returncode != 0
    assert "`nowhere` is not there" in json.loads(done.stdout)["error"]
    assert done.stderr.count("`nowhere` is not there") == 1


# --- without processes ------------------------------------------------------------------------------------------------


def test_one_process_alone_does_nothing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(3)
    assert ALONE.all_reduce_(x) is x
    assert ALONE.broadcast_(x) is x
    assert ALONE.all_gather({"a": 1}) == [{"a": 1}]
    assert ALONE.first(lambda: "made") == "made"
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "4")  # a cluster's own, without a launcher
    assert launched() == (0, 1)


@pytest.mark.parametrize("n", [1, 7, 12])
def test_shares_are_consecutive_and_even(n: int) -> None:
    shares = [World(k, 5).share(n) for k in range(5)]
    assert [i for share in shares for i in share] == list(range(n))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_jobs_are_dealt_evenly_and_the_same_everywhere() -> None:
    costs = [1, 8, 3, 4, 1, 1, 6]
    owners = World(0, 3).deal(costs)
    assert owners == World(2, 3).deal(costs)
    assert sorted(sum(c for c, o in zip(costs, owners, strict=True) if o == k) for k in range(3)) == [8, 8, 8]


def test_random_signs_belong_to_their_row() -> None:
    rows = torch.arange(4000)
    signs = random_signs(rows, 3, 5, seed=1)
    assert signs.shape == (3, 4000, 5)
    assert torch.equal(signs.abs(), torch.ones_like(signs))
    some = torch.tensor([17, 3999, 4])
    assert torch.equal(random_signs(some, 3, 5, seed=1), signs[:, some])
    flat = torch.cat([signs, random_signs(rows, 3, 5, seed=2)]).permute(1, 0, 2).flatten(1).double()
    moments = flat.T @ flat / len(rows)
    assert float((moments - torch.eye(30).double()).abs().max()) < 5 / 4000**0.5
    assert float(flat.mean(0).abs().max()) < 5 / 4000**0.5


def test_launched_reads_what_torchrun_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "2", "WORLD_SIZE": "3", "MASTER_ADDR": "a", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert launched() == (2, 3)
