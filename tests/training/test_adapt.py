"""The extra epoch on source data: it learns, leaves the original alone, and its file is a backbone's weights."""

from typing import Any

import pytest
import torch
from torch import nn

from fits import opened, pictures
from lqf.backbones import load_backbone
from lqf.data import Preprocess
from lqf.errors import LQFError
from lqf.training.adapt import Adapted, adapt, save_adapted
from recorder import Recorder


def coloured(n: int = 32) -> Any:
    """Two classes of coloured noise."""
    return opened(*pictures(n, 2, side=36), Preprocess(size=32))


def small_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)
    )


def test_adapting_learns_and_leaves_the_backbone_alone():
    b, images = load_backbone(small_net()), coloured()
    before = {k: t.clone() for k, t in b.body.state_dict().items()}
    adapted = adapt(b, images, epochs=6, learning_rate=0.1, batch_size=8)
    assert adapted.losses[-1] < adapted.losses[0] / 2
    assert adapted.errors[-1] == 0
    assert all(torch.equal(t, before[k]) for k, t in b.body.state_dict().items())
    assert not b.body.training
    assert not torch.equal(adapted.state["1.running_mean"], before["1.running_mean"])  # statistics move, too
    assert not torch.equal(adapted.state["0.weight"], before["0.weight"])


def test_the_seed_decides_the_adapted_weights():
    b, images = load_backbone(small_net()), coloured()
    one, same, other = (adapt(b, images, batch_size=8, seed=s).state["0.weight"] for s in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_own_classifier_is_kept_where_it_fits_and_replaced_where_not():
    fits, other = load_backbone(small_net()), load_backbone(nn.Sequential(*small_net()[:-1], nn.Linear(8, 5)))
    images, still = coloured(), {"learning_rate": 1e-12, "weight_decay": 0.0, "batch_size": 8}
    assert torch.allclose(adapt(fits, images, **still).state["5.weight"], fits.classifier.weight, atol=1e-8)
    fresh = adapt(other, images, **still).state["5.weight"]
    assert fresh.shape == (2, 8)
    assert fresh.abs().max() < 1e-8


@pytest.mark.parametrize("name", ["mobilenet_v2", "efficientnet_lite0"])
def test_file_is_a_backbones_weights(name, tmp_path):
    b = load_backbone(name, weights="random")
    adapted = adapt(b, coloured(8), batch_size=4)
    save_adapted(adapted, tmp_path / "adapted.safetensors")
    again = load_backbone(name, weights=tmp_path / "adapted.safetensors")
    assert all(torch.equal(t, adapted.state[k]) for k, t in again.body.state_dict().items())
    assert again.classifier.out_features == 2
    assert again.spec["file"] == "adapted.safetensors"
    assert again.spec["state_sha256"] != b.spec["state_sha256"]
    with pytest.raises(LQFError, match="was adapted with leaky=True"):
        load_backbone(name, weights=tmp_path / "adapted.safetensors", leaky=False)


@pytest.mark.timm
def test_file_of_a_timm_model_with_rewritten_layers(tmp_path):
    b = load_backbone("timm:test_efficientnet", weights="random")
    adapted = adapt(b, coloured(8), batch_size=4, scheme="none")
    save_adapted(adapted, tmp_path / "adapted.safetensors")
    again = load_backbone("timm:test_efficientnet", weights=tmp_path / "adapted.safetensors")
    assert all(torch.equal(t, adapted.state[k]) for k, t in again.body.state_dict().items())


def test_every_batch_is_a_step_of_the_progress():
    recorder = Recorder()
    adapt(load_backbone(small_net()), coloured(20), epochs=2, batch_size=8, progress=recorder)
    assert [(total, done) for _, total, done in recorder.stages] == [(40, 40)]
    assert len(recorder.steps) == 40 / 8  # five whole batches in two epochs
    assert {"loss", "error"} <= recorder.steps[0].keys()


def test_divergence_is_a_sentence():
    with pytest.raises(LQFError, match="adapting diverged"):
        adapt(load_backbone(small_net()), coloured(), epochs=60, learning_rate=1e30, batch_size=8)


@pytest.mark.parametrize("bad", [{"epochs": 0}, {"batch_size": 1}, {"learning_rate": 0.0}])
def test_bad_settings(bad):
    with pytest.raises(LQFError, match="at least one epoch"):
        adapt(load_backbone(small_net()), coloured(), **bad)


def test_saving_refuses_to_overwrite_and_other_formats(tmp_path):
    adapted = Adapted({"a": torch.ones(1)}, (1.0,), (0.0,), "x", True)
    save_adapted(adapted, tmp_path / "a.safetensors")
    with pytest.raises(LQFError, match="exists already"):
        save_adapted(adapted, tmp_path / "a.safetensors")
    save_adapted(adapted, tmp_path / "a.safetensors", overwrite=True)
    with pytest.raises(LQFError, match=r"give `.*a.safetensors`"):
        save_adapted(adapted, tmp_path / "a.pth")
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]
