"""timm, torchvision and networks of the user's own."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from adjoint import assert_adjoint
from lqf.backbones import load_backbone
from lqf.errors import LQFError


class Net(nn.Module):
    """Linear layers in the order `first`, `last`; the forward decides which makes the output."""

    def __init__(self, after=lambda y: y):
        super().__init__()
        self.first, self.act, self.last = nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 3)
        self.after = after

    def forward(self, x):
        return self.after(self.last(self.act(self.first(x))))


def test_module_loses_its_last_linear_layer_on_a_copy():
    net = Net().double()
    b = load_backbone(net, leaky=False)
    x = torch.randn(4, 6, dtype=torch.float64)
    assert (b.features, b.head, b.stages) == (5, "last", ("first",))
    assert b.spec["source"] == "module"
    assert torch.allclose(b.classifier(b.body(x)), net.eval()(x))
    assert isinstance(net.last, nn.Linear)
    assert net.act.inplace
    assert next(net.parameters()).requires_grad
    assert not any(p.requires_grad for p in b.body.parameters())
    assert not b.body.act.inplace


def test_sequential_module_with_leaky():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    b = load_backbone(net)
    assert isinstance(b.body[1], nn.LeakyReLU)
    assert b.body(torch.randn(2, 3, 8, 8)).shape == (2, 4)
    assert (b.mean[0], b.size, b.interpolation) == (0.485, 224, "bilinear")


def test_one_linear_layer_is_a_network():
    b = load_backbone(nn.Linear(4, 2))
    x = torch.randn(3, 4)
    assert torch.equal(b.body(x), x)
    assert b.features == 4


def test_module_without_a_linear_layer():
    with pytest.raises(LQFError, match=r"Sequential has no nn.Linear to take off"):
        load_backbone(nn.Sequential(nn.Conv2d(3, 3, 1)))


def test_module_that_goes_on_after_its_last_linear_layer():
    with pytest.raises(LQFError, match=r"`last`, does not make its output"):
        load_backbone(Net(after=lambda y: y.softmax(1)))


class Untraceable(nn.Module):
    def __init__(self, scale: float, size: int = 8):
        super().__init__()
        self.body, self.head, self.scale = nn.Linear(3 * size * size, 4), nn.Linear(4, 2), scale
        self.size = size

    def forward(self, x):
        if x.sum() > 1e9:  # depends on the data
            return x
        y = self.head(self.body(x[..., : self.size, : self.size].flatten(1)))
        return y if self.scale == 1 else y * self.scale


def test_untraceable_module_is_checked_on_an_image():
    b = load_backbone(Untraceable(1.0))
    assert (b.features, b.stages) == (4, ())
    with pytest.raises(LQFError, match="does not make its output"):
        load_backbone(Untraceable(2.0))


def test_module_that_cannot_be_checked_says_so():
    with pytest.warns(UserWarning, match="could not check that `head` makes the output of Untraceable"):
        load_backbone(Untraceable(1.0, size=500))


def test_module_takes_a_file_but_no_random_weights(tmp_path):
    net, other = Net(), Net()
    save_file(other.state_dict(), tmp_path / "w.safetensors")
    b = load_backbone(net, weights=tmp_path / "w.safetensors")
    assert torch.equal(b.body.first.weight, other.first.weight)
    assert torch.equal(b.classifier.weight, other.last.weight)
    assert (b.spec["source"], b.features) == ("file", 5)
    save_file({k: t for k, t in other.state_dict().items() if "first" in k}, tmp_path / "headless.safetensors")
    headless = load_backbone(net, weights=tmp_path / "headless.safetensors")
    assert (headless.classifier, headless.features) == (None, 5)
    with pytest.raises(LQFError, match="brings its own weights"):
        load_backbone(net, weights="random")


SMALL = ["timm:test_resnet", "timm:convnext_atto", "timm:vit_tiny_patch16_224", "torchvision:resnet18"]


@pytest.mark.timm
@pytest.mark.parametrize("name", [*SMALL, "timm:tf_efficientnet_lite0", "torchvision:mobilenet_v3_small"])
def test_library_model_equals_the_librarys(name):
    import timm
    import torchvision

    family, _, model = name.partition(":")
    b = load_backbone(name, weights="random", leaky=False, seed=4)
    torch.manual_seed(4)
    whole = timm.create_model(model) if family == "timm" else torchvision.models.get_model(model, weights=None)
    x = torch.randn(2, 3, b.size, b.size)
    z = b.body(x)
    assert z.shape == (2, b.features)
    assert torch.allclose(b.classifier(z), whole.eval()(x), rtol=1e-4, atol=1e-5)
    assert not any(m.training or getattr(m, "inplace", False) for m in b.body.modules())
    assert len(b.stages) > 3


@pytest.mark.timm
@pytest.mark.parametrize("name", SMALL)
def test_library_model_has_derivatives_in_forward_mode(name):
    b = load_backbone(name, weights="random")
    net, x = b.body.double(), torch.randn(1, 3, b.size, b.size, dtype=torch.float64)
    assert_adjoint(net, x, rel=1e-8)


@pytest.mark.timm
@pytest.mark.parametrize("name", ["timm:test_resnet", "timm:test_efficientnet", "torchvision:mobilenet_v3_small"])
def test_library_model_takes_its_own_file(name, tmp_path):
    import timm
    import torchvision

    family, _, model = name.partition(":")
    whole = timm.create_model(model) if family == "timm" else torchvision.models.get_model(model, weights=None)
    save_file(whole.state_dict(), tmp_path / "w.safetensors")
    b = load_backbone(name, weights=tmp_path / "w.safetensors", leaky=False)
    x = torch.randn(2, 3, b.size, b.size)
    assert torch.allclose(b.classifier(b.body(x)), whole.eval()(x), rtol=1e-4, atol=1e-5)
    assert b.spec["file"] == "w.safetensors"


@pytest.mark.timm
def test_input_format_comes_from_the_library():
    tf = load_backbone("timm:tf_efficientnet_lite0", weights="random")
    assert (tf.mean, tf.std, tf.interpolation, tf.size) == ((0.5,) * 3, (0.5,) * 3, "bicubic", 224)
    vision = load_backbone("torchvision:mobilenet_v3_small", weights="random")
    assert (vision.mean, vision.interpolation, vision.size) == ((0.485, 0.456, 0.406), "bilinear", 224)


@pytest.mark.timm
@pytest.mark.parametrize(("name", "close"), [("timm:resnet81", "resnet"), ("torchvision:resnet81", "resnet18")])
def test_unknown_library_model_suggests_one(name, close):
    with pytest.raises(LQFError, match=f"has no image classifier `resnet81`; did you mean .*{close}"):
        load_backbone(name, weights="random")


@pytest.mark.timm
def test_torchvision_names_that_are_no_image_classifiers():
    with pytest.raises(LQFError, match="no image classifier"):
        load_backbone("torchvision:fasterrcnn_resnet50_fpn", weights="random")
    with pytest.raises(LQFError, match=r"no nn.Linear"):
        load_backbone("torchvision:squeezenet1_1", weights="random")


@pytest.mark.timm
def test_failed_download_is_a_sentence(monkeypatch):
    import timm

    def offline(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(
        LQFError, match=r"published weights of `timm:test_resnet` could not be loaded \(no route to host"
    ):
        load_backbone("timm:test_resnet")
    with pytest.raises(LQFError, match=r"`timm:test_resnet` could not be built"):
        load_backbone("timm:test_resnet", weights="random")


@pytest.mark.timm
def test_torchvision_vit_has_plain_attention_and_stages():
    import torchvision

    vit = torchvision.models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=3
    )
    torch.nn.init.normal_(vit.heads.head.weight)
    b = load_backbone(vit)
    x = torch.randn(2, 3, 32, 32)
    assert torch.allclose(b.classifier(b.body(x)), vit.eval()(x), atol=1e-5)
    assert "encoder.layers.encoder_layer_1" in b.stages
    weights = {n: p.detach() for n, p in b.body.named_parameters()}
    with torch.no_grad():
        jv = torch.func.jvp(lambda w: torch.func.functional_call(b.body, w, (x,)), (weights,), (weights,))[1]
    assert jv.abs().max() > 0


def test_what_passes_the_output_on_is_no_further_layer():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2), nn.Identity())
    assert load_backbone(net).features == 4
    with pytest.raises(LQFError, match="does not make its output"):
        load_backbone(nn.Sequential(*net, nn.Softmax(1)))
