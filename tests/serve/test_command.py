"""`lqf serve` at the command line: what is refused before a model is opened, and that it serves until it is stopped."""

import socket
import sys
from typing import Any

import pytest

from lqf import LQFClassifier
from lqf.cli import main
from lqf.serve.apply import Applying, manifest_of


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, model: LQFClassifier) -> list[Any]:
    """What would have been served; the model in RUN is the small one."""
    given: list[Any] = []
    monkeypatch.setattr("lqf.cli.serve.load_model", lambda args: model)
    monkeypatch.setattr("lqf.serve.run._run", lambda app, bound: given.append((app, bound.getsockname())))
    return given


def test_it_serves_at_this_machine_alone(served, folders, tmp_path, capsys):
    assert main(["serve", str(tmp_path / "run"), "--test", str(folders / "test"), "--port", "0"]) == 0
    (_, (host, port)) = served[0]
    assert host == "127.0.0.1"
    told = capsys.readouterr()
    assert f"http://127.0.0.1:{port}/" in told.err
    assert "no longer served" in told.out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--port", "70000"], "not a port"),
        (["--port", "x"], "not a port"),
        (["--host", "nowhere.invalid", "--port", "0"], "cannot serve at nowhere.invalid"),
        (["--port", "0", "--test", "nowhere"], "nowhere"),
        (["--port", "0", "--pool", "nowhere"], "nowhere"),
        (["--port", "0", "--train", "nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_used_is_said_in_a_sentence(served, tmp_path, capsys, words, sentence):
    assert main(["serve", str(tmp_path / "run"), *words]) == 2
    assert sentence in capsys.readouterr().err
    assert served == []


def test_a_port_in_use(served, tmp_path, capsys):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        assert main(["serve", str(tmp_path / "run"), "--port", port]) == 2
    assert "choose another --port" in capsys.readouterr().err


def test_without_the_extra_it_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", str(tmp_path)]) == 2
    assert "lqf-torch[serve]" in capsys.readouterr().err


def test_a_fit_that_is_given_up_leaves_no_manifest(opened):
    session = opened()
    session.correct(0, "exclude", None)
    applying = Applying(session)
    applying.state, applying._out = "running", session.out
    manifest_of(session.out).write_text("path,label\n")
    applying.give_up()
    assert not list(session.out.parent.iterdir())


def test_the_page_ends_when_the_corrected_model_is_written(served, folders, tmp_path, capsys, monkeypatch):
    def corrected(app, bound):
        pages = next(r.endpoint for r in app._app.routes if r.path == "/").__self__
        pages.session.correct(0, "exclude", None)
        pages.applying.start()

    monkeypatch.setattr("lqf.serve.run._run", corrected)
    assert main(["serve", str(tmp_path / "run"), "--port", "0"]) == 0
    assert "Written: run-corrected, run-corrected.csv, run-corrected-corrections.csv" in capsys.readouterr().out
    assert (tmp_path / "run-corrected" / "model.json").is_file()
