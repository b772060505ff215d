"""timm and torchvision as they are installed, in fresh processes that nothing has prepared for them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fits import photos
from lqf.backbones import available, imports, load_backbone
from lqf.errors import LQFError
from processes import ENVIRONMENT, python

FAMILIES = {"timm": "timm:test_resnet", "torchvision": "torchvision:resnet18"}
BROKEN = 'raise RuntimeError("operator torchvision::deform does not exist")\n'


def lqf(*words: str, first: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which finds packages in ``first`` before those that are installed."""
    environment = {**os.environ, **ENVIRONMENT}
    if first is not None:
        environment["PYTHONPATH"] = os.pathsep.join([str(first), environment["PYTHONPATH"]])
    command = [sys.executable, "-m", "lqf", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)


def test_the_list_says_what_loading_in_a_fresh_process_does():
    listed = lqf("backbones", "--json")
    assert listed.returncode == 0, listed.stderr
    assert listed.stderr == ""
    entries = {b["name"]: b for b in json.loads(listed.stdout)["backbones"]}
    for family, name in FAMILIES.items():
        loaded = python("-c", f"from lqf.backbones import load_backbone as load; load({name!r}, weights='random')")
        entry = entries[f"{family}:NAME"]
        assert entry["available"] == (loaded.returncode == 0), loaded.stderr
        if not entry["available"]:
            assert entry["install"] in loaded.stderr


@pytest.mark.timm
def test_an_import_that_failed_before_is_made_good():
    code = "try:\n import timm\nexcept Exception: pass\nfrom lqf.backbones import load_backbone as load\n"
    done = python("-c", code + f"print(load({FAMILIES['timm']!r}, weights='random').features)")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1


@pytest.mark.timm
def test_where_the_extension_is_missing_what_needs_it_still_refuses():
    vision = imports.import_library("torchvision")
    boxes, scores = torch.tensor([[0.0, 0, 1, 1], [0, 0, 1, 0.9]]), torch.tensor([0.9, 0.8])
    if vision.extension._has_ops():
        assert not imports._LIBRARIES
        assert vision.ops.nms(boxes, scores, 0.5).tolist() == [0]
    else:
        with pytest.raises(RuntimeError, match="Couldn't load custom C"):
            vision.ops.nms(boxes, scores, 0.5)


@pytest.fixture
def broken(tmp_path):
    """A torchvision that cannot be imported, whatever is declared, and says so on the way."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("print('a banner')\n" + BROKEN)
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm" / "__init__.py").write_text("import torchvision\n")
    return tmp_path


def test_what_cannot_be_imported_has_no_tick_and_the_command_that_repairs_it(broken):
    called = lqf("backbones", first=broken)
    assert called.returncode == 0
    assert called.stderr == ""
    assert "banner" not in called.stdout
    assert max(map(len, called.stdout.splitlines())) <= 80
    for family in FAMILIES:
        assert [line[1] for line in called.stdout.splitlines() if f" {family}:NAME" in line] == ["·"]
    said = " ".join(called.stdout.split())
    assert said.count("cannot be imported (operator torchvision::deform does not exist)") == 2
    assert said.count(f"run `{imports.repair()}`") == 2
    fit = lqf("fit", str(photos(broken / "train", 2)), "-o", str(broken / "run"), "--backbone", "timm:x", first=broken)
    assert fit.returncode == 2
    sentence = fit.stderr.splitlines()[-1].removeprefix("lqf: ")
    assert sentence.startswith("timm is installed but cannot be imported")
    assert sentence in said


@pytest.mark.parametrize(
    ("version", "command"),
    [
        ("2.13.0+cpu", "torch==2.13.0 torchvision --index-url https://download.pytorch.org/whl/cpu"),
        ("2.13.0+cu130", "torch==2.13.0 torchvision --index-url https://download.pytorch.org/whl/cu130"),
        ("2.13.0", "torch==2.13.0 torchvision"),
        ("2.14.0+gitabc123", "torch==2.14.0 torchvision"),
    ],
)
def test_the_repair_names_the_torch_there_is(version, command, monkeypatch):
    monkeypatch.setattr(torch, "__version__", version)
    assert imports.repair() == f"pip install --force-reinstall {command}"


def test_any_failure_of_an_import_is_a_sentence(monkeypatch):
    def fails(name):
        raise OSError("libc10.so: undefined symbol")

    monkeypatch.setattr(imports, "import_module", fails)
    with pytest.raises(LQFError, match=r"timm is installed but cannot be imported \(libc10.so: undefined symbol\)"):
        load_backbone("timm:resnet18")
    assert not any(i.available for i in available() if i.name in ("timm:NAME", "torchvision:NAME"))
