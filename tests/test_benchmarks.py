"""Every benchmark has a command line and a small run, and `make bench` makes the small runs of all of them."""

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
SCRIPTS = sorted(p for p in BENCHMARKS.rglob("*.py") if '__name__ == "__main__"' in p.read_text(encoding="utf-8"))

needs_scripts = pytest.mark.skipif(not SCRIPTS, reason="needs benchmarks/, which a source distribution lacks")
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def loaded(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmark_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # where dataclasses look for their module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_a_script_explains_itself_and_its_small_run_is_a_command_line(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = loaded(path, monkeypatch)
    options = module.options()
    with pytest.raises(SystemExit) as ended:
        options.parse_args(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert module.__doc__ is not None
    assert module.__doc__.splitlines()[0] in said
    assert f"`{options.small}`" in " ".join(said.split())
    options.parse_args(options.small_words())


@needs_scripts
@pytest.mark.parametrize("name", ["weak_scaling", "hindsight"])
def test_a_small_run_says_so_and_leaves_the_results_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = BENCHMARKS / f"{name}.py"
    monkeypatch.setattr(importlib.import_module("common.options"), "SMALL", tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path)])
    before = results()
    loaded(path, monkeypatch).main()
    assert capsys.readouterr().out.startswith("small run")
    assert [p.name.partition("-")[0].partition(".")[0] for p in tmp_path.iterdir()] == [name]
    assert results() == before


@needs_scripts
def test_a_run_with_arguments_is_not_the_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = BENCHMARKS / "weak_scaling.py"
    monkeypatch.setattr(sys, "argv", [str(path), "--name", "mine", "--out", str(tmp_path)])
    loaded(path, monkeypatch).main()
    assert "small run" not in capsys.readouterr().out
    assert (tmp_path / "weak_scaling-mine.json").is_file()


def results() -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (BENCHMARKS / "results").iterdir()}


# --- make bench -------------------------------------------------------------------------------------------------------


def make_bench(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`make bench` in an environment that needs no installing."""
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / ".dev-installed").touch()
    command = ["make", "--no-print-directory", "bench", f"VENV={folder}", *options]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"MAKEFLAGS": ""}, capture_output=True, text=True)


@needs_scripts
@needs_make
def test_make_bench_runs_the_scripts_and_nothing_else(tmp_path: Path) -> None:
    said = make_bench(tmp_path, "--dry-run").stdout
    assert re.findall(r"benchmarks/\S+?\.py", said) == [str(p.relative_to(ROOT)) for p in SCRIPTS]


@needs_scripts
@needs_make
def test_make_bench_goes_on_after_a_failure_and_fails_at_the_end(tmp_path: Path) -> None:
    bad, good = tmp_path / "bad.py", tmp_path / "good.py"
    bad.write_text("raise SystemExit(3)")
    good.write_text("print('made it')")
    done = make_bench(tmp_path, f"BENCHMARKS={bad} {good}")
    assert done.returncode != 0
    assert done.stdout.splitlines() == [f"== {bad}", f"== {good}", "made it", f"failed: {bad}"]
