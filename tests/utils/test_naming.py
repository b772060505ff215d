"""A choice has its name in Python, and on the command line that of its option."""

import pytest

from lqf.errors import LQFError
from lqf.settings import Settings, check_shown, view_count
from lqf.utils import naming
from lqf.utils.files import FolderKind, check_file, check_folder
from lqf.utils.naming import command_line


def test_the_two_faces_of_a_choice():
    calls = (
        lambda: naming.name("time_limit"),
        lambda: naming.given("loo", "folds"),
        lambda: naming.given("overwrite"),
        lambda: naming.given("relinearize", 2),
        lambda: naming.either("--train DIR", "train="),
    )
    assert [call() for call in calls] == ["time_limit", "loo='folds'", "overwrite=True", "relinearize=2", "train="]
    with command_line():
        shown = ["--time-limit", "--loo folds", "--overwrite", "--relinearize 2", "--train DIR"]
        assert [call() for call in calls] == shown
    assert not naming.on_command_line()


def test_an_error_ends_the_block():
    with pytest.raises(LQFError), command_line():
        raise LQFError("no")
    assert not naming.on_command_line()


SENTENCES = {
    "file": (lambda path: check_file(path, False, (".csv",)), "overwrite=True", "--overwrite"),
    "folder": (
        lambda path: check_folder(path, False, FolderKind("m", "f", "is foreign")),
        "overwrite=True",
        "--overwrite",
    ),
    "choice": (lambda _: Settings(views="seven"), "views is 'seven'", "--views is 'seven'"),
    "view": (lambda _: view_count("seven"), "views is", "--views is"),
    "rule": (lambda _: Settings(max_passes=0), "max_passes is 0", "--max-passes is 0"),
    "shown": (lambda _: check_shown("five", "flip"), "predict_views 'flip'", "--predict-views 'flip'"),
    "climb": (
        lambda _: Settings(solver="head", time_limit="1m"),
        "effort and time_limit say how far to climb from model to model, and these settings name one model "
        "(solver='head')",
        "--effort and --time-limit say how far to climb from model to model, and these settings name one model "
        "(--solver head)",
    ),
    "moves": (lambda _: Settings(solver="head", relinearize=1), "relinearize and", "--relinearize and"),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_a_sentence_suits_its_reader(name, tmp_path):
    refuse, argument, option = SENTENCES[name]
    path = tmp_path / "out.csv"
    path.write_text("there")
    with pytest.raises(LQFError) as in_python:
        refuse(path)
    with pytest.raises(LQFError) as typed, command_line():
        refuse(path)
    assert argument in str(in_python.value)
    assert "--" not in str(in_python.value)
    assert option in str(typed.value)
