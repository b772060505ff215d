"""Real architectures at small size, in float64: products and per-sample gradients against the dense Jacobian."""

import pytest
import torch
from torch import Tensor, nn

from cases import with_statistics
from dense import jacobian_by_backward as jacobian
from lqf.backbones import load_backbone
from lqf.linear.layers import Tape
from lqf.linear.linearize import Linearization

NAMES = [
    pytest.param("efficientnet_lite0", 32, id="efficientnet_lite0"),
    pytest.param("mobilenet_v2", 32, id="mobilenet_v2"),
    pytest.param("timm:resnet10t", 32, id="resnet", marks=pytest.mark.timm),
    pytest.param("timm:convnext_atto", 32, id="convnext", marks=pytest.mark.timm),
    pytest.param("timm:test_vit", 160, id="vit", marks=pytest.mark.timm),
    pytest.param("timm:tf_efficientnet_lite0", 32, id="same-padding", marks=pytest.mark.timm),
]


def small(name: str, size: int) -> tuple[Linearization, Tensor]:
    """The backbone with two fixed combinations of its features as outputs, and two images."""
    torch.manual_seed(0)
    backbone = load_backbone(name, weights="random")
    with_statistics(backbone.body, spread=0.1)
    combine = nn.Linear(backbone.features, 2, bias=False).requires_grad_(False)
    net = nn.Sequential(backbone.body, combine).double().eval()
    names = [n for n, _ in net.named_parameters() if n.startswith("0.")]
    return Linearization(net, names), torch.randn(2, 3, size, size, dtype=torch.float64)


@pytest.mark.parametrize(("name", "size"), NAMES)
def test_products_match_the_dense_jacobian(name: str, size: int) -> None:
    body, x = small(name, size)
    jac = jacobian(body, x)
    v = torch.randn(body.size, dtype=torch.float64) * 1e-2
    u = torch.randn(2, 2, dtype=torch.float64)
    expected = jac @ v
    scale = float(expected.abs().max())
    torch.testing.assert_close(body.jvp(x, v)[1], expected, rtol=1e-10, atol=1e-10 * scale)
    pulled = torch.einsum("bo,bod->d", u, jac)
    torch.testing.assert_close(
        body.value_and_vjp(x, lambda _: u)[1], pulled, rtol=1e-10, atol=1e-10 * float(pulled.abs().max())
    )
    dz, both = body.fused(x, v, lambda _, dz: dz)
    torch.testing.assert_close(dz, expected, rtol=1e-10, atol=1e-10 * scale)
    product = torch.einsum("bo,bod->d", expected, jac)
    torch.testing.assert_close(both, product, rtol=1e-10, atol=1e-10 * float(product.abs().max()))
    assert float((u * dz).sum()) == pytest.approx(float(pulled @ v), rel=1e-9)


@pytest.mark.parametrize(("name", "size"), NAMES)
def test_per_sample_gradients_match_the_dense_jacobian(name: str, size: int) -> None:
    body, x = small(name, size)
    tape, u = Tape(body, x), torch.randn(2, 2, dtype=torch.float64)
    z, records = tape.record(x)
    grads = dict(tape.others_per_sample(x, u))
    for record, g in zip(records, Tape.backward(z, records, u), strict=True):
        grads |= record.layer.per_sample(record.a, g)
    flat = torch.cat([grads[n] for n in body.layout.names], 1)
    expected = torch.einsum("bo,bod->bd", u, jacobian(body, x))
    torch.testing.assert_close(flat, expected, rtol=1e-9, atol=1e-10 * float(expected.abs().max()))


@pytest.mark.parametrize(("name", "size"), NAMES)
def test_most_weights_have_a_curvature_rule(name: str, size: int) -> None:
    body, x = small(name, size)
    sizes = dict(zip(body.layout.names, body.layout.sizes, strict=True))
    assert sum(sizes[n] for n in Tape(body, x).others) < 0.03 * body.size
