"""What was timed before: kept in one small file, whose loss or damage costs a measurement and nothing else."""

import json
from pathlib import Path

import pytest
import torch

from lqf.runtime.timings import MOST, recall, remember, timings_file

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LQF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_is_remembered_is_recalled(folder: Path) -> None:
    assert recall("passes", CPU) is None
    remember("passes", CPU, {"head": 1.5})
    remember("products", CPU, [1, 2])
    assert recall("passes", CPU) == {"head": 1.5}
    assert recall("products", CPU) == [1, 2]
    assert recall("other", CPU) is None
    remember("passes", CPU, 3)
    assert recall("passes", CPU) == 3
    assert [p.name for p in folder.iterdir()] == ["timings.json"]


def test_another_number_of_threads_is_another_machine(folder: Path) -> None:
    threads = torch.get_num_threads()
    remember("passes", CPU, 1)
    try:
        torch.set_num_threads(threads + 1)
        assert recall("passes", CPU) is None
    finally:
        torch.set_num_threads(threads)
    assert recall("passes", CPU) == 1


def test_off_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LQF_CACHE", "OFF")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert timings_file() is None
    remember("passes", CPU, 1)
    assert recall("passes", CPU) is None
    assert not any(tmp_path.iterdir())


def test_the_folder_is_the_user_s_cache_unless_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LQF_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert timings_file() == tmp_path / "lqf" / "timings.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert timings_file() == tmp_path / "home" / ".cache" / "lqf" / "timings.json"


@pytest.mark.parametrize("content", [b"{half", b"\xff\xfe\x00", b"[1, 2]", b"", b"null"])
def test_a_damaged_file_is_none_and_is_written_anew(folder: Path, content: bytes) -> None:
    folder.mkdir()
    (folder / "timings.json").write_bytes(content)
    assert recall("passes", CPU) is None
    remember("passes", CPU, 2)
    assert recall("passes", CPU) == 2


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("LQF_CACHE", str(tmp_path / "file"))
    remember("passes", CPU, 1)
    assert recall("passes", CPU) is None
    assert (tmp_path / "file").read_text() == "no folder"


def test_the_newest_entries_are_kept(folder: Path) -> None:
    folder.mkdir()
    remember("first", CPU, 0)
    remember("second", CPU, 0)
    known = json.loads((folder / "timings.json").read_text())
    known |= {f"elsewhere {i}": i for i in range(MOST - 2)}
    (folder / "timings.json").write_text(json.dumps(known))
    remember("first", CPU, 1)  # again: it is new now, and nothing has to go
    assert recall("second", CPU) == 0
    remember("third", CPU, 2)
    kept = json.loads((folder / "timings.json").read_text())
    assert len(kept) == MOST == 200
    assert recall("second", CPU) is None  # the oldest
    assert (recall("first", CPU), recall("third", CPU)) == (1, 2)
