"""The built-in networks: same results as their references, and derivatives through all of them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from adjoint import assert_adjoint
from lqf.backbones import load_backbone
from lqf.backbones.builtin import BUILTIN

NAMES = tuple(BUILTIN)
KINDS = ("efficientnet_lite0", "mobilenet_v2", "resnet50")  # the larger Lites are made of the same layers

# logits 0, 100, 500, 999 of the networks the weights were published with (efficientnet-lite-pytorch 0.1.0 with padding
# computed from the input; torchvision 0.28), float64, for `wave(size)`
PUBLISHED = {
    ("efficientnet_lite0", 224): (1.369349994, -3.073344756, -0.658779142, -0.816777406),
    ("efficientnet_lite0", 150): (1.699849894, -1.763751465, -2.594984255, -1.78165928),
    ("efficientnet_lite0", 97): (0.545668816, -0.191698058, -0.497425178, -2.289572805),
    ("efficientnet_lite1", 240): (-0.518031972, 0.078491895, -0.655643582, 0.257576366),
    ("efficientnet_lite1", 97): (-0.987294827, -2.481717482, 0.458999108, -1.005535327),
    ("efficientnet_lite2", 260): (-0.950983841, -1.562409134, -2.585509952, -1.402946093),
    ("efficientnet_lite2", 97): (1.069163507, -3.81105891, -3.800610635, -3.939337182),
    ("mobilenet_v2", 224): (-2.482521143, -1.966863558, -4.554690254, -1.923228788),
    ("mobilenet_v2", 150): (-2.617530886, -1.93066268, -4.265346414, -0.672210884),
    ("mobilenet_v2", 97): (-2.978219668, -0.342537013, -4.901662256, -0.608159526),
}


def wave(size: int) -> Tensor:
    i = torch.arange(size, dtype=torch.float64)
    return torch.stack([torch.sin(i[:, None] / (5 + c) + i / (9 - c)) for c in range(3)])[None]


def packaged(name: str):
    package = BUILTIN[name].package
    if package is None or package.find() is None:
        pytest.skip(f"the weights of {name} are not installed")
    return load_backbone(name, leaky=False)


@pytest.mark.parametrize(("name", "size"), PUBLISHED)
def test_published_weights_give_the_published_logits(name, size):
    b = packaged(name)
    logits = b.classifier(b.body(wave(size).float()))[0]
    assert logits[[0, 100, 500, 999]].tolist() == pytest.approx(PUBLISHED[name, size], abs=5e-5)


def test_published_sizes():
    sizes = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260, "mobilenet_v2": 224}
    assert {name: BUILTIN[name].fed.size for name in sizes} == sizes


def test_default_input_format():
    b = packaged("efficientnet_lite0")
    assert (b.mean[0] * 255, b.std[2] * 255, b.interpolation, b.size) == (127, 128, "bicubic", 224)
    assert b.spec["sha256"] == BUILTIN["efficientnet_lite0"].package.sha256
    assert b.spec["source"] == "package"
    assert Path(b.spec["path"]).name == b.spec["file"]


@pytest.mark.parametrize("name", NAMES)
def test_a_built_in_network_is_frozen_sequential_and_plain(name):
    b = load_backbone(name, weights="random")
    z = b.body(torch.randn(2, 3, 64, 64))
    assert z.shape == (2, b.features)
    assert z.isfinite().all()
    assert isinstance(b.body, nn.Sequential)
    assert [n for n, _ in b.body.named_children()] == [*b.stages, "pool", "flatten"]
    assert not any(p.requires_grad for p in b.body.parameters())
    assert not any(m.training or getattr(m, "inplace", False) for m in b.body.modules())
    assert all(type(m) is nn.Conv2d for m in b.body.modules() if isinstance(m, nn.Conv2d))


@pytest.mark.parametrize("name", NAMES)
def test_random_weights_follow_the_seed_and_leave_the_global_state_alone(name):
    state = torch.get_rng_state()
    a, b, c = (load_backbone(name, weights="random", seed=s).spec["state_sha256"] for s in (1, 1, 2))
    assert a == b != c
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("leaky", [True, False])
def test_leaky_on_and_off(name, leaky):
    body = load_backbone(name, weights="random", leaky=leaky).body
    kinds = {type(m).__name__ for m in body.modules()}
    assert bool(kinds & {"ReLU", "ReLU6"}) is not leaky
    assert bool(kinds & {"LeakyReLU", "LeakyReLU6"}) is leaky


@pytest.mark.parametrize("name", KINDS)
def test_forward_and_reverse_mode_are_adjoint_and_samples_independent(name):
    net, x = load_backbone(name, weights="random").body.double(), torch.randn(2, 3, 33, 33, dtype=torch.float64)
    z = assert_adjoint(net, x, rel=1e-10)
    assert torch.allclose(torch.func.vmap(lambda xi: net(xi[None])[0])(x), z, rtol=1e-10)


@pytest.mark.timm
def test_architectures_equal_the_libraries():
    import timm
    import torchvision

    v15 = torchvision.models.resnet50()
    for layer in (v15.layer2, v15.layer3, v15.layer4):  # back to the original place of the stride
        layer[0].conv1.stride, layer[0].conv2.stride = (2, 2), (1, 1)
    theirs = {
        **{name: timm.create_model(f"tf_{name}") for name in NAMES if name.startswith("efficientnet_lite")},
        "mobilenet_v2": torchvision.models.mobilenet_v2(),
        "resnet50": v15,
    }
    for name, model in theirs.items():
        body = load_backbone(name, weights="random", leaky=False).body
        _copy_by_order(body, model) if "lite" in name else _copy_by_name(body, model, name)
        model.eval()
        model.get_submodule("fc" if name == "resnet50" else "classifier").forward = lambda x: x
        for size in (64, 75):
            x = torch.randn(1, 3, size, size)
            z = model(x).detach()
            assert torch.allclose(z, body(x), rtol=0, atol=1e-5 * float(z.abs().max())), (name, size)


def _copy_by_name(body: nn.Module, model: nn.Module, name: str) -> None:
    names, own = BUILTIN[name].names(), body.state_dict()
    for key, tensor in model.state_dict().items():
        module, _, leaf = key.rpartition(".")
        if names[module] != "classifier":
            tensor.copy_(own[f"{names[module]}.{leaf}"])


def _copy_by_order(body: nn.Module, model: nn.Module) -> None:
    for tensor, own in zip(model.state_dict().values(), body.state_dict().values(), strict=False):
        tensor.copy_(own)


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "leaky"),
    [
        *((name, leaky) for name in ("efficientnet_lite0", "mobilenet_v2") for leaky in (True, False)),
        ("efficientnet_lite1", True),
        ("efficientnet_lite2", True),
    ],
)
def test_birds_are_called_birds(name, leaky, shared_datasets):
    """Without ImageNet at hand: photos of birds must fall into ImageNet's bird classes, also after the leaky swap."""
    packaged(name)
    b = load_backbone(name, leaky=leaky)
    birds = torch.tensor([*range(7, 25), *range(80, 101), *range(127, 147)])
    files = sorted((shared_datasets / "cub200_40cls" / "test").glob("*/*.jpg"))[::20]
    x = torch.stack([_image(f, b.interpolation) for f in files])
    x = (x - torch.tensor(b.mean)[:, None, None]) / torch.tensor(b.std)[:, None, None]
    share = torch.isin(b.classifier(b.body(x)).argmax(1), birds).float().mean()
    assert share > 0.85, share


def _image(path: Path, interpolation: str) -> Tensor:
    image = Image.open(path).convert("RGB").resize((256, 256), getattr(Image.Resampling, interpolation.upper()))
    return torch.from_numpy(np.array(image.crop((16, 16, 240, 240)))).permute(2, 0, 1) / 255
