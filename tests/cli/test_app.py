"""The command line itself: help, version, JSON, warnings, signals; and the small commands."""

import re
import signal
import warnings
from pathlib import Path

import pytest
import torch

import lqf as package
from cli.conftest import TINY
from lqf.cli.app import COMMANDS, installed_commands
from lqf.cli.completion import SHELLS
from lqf.cli.environment import SigtermAsCtrlC, warnings_as_lines
from lqf.cli.unexpected import in_words
from lqf.utils.json_values import json_values
from lqf.utils.progress import terminal_progress
from lqf.utils.text import duration, shortened
from processes import python


@pytest.mark.parametrize("command", [[], *([name] for name in (*COMMANDS, *installed_commands()))], ids=str)
def test_help_fits_into_80_columns(lqf, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    called = lqf(*command, "--help")
    assert called.code == 0
    assert called.out.startswith("usage: lqf")
    assert max(map(len, called.out.splitlines())) <= 80
    assert not command or "--json" in called.out


def test_help_does_not_wait_for_torch():
    code = (
        "import sys; from lqf.cli import main; "
        "codes = [main(['--help']), main(['fit', '--help']), main(['fit'])]; "
        "sys.exit(codes != [0, 0, 2] or any(m in sys.modules for m in ('torch', 'numpy', 'PIL', 'rich')))"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr


def test_version_says_what_computes(lqf):
    called = lqf("--version")
    assert called.code == 0
    assert called.out.startswith(f"lqf {package.__version__}\n")
    assert f"torch {torch.__version__}" in called.out
    assert re.search(r"^(cpu|cuda): .+, \d+ cores?$", called.out, re.M)


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_is_a_script(lqf, shell):
    pytest.importorskip("shtab")
    called = lqf("completion", shell)
    assert called.code == 0
    for word in ("evaluate", "--time-limit" if shell != "tcsh" else "lqf"):
        assert word in called.out


def test_python_m_lqf_is_lqf():
    done = python("-m", "lqf", "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: lqf ")


def test_lqf_without_a_command_explains_itself(lqf):
    called = lqf()
    assert called.code == 2
    assert "commands:" in called.err


def test_backbones_says_what_to_type_for_what_is_missing(lqf, monkeypatch):
    monkeypatch.setattr("lqf.backbones.imports.find_spec", lambda _: None)
    called = lqf("backbones")
    assert called.code == 0
    assert "pip install" in called.out
    assert "--weights FILE" in called.out
    assert max(map(len, called.out.splitlines())) <= 80
    entries = lqf("backbones", "--json").json["backbones"]
    assert all(e["available"] or e["install"] for e in entries)


def test_adapt_writes_weights_that_fit_reads(lqf, photos):
    options = ["--size", 32, "--backbone", "mobilenet_v2", "--device", "cpu"]
    command = ["adapt", photos / "train", "-o", "new/a.safetensors", "--weights", "random", *options]
    called = lqf(*command, "--batch-size", 9, "--epochs", 2)
    assert called.code == 0, called.err
    assert "epoch 2" in called.out
    assert "lqf fit TRAIN -o RUN --backbone mobilenet_v2 --weights new/a.safetensors" in called.out
    before = Path("new/a.safetensors").read_bytes()
    called = lqf(*command, "--json")
    assert (called.code, set(called.json)) == (2, {"error"})
    assert Path("new/a.safetensors").read_bytes() == before
    result = lqf(*command, "--overwrite", "--batch-size", 9, "--seed", 1, "--json").json
    assert len(result["losses"]) == len(result["errors"]) == 1
    assert Path("new/a.safetensors").read_bytes() != before
    assert {path.name for path in Path("new").iterdir()} == {"a.safetensors"}
    fit = ["fit", photos / "train", "-o", "run", "--weights", "new/a.safetensors", *options, "--solver", "head"]
    assert lqf(*fit).code == 0
    Path("new").rename("moved")
    assert "no longer at" in lqf("predict", "run", photos / "test").err
    assert lqf("predict", "run", photos / "test", "--weights", "moved/a.safetensors").code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-o", "a.pth"], "give `a.safetensors`"),
        (["-o", "a.safetensors", "--learning-rate", "-1"], "positive learning rate"),
        (["-o", "a.safetensors", "--backbone", "nonsense"], "there is no backbone `nonsense`"),
    ],
)
def test_adapt_refuses(lqf, photos, words, sentence):
    called = lqf("adapt", photos / "train", *TINY, *words)
    assert called.code == 2
    assert sentence in called.err
    assert not any(Path().iterdir())


def test_demo_is_registered_and_gets_its_options(lqf, monkeypatch):
    got = {}

    def run_demo(out, **options):
        got.update(options, out=out)
        return {"seconds": float("nan")}

    monkeypatch.setattr("lqf.demo.run_demo", run_demo)
    monkeypatch.setattr("lqf.demo.show", lambda result: "shown")
    assert lqf("demo", "--size", 160, "--overwrite", "--json").json == {"seconds": None}
    assert got.pop("progress") is not None
    assert got.pop("began") is None  # the process is older than the command
    assert got == {"out": Path("lqf-demo"), "overwrite": True, "size": 160}
    assert lqf("demo").out == "shown\n"


def test_whatever_a_library_prints_stays_away_from_stdout(lqf, monkeypatch):
    def chatty():
        print("Downloading …")
        warnings.warn("K-FAC has no rule\nfor 2 weights", stacklevel=1)
        return []

    monkeypatch.setattr("lqf.backbones.available", chatty)
    called = lqf("backbones", "--json")
    assert called.json == {"backbones": []}
    assert called.err == "Downloading …\nlqf: K-FAC has no rule for 2 weights\n"


def test_warnings_keep_to_their_block(capsys):
    before = warnings.showwarning
    with warnings_as_lines(terminal_progress()):
        warnings.warn("once", stacklevel=1)
    assert warnings.showwarning is before
    assert capsys.readouterr().err == "lqf: once\n"


def test_sigterm_is_ctrl_c_inside_the_block_only():
    before, signals = signal.getsignal(signal.SIGTERM), SigtermAsCtrlC()
    with pytest.raises(KeyboardInterrupt), signals:
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
    assert signals.code == 143
    assert SigtermAsCtrlC().code == 130


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device", "run/a"), "the disk took no more to `run/a` (No space left on device)"),
        (OSError(27, "File too large"), "the disk took no more (File too large)"),
        (RuntimeError("SafetensorError: Error while serializing: No space left on device"), "the disk took no more"),
        (OSError(30, "Read-only file system", "x"), "nothing can be written to `x` (Read-only file system)"),
        (MemoryError(), "the memory did not suffice"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "the memory did not suffice"),
        (torch.linalg.LinAlgError("singular"), "the equations could not be solved"),
    ],
)
def test_what_nobody_has_foreseen_is_said_in_words(error, said):
    assert in_words(error).startswith(said)


def test_plain_values():
    assert json_values({"a": (1, float("nan")), 2: Path("x"), "c": [float("inf"), "é", None, True]}) == {
        "a": [1, None],
        "2": "x",
        "c": [None, "é", None, True],
    }


def test_text_for_people():
    assert [duration(s) for s in (0.04, 59.96, 247, 4321)] == ["0.0 s", "1 min 00 s", "4 min 07 s", "1 h 12 min"]
    assert shortened("abcdefghij", 5) == "ab…ij"
    assert shortened("abcde", 5) == "abcde"
