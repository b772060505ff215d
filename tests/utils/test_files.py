"""Results take their place in one step, whoever is killed, and what a kill has left is recovered and removed."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lqf.errors import LQFError
from lqf.utils import files, rooms
from lqf.utils.exchange import exchange
from lqf.utils.files import FolderKind, atomic_file, atomic_folder, check_folder
from processes import ENVIRONMENT

DIE_AT = """
import os, shutil, signal, sys
from pathlib import Path
from lqf.utils import files
from lqf.utils.files import atomic_folder

moment, plain = sys.argv[1], {"rename": os.rename, "exchange": files.exchange, "rmtree": shutil.rmtree}

def dying(name, after):
    def call(*words, **more):
        if not after:
            os.kill(os.getpid(), 9)
        plain[name](*words, **more)
        os.kill(os.getpid(), 9)
    return call

name, when = moment.split("-")
if name == "rename":
    files.exchange = lambda *_: False
owner = {"rename": os, "exchange": files, "rmtree": shutil}[name]
setattr(owner, name, dying(name, when == "after"))
with atomic_folder(Path("run")) as new:
    (new / "a").write_text("new")
"""


def content(folder: Path) -> str:
    return (folder / "a").read_text()


def written(path: Path, text: str) -> None:
    with atomic_folder(path) as new:
        (new / "a").write_text(text)


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def killed(folder: Path, moment: str) -> None:

    process = subprocess.run(
        [sys.executable, "-c", DIE_AT, moment], cwd=folder, env={**os.environ, **ENVIRONMENT}, capture_output=True
    )
    assert process.returncode == -signal.SIGKILL, process.stderr


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("exchange-before", "old"),
        ("exchange-after", "new"),
        ("rename-before", "old"),
        ("rename-after", "old"),  # the first of two: brought back
        ("rmtree-before", "new"),
    ],
)
def test_a_kill_at_any_moment_leaves_the_old_or_the_new(tmp_path: Path, moment: str, expected: str) -> None:
    run = tmp_path / "run"
    written(run, "old")
    killed(tmp_path, moment)
    assert len(listing(tmp_path)) >= 1
    rooms.recover(run)
    assert content(run) == expected
    assert listing(tmp_path) == ["run"]


def test_the_next_command_cleans_up(tmp_path: Path) -> None:
    run = tmp_path / "run"
    written(run, "old")
    killed(tmp_path, "exchange-before")
    assert len(listing(tmp_path)) == 2
    written(run, "newer")
    assert content(run) == "newer"
    assert listing(tmp_path) == ["run"]


def test_what_another_process_writes_is_left_alone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with atomic_folder(run) as one:
        (one / "a").write_text("one")
        rooms.recover(run)
        written(run, "other")
        assert one.is_dir()
        assert content(run) == "other"
    assert content(run) == "one"
    assert listing(tmp_path) == ["run"]


def test_a_folder_hidden_by_an_earlier_version_comes_back(tmp_path: Path) -> None:
    hidden = tmp_path / ".run.old.abc_d012" / "model"
    hidden.mkdir(parents=True)
    (hidden / "a").write_text("old")
    other = tmp_path / ".run.old.mine"  # not a name of ours
    other.mkdir()
    with pytest.raises(ValueError, match="exists"):
        check_folder(tmp_path / "run", False, FolderKind("a", "f", "is foreign"))
    assert content(tmp_path / "run") == "old"
    assert listing(tmp_path) == [".run.old.mine", "run"]


def test_where_nothing_can_be_exchanged_there_are_two_renames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    written(run, "old")
    monkeypatch.setattr(files, "exchange", lambda *_: False)
    written(run, "new")
    assert content(run) == "new"
    assert listing(tmp_path) == ["run"]


def test_exchange(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("1")
    other.mkdir()
    if not exchange(one, other):
        pytest.skip("this system cannot exchange names")
    assert one.is_dir()
    assert other.read_text() == "1"
    with pytest.raises(OSError, match="No such file"):
        exchange(one, tmp_path / "nothing")


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with atomic_folder(tmp_path / "run") as new:
            (new / "a").touch(0o600)
            (new / "b").mkdir()
            (new / "b" / "c").touch(0o600)
        with atomic_file(tmp_path / "table.csv") as file:
            file.touch(0o600)
    finally:
        os.umask(before)
    modes = {p.name: oct(stat.S_IMODE(p.stat().st_mode)) for p in tmp_path.rglob("*")}
    assert modes == {"run": "0o750", "b": "0o750", "a": "0o640", "c": "0o640", "table.csv": "0o640"}


def test_a_failed_file_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_text("old")

    def fail() -> None:
        with atomic_file(path) as file:
            file.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert listing(tmp_path) == ["model"]


def test_a_place_that_takes_no_folder_is_refused_beforehand(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (Path("/proc/run"), tmp_path / "file" / "run"):
        with pytest.raises(LQFError, match="takes no new folder"):
            check_folder(path, False, FolderKind("a", "f", "is foreign"))
    check_folder(tmp_path / "deep" / "er" / "run", False, FolderKind("a", "f", "is foreign"))
    assert listing(tmp_path) == ["file"]


def test_a_link_stays_and_what_it_names_is_replaced(tmp_path):
    place, link = tmp_path / "disk" / "run", tmp_path / "run"
    place.parent.mkdir()
    link.symlink_to(place)
    for text in ("first", "second"):
        written(link, text)
        assert link.is_symlink()
        assert content(place) == text
    file = tmp_path / "disk" / "new.csv"
    (tmp_path / "new.csv").symlink_to(file)
    files.write_file(tmp_path / "new.csv", "a")
    assert (tmp_path / "new.csv").is_symlink()
    assert file.read_text() == "a"
    assert listing(tmp_path / "disk") == ["new.csv", "run"]
    assert listing(tmp_path) == ["disk", "new.csv", "run"]
