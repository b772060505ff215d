"""`lqf predict … -o FILE --jobs N --resume`: files of large folders, killed and continued."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from forked import forked
from lqf.cli import main
from lqf.reports.unfinished import Unfinished


def dying(words: list[str]) -> None:
    """`lqf` in a process that is killed while it writes what follows the third part."""
    add, parts = Unfinished.add, []

    def add_and_die(self: Unfinished, rows: object) -> list[int]:
        parts.append(add(self, rows))
        if len(parts) == 3:
            self._file.write(b'{"path": "half a li')
            self._file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return parts[-1]

    Unfinished.add = add_and_die
    main(words)


def test_a_killed_run_continues_to_the_same_file(lqf, run, photos):
    words = ["predict", run, photos / "test", "--batch-size", 2, "--device", "cpu"]
    assert lqf(*words, "--jobs", 1, "-o", "whole.csv").code == 0
    words += ["-o", "out.csv", "--jobs", 2]
    killed = forked(partial(dying, [str(word) for word in words]), Path())
    assert killed.code == -signal.SIGKILL, killed.text
    assert set(os.listdir()) == {"whole.csv", "out.csv.partial"}
    assert "--resume continues it, --overwrite begins again" in lqf(*words).err
    called = lqf(*words, "--resume")
    assert called.code == 0, called.err
    assert "of 12 images are predicted already" in called.err
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert set(os.listdir()) == {"whole.csv", "out.csv"}


def test_ctrl_c_says_how_to_continue(lqf, run, photos, monkeypatch):
    add, parts = Unfinished.add, []

    def interrupted(self: Unfinished, rows: object) -> list[int]:
        parts.append(rows)
        if len(parts) == 3:
            raise KeyboardInterrupt
        return add(self, rows)

    monkeypatch.setattr(Unfinished, "add", interrupted)
    called = lqf("predict", run, photos / "test", "-o", "out.csv", "--batch-size", 2)
    assert called.code == 130
    assert "of 12 images are predicted and kept in `out.csv.partial`; the same again with --resume" in called.err
    assert os.listdir() == ["out.csv.partial"]


def test_other_options_do_not_continue(lqf, run, photos, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("lqf.reports.row_files.write_table", full)
        assert lqf("predict", run, photos / "test", "-o", "out.csv").code == 1
    called = lqf("predict", run, photos / "test", "-o", "out.csv", "--resume", "--top", 3)
    assert called.code == 2
    assert "other options (top 1, now 3)" in called.err
    assert os.listdir() == ["out.csv.partial"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--resume"], "--resume continues a file; name it with -o"),
        (["--resume", "-o", "a.csv", "--sets", 0.9], "--sets needs all images at once"),
        (["--resume", "-o", "a.csv", "--std"], "--std needs all images at once"),
        (["--resume", "-o", "a.csv", "--novelty"], "--novelty needs all images at once"),
        (["--resume", "-o", "a.csv", "--json"], "--json needs all images at once"),
        (["--jobs", 0], "not a whole number from 1 up"),
    ],
)
def test_what_cannot_be_continued_is_refused(lqf, run, photos, words, sentence):
    called = lqf("predict", run, photos / "test", *words)
    assert called.code == 2
    assert sentence in called.err.replace("\n", " ")
    assert os.listdir() == []


def test_threads_change_nothing_on_the_screen(lqf, run, photos):
    assert lqf("predict", run, photos / "test", "--jobs", 3).out == lqf("predict", run, photos / "test").out
