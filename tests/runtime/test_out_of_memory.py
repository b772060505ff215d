"""Out of memory: half of the rows at a time, a few times; other errors are what they were."""

import gc
import weakref

import pytest
import torch

from lqf.runtime.out_of_memory import HALVINGS, DoesNotFit, in_smaller_batches, is_out_of_memory

ERRORS = {
    "python": MemoryError(),
    "cuda": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "cpu": RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: you tried"),
    "library": RuntimeError("CUDA out of memory in a library"),
}


class Computation:
    """Fits with so many rows, and raises otherwise."""

    def __init__(self, fits: int, error: Exception | None = None):
        self.fits, self.error, self.tried = fits, error or MemoryError(), []

    def __call__(self, rows: int) -> str:
        self.tried.append(rows)
        if rows > self.fits:
            raise self.error
        return f"done with {rows}"


@pytest.mark.parametrize("kind", ERRORS)
def test_rows_are_halved_until_they_fit(kind: str) -> None:
    compute, said = Computation(3, ERRORS[kind]), []
    assert in_smaller_batches(compute, 12, said.append, "LQF") == "done with 3"
    assert compute.tried == [12, 6, 3]
    assert len(said) == 2
    assert all(line.startswith("LQF: ") for line in said)
    assert [rows in line for rows, line in zip(("6 rows", "3 rows"), said, strict=True)] == [True, True]


def test_what_fits_at_once_is_said_nothing_about() -> None:
    said: list[str] = []
    assert in_smaller_batches(Computation(8), 8, said.append, "LQF") == "done with 8"
    assert not said


@pytest.mark.parametrize(("rows", "tried"), [(64, [64, 32, 16, 8]), (3, [3, 1]), (1, [1])])
def test_what_never_fits_is_given_up(rows: int, tried: list[int]) -> None:
    compute, said = Computation(0), []
    with pytest.raises(DoesNotFit, match="LQF"):
        in_smaller_batches(compute, rows, said.append, "LQF")
    assert compute.tried == tried
    assert len(tried) <= HALVINGS + 1
    assert len(said) == len(tried) - 1


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), ValueError("no"), KeyError("memory")], ids=repr)
def test_other_errors_pass(error: Exception) -> None:
    compute = Computation(0, error)
    with pytest.raises(type(error)) as found:
        in_smaller_batches(compute, 8, print, "LQF")
    assert found.value is error
    assert compute.tried == [8]
    assert not is_out_of_memory(error)


def test_an_interruption_passes() -> None:
    def compute(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_smaller_batches(compute, 8, print, "LQF")


def test_an_error_that_only_follows_from_lack_of_memory_passes() -> None:
    """Something broke on the way: trying again might hide it."""

    def compute(_: int) -> None:
        try:
            raise MemoryError
        except MemoryError as error:
            raise ValueError("half a result") from error

    with pytest.raises(ValueError, match="half a result"):
        in_smaller_batches(compute, 8, print, "LQF")


def test_what_the_failed_attempt_held_is_gone_before_the_next() -> None:
    class Large:
        pass

    held: list[weakref.ref[Large]] = []
    alive: list[bool] = []

    def compute(rows: int) -> None:
        alive.extend(r() is not None for r in held)
        large = Large()
        held.append(weakref.ref(large))
        if rows > 2:
            raise MemoryError

    gc.disable()
    try:
        in_smaller_batches(compute, 8, lambda _: None, "LQF")
    finally:
        gc.enable()
    assert alive == [False, False, False]  # of the first in the second, of both in the third
