"""Average pooling at the end of a network: found by what it does, replaced by bilinear pooling."""

import pytest
import torch
from torch import nn

from lqf.backbones import load_backbone
from lqf.backbones.average_pool import AveragePool, find_average_pool, with_bilinear_pool
from lqf.backbones.bilinear_pool import BilinearPool
from lqf.linear.linearize import linearized_body


def body(*after: nn.Module, before: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    first = nn.Sequential(nn.Conv2d(3, 6, 3), before or nn.Tanh())
    return nn.Sequential(first, *(after or (nn.AdaptiveAvgPool2d(1), nn.Flatten()))).eval()


X = torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(1))


def test_the_last_average_is_found() -> None:
    assert find_average_pool(body(), X) == AveragePool("1", 6, 49)
    assert find_average_pool(body(nn.AdaptiveAvgPool2d((1, 1)), nn.Dropout(), nn.Flatten()), X).name == "1"


class SqueezeExcite(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.fc(self.pool(x)).sigmoid()


def test_an_average_inside_the_network_is_not_the_last_one() -> None:
    assert find_average_pool(body(before=SqueezeExcite()), X).name == "1"


@pytest.mark.parametrize(
    "end",
    [
        (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(6)),
        (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 6)),
        (nn.AdaptiveAvgPool2d(2), nn.Flatten()),
        (nn.AdaptiveMaxPool2d(1), nn.Flatten()),
        (nn.Flatten(),),
    ],
    ids=["norm", "linear", "2x2", "max", "none"],
)
def test_networks_with_another_end_have_no_last_average(end: tuple[nn.Module, ...]) -> None:
    assert find_average_pool(body(*end), X) is None


def test_vectors_have_no_map() -> None:
    assert find_average_pool(nn.Sequential(nn.Linear(4, 3)).eval(), torch.randn(2, 4)) is None


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet50"])
def test_the_average_of_built_in_networks_is_found_and_replaced(name: str) -> None:
    backbone = load_backbone(name, weights="random")
    x = torch.randn(1, 3, 64, 64)
    found = find_average_pool(backbone.body, x)
    assert found == AveragePool("pool", backbone.features, 4)
    check_replaced(backbone, found, x)


@pytest.mark.timm
@pytest.mark.parametrize("name", ["timm:resnet18", "timm:test_efficientnet", "torchvision:resnet18"])
def test_the_average_of_library_networks_is_found_and_replaced(name: str) -> None:
    backbone = load_backbone(name, weights="random")
    x = torch.randn(1, 3, 64, 64)
    found = find_average_pool(backbone.body, x)
    assert found.channels == backbone.features
    check_replaced(backbone, found, x)


@pytest.mark.timm
@pytest.mark.parametrize(("name", "size"), [("timm:convnext_atto", 64), ("timm:vit_tiny_patch16_224", 224)])
def test_library_networks_with_another_end_have_no_last_average(name: str, size: int) -> None:
    backbone = load_backbone(name, weights="random")
    assert find_average_pool(backbone.body, torch.randn(1, 3, size, size)) is None


def check_replaced(backbone, found: AveragePool, x: torch.Tensor) -> None:
    """A copy pools otherwise, can be cut where the original can; the pool is found in what is linearised, too."""
    reduction = torch.randn(5, found.channels)
    other = with_bilinear_pool(backbone, found.name, reduction, 5)
    assert other.features == 15
    assert other.spec["state_sha256"] == backbone.spec["state_sha256"]
    assert not isinstance(backbone.body.get_submodule(found.name), BilinearPool)
    z = other.body(x)
    assert z.shape == (1, 15)
    stage = backbone.stages[-1]
    prefix, rest = linearized_body(other.body, stage)
    torch.testing.assert_close(rest.value(prefix(x)), z, rtol=1e-3, atol=1e-5)
    prefix, rest = linearized_body(backbone.body, stage)
    assert find_average_pool(rest.module, prefix(x)) == found
