"""The documentation builds without a warning, its links lead somewhere, and the notebook runs from top to bottom."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from fits import photos
from lqf.cli.app import COMMANDS, installed_commands, make_parser
from processes import python

ROOT = Path(__file__).parents[2]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(package)
    done = python(
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-d",
        str(tmp_path / "trees"),
        str(ROOT / "docs"),
        str(tmp_path / "site"),
    )
    assert done.returncode == 0, done.stderr
    api = (tmp_path / "site" / "api.html").read_text(encoding="utf-8")
    for name in ("predict_proba", "leave_one_out", "explain", "as_module"):
        assert f'id="lqf.LQFClassifier.{name}"' in api


def test_links_of_the_readme_lead_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (ROOT / target).exists(), f"{page.name}: {target}"


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    photos(tmp_path / "train", 5)
    photos(tmp_path / "test", 2, seed=1)
    settings = ["backbone=mobilenet_v2", "weights=random", "size=32", "solver=head", "device=cpu", "verbose=0"]
    monkeypatch.setattr(sys, "argv", ["first_steps.py", str(tmp_path), *settings])
    names = runpy.run_path(str(ROOT / "docs" / "first_steps.py"))
    assert len(names["images"]) == 3
    assert names["why"].to_frame().shape[0] > 0


def test_in_a_notebook_the_words_of_its_kernel_are_not_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = (ROOT / "docs" / "first_steps.py").read_text(encoding="utf-8").split("# %%\n")
    launcher = tmp_path / "ipykernel_launcher.py"
    launcher.write_text(cells[1].split("# %%")[0], encoding="utf-8")
    monkeypatch.setattr(sys, "argv", [str(launcher), "-f", "kernel.json"])
    names = runpy.run_path(str(launcher))
    assert (names["photos"], names["settings"]) == (Path("photos"), {})


def commands(page: Path) -> list[str]:
    """What is typed on a page: lines of code blocks that begin with `lqf`, without what is said about them."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("lqf ") and "…" not in line]


PAGES = ["README.md", "docs/commands.md", "docs/how-to.md", "docs/tutorial.md", "docs/exporting.md", "docs/tuning.md"]
PAGES += ["docs/changing.md", "docs/constraints.md", "docs/privacy.md", "docs/uncertainty.md"]


@pytest.mark.parametrize("page", PAGES)
def test_what_is_typed_can_be_typed(page: str) -> None:
    parser, typed = make_parser({**COMMANDS, **installed_commands()}), commands(ROOT / page)
    for line in typed:
        parser.parse_args(shlex.split(line, comments=True)[1:])
    assert typed or page == "README.md"
