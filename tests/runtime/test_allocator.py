"""Memory that is freed stays with the process until something is planned by what is free."""

import platform

import pytest

from processes import python

GLIBC = platform.libc_ver()[0] == "glibc"
SCRIPT = """
import resource, torch
from lqf.runtime.allocator import give_back_freed_memory, keep_freed_memory
from lqf.runtime.memory import available_ram

def faults(n=40):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(n):
        torch.ones(10_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

torch.set_num_threads(1)
faults(2)
plain = faults()
assert keep_freed_memory()
faults(2)
kept, held = faults(), resident()
available_ram()
print(plain, kept, held - resident())
"""


@pytest.mark.skipif(not GLIBC, reason="needs glibc")
def test_freed_memory_is_reused_and_given_back_for_planning() -> None:
    done = python("-c", SCRIPT)
    assert done.returncode == 0, done.stderr
    plain, kept, returned = map(int, done.stdout.split())
    assert plain > 1000  # 40 MB of pages each time, where the system maps small pages
    assert kept < plain / 3
    assert returned > 30e6


def test_without_glibc_nothing_happens() -> None:
    script = """
import lqf.runtime.allocator as a
a._glibc = lambda: None
assert not a.keep_freed_memory()
a.give_back_freed_memory()
"""
    done = python("-c", script)
    assert done.returncode == 0, done.stderr
