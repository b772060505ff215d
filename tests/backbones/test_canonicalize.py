"""Foreign layers rewritten as plain ones: same weights, same result, derivatives in forward mode."""

import copy
from importlib import import_module

import pytest
import torch
from torch import nn

from adjoint import assert_adjoint
from cases import with_statistics
from lqf.backbones.canonicalize import Attention, canonicalize
from lqf.fast import FastLinearization
from lqf.linear.linearize import Linearization


class SelfAttention(nn.Module):
    def __init__(self, **kwargs):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, **kwargs)
        self.mask: torch.Tensor | None = None

    def forward(self, x):
        return self.attention(x, x, x, attn_mask=self.mask)[0]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_attention_equals_torchs(batch_first, bias):
    net, x = SelfAttention(batch_first=batch_first, bias=bias).double().eval(), torch.randn(3, 5, 8).double()
    expected = net(x)
    moved = canonicalize(net)
    assert isinstance(net.attention, Attention)
    assert moved["attention.in_proj_weight"] == "attention.in_proj.weight"
    assert torch.allclose(net(x), expected, rtol=0, atol=1e-12)
    assert_adjoint(net, x, rel=1e-9)


@pytest.mark.parametrize("shape", [(5, 5), (6, 5, 5)])
@pytest.mark.parametrize("kind", ["bool", "additive"])
def test_attention_masks(shape, kind):
    net, x = SelfAttention(batch_first=True).double().eval(), torch.randn(3, 5, 8).double()
    net.mask = torch.rand(shape) > 0.7 if kind == "bool" else torch.randn(shape).double()
    if kind == "bool":
        net.mask[..., 0] = False  # a row that sees nothing is NaN in both
    expected = net(x)
    canonicalize(net)
    assert torch.allclose(net(x), expected, rtol=0, atol=1e-12)


def test_attention_over_other_keys_with_padding_and_weights():
    old = nn.MultiheadAttention(8, 2, batch_first=True).double().eval()
    q, k, v = torch.randn(2, 3, 8).double(), torch.randn(2, 4, 8).double(), torch.randn(2, 4, 8).double()
    padding = torch.tensor([[False, False, True, True], [False] * 4])
    expected = old(q, k, v, key_padding_mask=padding)
    new = Attention(old)(q, k, v, key_padding_mask=padding)
    assert all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(new, expected, strict=True))


def test_attention_with_other_widths_stays():
    net = nn.Sequential(nn.MultiheadAttention(8, 2, kdim=4, vdim=4))
    assert canonicalize(net) == {}
    assert isinstance(net[0], nn.MultiheadAttention)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("batch_first", [True, False])
def test_transformer_encoder_takes_no_fused_path(batch_first):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first)
    net, x = nn.TransformerEncoder(layer, 2).double().eval(), torch.randn(3, 5, 8).double()
    expected = net(x)
    canonicalize(net)
    with torch.no_grad():
        assert torch.allclose(net(x), expected, rtol=0, atol=1e-12)
    assert_adjoint(net, x, rel=1e-9)


def test_rewriting_keeps_the_tensors_and_the_random_state():
    net = SelfAttention()
    before, state = {id(p) for p in net.parameters()}, torch.get_rng_state()
    canonicalize(net)
    assert {id(p) for p in net.parameters()} == before
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.timm
@pytest.mark.parametrize("name", ["test_resnet", "tf_efficientnet_lite0", "convnext_atto", "vit_tiny_patch16_224"])
def test_timm_models_keep_their_result(name):
    import timm

    torch.manual_seed(0)
    net = timm.create_model(name, num_classes=3).double().eval()
    size = 224 if name.startswith("vit") else 71
    x = torch.randn(1, 3, size, size, dtype=torch.float64)
    original, expected = copy.deepcopy(net), net(x)
    moved = canonicalize(net)
    assert torch.allclose(net(x), expected, rtol=1e-10, atol=1e-12)
    translated = {moved.get(k, k) for k in original.state_dict()}
    assert translated == set(net.state_dict())
    plain = (nn.Conv2d, nn.BatchNorm2d, nn.LayerNorm, nn.Linear)
    odd = {type(m).__name__ for m in net.modules() if isinstance(m, plain) and type(m) not in plain}
    assert odd - {"LayerNorm"} == set()  # timm's own LayerNorm differs by a switch only


@pytest.mark.timm
def test_cached_attention_biases_depend_on_their_weights():
    import timm

    net = timm.create_model("levit_128s", num_classes=0).eval()
    name = next(n for n, _ in net.named_parameters() if n.endswith("attention_biases"))
    x = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        net(x)
    canonicalize(net)
    tangent = {n: torch.ones_like(p) if n == name else torch.zeros_like(p) for n, p in net.named_parameters()}
    tangent[name][:, 0] = 2.0  # a constant would leave the softmax alone
    # scales that start at zero would hide everything before them
    weights = {n: p.detach() if p.any() else torch.full_like(p, 0.1) for n, p in net.named_parameters()}
    for _ in range(2):
        _, jv = torch.func.jvp(lambda w: torch.func.functional_call(net, w, (x,)), (weights,), (tangent,))
        assert jv.abs().max() > 0
    copy.deepcopy(net)


@pytest.mark.timm
@pytest.mark.parametrize(
    ("make", "merged"),
    [
        (lambda: import_module("torchvision.models").resnet18(num_classes=3), 17),
        (lambda: import_module("torchvision.models").resnext50_32x4d(num_classes=3), 49),
        (lambda: import_module("timm").create_model("resnet26d", num_classes=3), 27),
        (lambda: import_module("timm").create_model("seresnet50", num_classes=3), 33),
        (lambda: import_module("timm").create_model("resnetblur18", num_classes=3), 0),  # its blocks stay
    ],
)
def test_blocks_of_resnets_are_those_that_are_merged(make, merged):
    net, x = with_statistics(make().double().eval()), torch.randn(2, 3, 64, 64).double()
    expected, before = net(x), {n: p.clone() for n, p in net.named_parameters()}
    moved = canonicalize(net)
    torch.testing.assert_close(net(x), expected, rtol=1e-10, atol=1e-10)
    after = dict(net.named_parameters())
    assert all(torch.equal(after[moved.get(n, n)], p) for n, p in before.items())
    body = FastLinearization(Linearization(net), torch.float64, x, merges=True)
    assert body.merged >= merged
    torch.testing.assert_close(body.value(x), expected, rtol=1e-9, atol=1e-9)
