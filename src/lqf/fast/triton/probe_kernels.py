"""The smallest kernel there is; imported on a machine with a GPU only."""

# mypy: ignore-errors
# ruff: noqa: D103

import triton
import triton.language as tl


@triton.jit
def add_one(x):
    tl.store(x, tl.load(x) + 1.0)
