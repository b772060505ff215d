"""The tutorial's commands run one after another, on small pictures in the place of the solar cells."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from docs.test_pages import ROOT, commands
from fits import photos
from lqf.cli import main

FAST = ["--backbone", "mobilenet_v2", "--weights", "random", "--solver", "head", "--device", "cpu"]


def manifest(folder: Path, out: Path) -> None:
    """A list of the images of a folder of classes."""
    rows = [f"{p.resolve()},{p.parent.name}" for p in sorted(folder.glob("*/*.png"))]
    out.parent.mkdir(exist_ok=True)
    out.write_text("\n".join(["path,label", *rows]) + "\n")


def test_what_the_tutorial_types_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    monkeypatch.chdir(tmp_path)
    for part, seed in (("train", 0), ("test", 1)):
        manifest(photos(tmp_path / part, 6, seed=seed), Path("lqf-demo") / f"{part}.csv")
    shutil.copy(next(Path("test").glob("*/*.png")), "cell.png")
    typed = dict.fromkeys(c for c in commands(ROOT / "docs" / "tutorial.md") if c.split()[1] != "demo")
    done = []
    for line in typed:
        words = shlex.split(line, comments=True)[1:]
        if words[0] == "fit" and done:
            continue  # what `lqf fit` and `lqf audit` propose next
        if words[0] == "fit":
            words = [w.replace("128", "32") for w in words if w not in ("--effort", "quick")] + FAST
        assert main([*words, "-q"]) == 0, (line, capsys.readouterr().err)
        done.append(words[0])
    assert done == ["fit", "evaluate", "audit", "explain"]
    assert {"run", "found", "why.png"} <= {p.name for p in Path().iterdir()}
