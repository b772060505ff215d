import pytest

from lqf.errors import LQFError, MissingDependency


def test_missing_dependency_is_both_kinds_of_error_and_says_what_to_type():
    error = MissingDependency("timm", "`timm:` backbones")
    assert isinstance(error, LQFError)
    assert isinstance(error, ImportError)
    assert str(error) == "timm is needed for `timm:` backbones and is not installed: run `pip install timm`"


def test_missing_dependency_takes_another_command():
    with pytest.raises(LQFError, match="run `pip install --no-deps weights`"):
        raise MissingDependency("weights", "this", "pip install --no-deps weights")
