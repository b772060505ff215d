"""Cutting a network: both parts together give the whole, the suffix has exactly the weights from the stage on."""

import pytest
import torch
from torch import nn

from lqf.backbones import load_backbone
from lqf.backbones.builtin import BUILTIN
from lqf.backbones.prefix import split_at, stages
from lqf.errors import LQFError


def check_cut(body: nn.Module, stage: str, x: torch.Tensor) -> int:
    """Assert what a cut promises; return the number of weights before it."""
    prefix, suffix = split_at(body, stage)
    assert torch.equal(suffix(prefix(x)), body(x)), stage
    assert not any(m.training for part in (prefix, suffix) for m in part.modules())
    own = {n: id(p) for n, p in body.named_parameters()}
    before, after = ({n: id(p) for n, p in part.named_parameters()} for part in (prefix, suffix))
    assert before | after == own  # the same tensors under the same names, each on one side
    assert not before.keys() & after.keys()
    assert {n for n in own if n.startswith(f"{stage}.")} <= after.keys()
    return len(before)


@pytest.mark.parametrize("name", BUILTIN)
def test_cuts_of_built_in_networks(name):
    b = load_backbone(name, weights="random")
    x = torch.randn(2, 3, 40, 40)
    for stage in b.stages:
        check_cut(b.body, stage, x)
    assert not list(split_at(b.body, b.stages[0])[0].parameters())
    order = [n for n, _ in b.body.named_parameters()]
    suffix = [n for n, _ in split_at(b.body, b.stages[3])[1].named_parameters()]
    assert suffix == order[len(order) - len(suffix) :]


def test_cuts_inside_and_after_the_stages():
    b = load_backbone("mobilenet_v2", weights="random")
    x = torch.randn(2, 3, 40, 40)
    for stage in ("stage3.1", "final.bn", "pool"):
        check_cut(b.body, stage, x)
    feature_map = split_at(b.body, "pool")[0](x)
    assert feature_map.shape == (2, 1280, 2, 2)


def test_inside_a_residual_block_two_values_cross():
    b = load_backbone("mobilenet_v2", weights="random")
    with pytest.raises(LQFError, match=r"cannot be cut at `stage2.1.branch.project`: 2 values cross .*stem, stage1"):
        split_at(b.body, "stage2.1.branch.project")
    check_cut(b.body, "stage2.0.branch.project", torch.randn(1, 3, 40, 40))  # this block has no shortcut


@pytest.mark.parametrize("stage", ["stage9", "", "stem.nothing"])
def test_unknown_stage_lists_the_stages(stage):
    with pytest.raises(LQFError, match=f"no stage `{stage}`; choose one of stem, stage1, stage2"):
        split_at(load_backbone("mobilenet_v2", weights="random").body, stage)


def test_suffix_is_differentiable_like_the_whole():
    b = load_backbone("efficientnet_lite0", weights="random")
    body, x = b.body.double(), torch.randn(2, 3, 40, 40, dtype=torch.float64)
    prefix, suffix = split_at(body, "stage6")
    chosen = {n: p.detach() for n, p in suffix.named_parameters()}
    v = {n: torch.randn_like(p) for n, p in chosen.items()}
    whole = torch.func.jvp(lambda w: torch.func.functional_call(body, w, (x,)), (chosen,), (v,))[1]
    h = prefix(x)
    part = torch.func.jvp(lambda w: torch.func.functional_call(suffix, w, (h,)), (chosen,), (v,))[1]
    assert torch.allclose(part, whole, rtol=1e-10)


class Skips(nn.Module):
    """b reads what a made and what came in."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)
        self.unused = nn.Linear(3, 3)

    def forward(self, x, mask=None):
        h = self.a(x)
        h = h if mask is None else h * mask
        return self.c(self.b(h) + x)


def test_graph_cut_with_a_skip_connection_and_an_optional_argument():
    net, x = Skips().eval(), torch.randn(4, 3)
    assert stages(net) == ("a", "c")
    del net.unused
    for stage in stages(net):
        check_cut(net, stage, x)
    with pytest.raises(LQFError, match=r"cannot be cut at `b`: 2 values cross there \(x, a\).*choose one of a, c"):
        split_at(net, "b")


def test_module_that_is_never_called():
    with pytest.raises(LQFError, match="`unused` is never called as a whole; choose one of a, c"):
        split_at(Skips().eval(), "unused")


def test_weights_on_both_sides_are_refused():
    shared = nn.Linear(3, 3)
    with pytest.raises(LQFError, match="acts on both sides of the cut"):
        split_at(nn.Sequential(shared, nn.Linear(3, 3), shared), "1")


def test_untraceable_network_has_no_stages():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 2)

        def forward(self, x):
            return self.a(x) if x.sum() > 0 else x

    assert stages(Branches()) == ()
    with pytest.raises(LQFError, match=r"Branches cannot be cut: torch.fx cannot trace its forward"):
        split_at(Branches(), "a")


LIBRARY = ("timm:resnet18", "timm:convnext_atto", "timm:vit_tiny_patch16_224", "timm:tf_efficientnet_lite0")


@pytest.mark.timm
@pytest.mark.parametrize("name", [*LIBRARY, "torchvision:resnet18", "torchvision:mobilenet_v3_small"])
def test_cuts_of_library_networks(name):
    b = load_backbone(name, weights="random")
    size = b.size if "vit" in name else 64
    x = torch.randn(2, 3, size, size)
    before = [check_cut(b.body, stage, x) for stage in b.stages[::2]]
    assert before == sorted(before)
