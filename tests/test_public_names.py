"""`lqf` offers a few names, all of them there, and loads torch for none of them before it is asked."""

from pathlib import Path

import pytest

import lqf
from processes import python


def test_dir_lists_what_is_public_and_all_of_it_is_there():
    functions, values = ["compare", "load", "select"], ["Agree", "Bound", "EqualMeans", "Explanations", "KeepRight"]
    errors = ["LQFError", "NotFitted"]
    assert dir(lqf) == sorted(lqf.__all__) == [*values, "LQFClassifier", *errors, "__version__", *functions]
    assert all(hasattr(lqf, name) for name in lqf.__all__)
    assert lqf.load == lqf.LQFClassifier.load
    with pytest.raises(AttributeError, match="no attribute `nothing`"):
        _ = lqf.nothing


def test_looking_at_the_package_loads_no_torch(tmp_path: Path):
    done = python("-c", "import sys, lqf; dir(lqf); help; print('torch' in sys.modules)", folder=tmp_path)
    assert done.stdout == "False\n", done.stderr
