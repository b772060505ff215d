"""What is published: the wheel holds everything that runs, the sdist what the project is built from."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FIT = """
import sys
import numpy as np
import lqf
assert lqf.__file__.startswith(sys.argv[1]), lqf.__file__
x = np.random.default_rng(0).integers(0, 256, (10, 40, 40, 3), dtype=np.uint8)
x[::2, :, :, 0] //= 4
model = lqf.LQFClassifier(solver="head", size=32, device="cpu", verbose=0).fit(x, np.arange(10) % 2)
model.save("run")
assert (lqf.load("run").predict(x) == model.predict(x)).all()
print("fitted")
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "hatchling", "build", "-d", str(out), "-t", "wheel", "-t", "sdist"]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True)
    return out


def test_the_wheel_fits_ten_images(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    wanted = {p.relative_to(ROOT / "src").as_posix() for p in (ROOT / "src").rglob("*") if p.is_file()}
    assert {n for n in wanted if "__pycache__" not in n} <= names
    assert any(n.endswith("entry_points.txt") for n in names)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-c", FIT, str(tmp_path / "site")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "fitted"


def test_the_sdist_has_what_the_project_needs(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "CITATION.cff", "docs/tutorial.md"} <= names
