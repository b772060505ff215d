"""J·v, Jᵀ·u and the fused product against the dense Jacobian."""

import pytest
import torch
from torch import nn

from cases import every_network, images, network
from dense import jacobian, offsets
from lqf.errors import LQFError
from lqf.linear.linearize import Linearization, linearized_body


def vector(size: int) -> torch.Tensor:
    return torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


@every_network
def test_jvp_vjp_and_fused_match_the_dense_jacobian(name: str) -> None:
    body, x = Linearization(network(name)), images()
    jac = jacobian(body, x)
    v = vector(body.size)
    z, dz = body.jvp(x, v)
    u = torch.randn_like(z)
    torch.testing.assert_close(z, body.module(x), rtol=0, atol=0)
    torch.testing.assert_close(dz, jac @ v, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(
        body.value_and_vjp(x, lambda _: u)[1], torch.einsum("bo,bod->d", u, jac), rtol=1e-10, atol=1e-10
    )
    dz, pulled = body.fused(x, v, lambda z, dz: 2 * dz - z)
    torch.testing.assert_close(dz, jac @ v, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(pulled, torch.einsum("bo,bod->d", 2 * jac @ v - z, jac), rtol=1e-10, atol=1e-10)


@every_network
def test_adjoint_identity(name: str) -> None:
    body, x = Linearization(network(name)), images()
    v = vector(body.size)
    _, dz = body.jvp(x, v)
    u = torch.randn_like(dz)
    assert float((u * dz).sum()) == pytest.approx(float(body.value_and_vjp(x, lambda _: u)[1] @ v), rel=1e-11)


@every_network
def test_finite_differences(name: str) -> None:
    body, x = Linearization(network(name)), images()
    v, step = vector(body.size), 1e-6
    parts, weights = body.layout.views(v), body.weights()

    def at(t: float) -> torch.Tensor:
        return body.call({n: w + t * parts[n] for n, w in weights.items()}, x)

    numeric = (at(step) - at(-step)) / (2 * step)
    torch.testing.assert_close(body.jvp(x, v)[1], numeric, rtol=1e-6, atol=1e-6 * float(numeric.abs().max()))


def test_from_a_named_stage_on() -> None:
    net, x = network("convnet"), images()
    prefix, body = linearized_body(net, "3")
    whole = Linearization(net)
    assert body.layout.names[0].startswith("3.")
    activations = prefix(x)
    torch.testing.assert_close(jacobian(body, activations), jacobian(whole, x)[..., -body.size :])
    v = vector(body.size)
    torch.testing.assert_close(body.jvp(activations, v)[1], jacobian(body, activations) @ v, rtol=1e-10, atol=1e-10)


def test_one_primal_forward_in_the_fused_product() -> None:
    net, calls = network("mlp"), []
    handle = net[1].register_forward_hook(lambda *_: calls.append(1))
    body = Linearization(net)
    body.fused(images(), vector(body.size), lambda z, dz: dz)
    handle.remove()
    assert len(calls) == 1


def test_batch_norm_is_a_fixed_affine_map() -> None:
    body, x = Linearization(network("convnet")), images()
    v = vector(body.size)
    torch.testing.assert_close(body.jvp(x, v)[1][:3], body.jvp(x[:3], v)[1], rtol=1e-12, atol=1e-12)


def test_training_mode_and_unknown_names_are_refused() -> None:
    with pytest.raises(LQFError, match="eval mode"):
        Linearization(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    with pytest.raises(LQFError, match="nonsense"):
        Linearization(network("mlp"), ["nonsense"])
    with pytest.raises(LQFError, match="no stage `head`"):
        linearized_body(network("mlp"), "head")


def test_the_network_itself_is_never_changed() -> None:
    net, x = network("shared"), images()
    before, objects = net(x), [id(p) for p in net.parameters()]
    body = Linearization(net)
    body.call({n: w + 1 for n, w in body.weights().items()}, x)
    body.fused(x, vector(body.size), lambda z, dz: dz)
    assert torch.equal(net(x), before)
    assert [id(p) for p in net.parameters()] == objects


def test_layout_round_trip() -> None:
    body = Linearization(network("convnet"))
    v = vector(body.size)
    views = body.layout.views(v)
    assert torch.equal(body.layout.flatten(views.values()), v)
    for name, at in offsets(body.layout).items():
        weight = body.weights()[name]
        assert torch.equal(views[name], v[at : at + weight.numel()].view_as(weight))
    views[body.layout.names[0]].zero_()
    assert not v[: body.layout.sizes[0]].any()
    assert v[body.layout.sizes[0] :].all()
