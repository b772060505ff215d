"""Marks of tests that need a package."""

from importlib.util import find_spec

import pytest

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs triton, whose interpreter runs on a CPU")
