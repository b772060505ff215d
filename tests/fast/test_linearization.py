"""The fast expansion equals the exact one up to the rounding of its type, however it is run."""

import pytest
import torch
from torch import nn

from cases import built_in, every_network, images, network
from closeness import ROUNDING, assert_same_products, relative
from lqf.fast import FastLinearization
from lqf.fast.capture import Captured, merge_equal
from lqf.fast.ops.pointwise import as_products
from lqf.fast.tangents import Tangents
from lqf.linear.linearize import Linearization


def pair(name: str, dtype: torch.dtype, **kwargs: object) -> tuple[Linearization, FastLinearization]:
    exact = Linearization(network(name))
    return exact, FastLinearization(exact, dtype, images(2), **kwargs)


@every_network
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_products_agree(name: str, dtype: torch.dtype) -> None:
    exact, fast = pair(name, dtype)
    x, v = images(6), torch.randn(exact.size, dtype=torch.float64)
    z, dz = exact.jvp(x, v)
    u = torch.randn_like(dz)
    assert relative(fast.value(x), z) < ROUNDING[dtype]
    assert relative(fast.jvp(x, v)[1], dz) < ROUNDING[dtype]
    assert relative(fast.vjp(x, u), exact.vjp(x, u)) < ROUNDING[dtype]
    assert relative(fast.value_and_vjp(x, lambda z: z)[1], exact.value_and_vjp(x, lambda z: z)[1]) < ROUNDING[dtype]
    both = fast.fused(x, v, lambda _, dz: dz), exact.fused(x, v, lambda _, dz: dz)
    assert relative(both[0][1], both[1][1]) < ROUNDING[dtype]
    assert fast.jvp(x, v)[1].dtype == fast.vjp(x, u).dtype == torch.float64


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_float16_is_as_good_at_every_scale(scale: float) -> None:
    exact, fast = pair("convnet", torch.float16)
    x, v = images(6), torch.randn(exact.size, dtype=torch.float64)
    dz = exact.jvp(x, v)[1]
    u = torch.randn_like(dz)
    assert relative(fast.jvp(x, scale * v)[1], scale * dz) < ROUNDING[torch.float16]
    assert relative(fast.vjp(x, scale * u), scale * exact.vjp(x, u)) < ROUNDING[torch.float16]
    assert float(fast.jvp(x, 0 * v)[1].abs().max()) == 0
    assert float(fast.vjp(x, 0 * u).abs().max()) == 0


def test_smaller_batches_are_padded_and_the_exact_module_stays_as_it_was() -> None:
    exact, fast = pair("convnet", torch.float64)
    fast._fixed_size = True  # as when it is compiled
    before = {n: w.clone() for n, w in exact.module.state_dict().items()}
    x, v = images(6), torch.randn(exact.size, dtype=torch.float64)
    u = torch.randn_like(exact.value(x))
    for n in (6, 4, 1):
        torch.testing.assert_close(fast.jvp(x[:n], v)[1], exact.jvp(x[:n], v)[1], rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(fast.vjp(x[:n], u[:n]), exact.vjp(x[:n], u[:n]), rtol=1e-9, atol=1e-10)
    assert all(torch.equal(w, before[n]) for n, w in exact.module.state_dict().items())


def test_tied_weights_stay_tied() -> None:
    layer = torch.nn.Linear(4, 4).double()
    exact = Linearization(torch.nn.Sequential(layer, torch.nn.Tanh(), layer).eval())
    fast = FastLinearization(exact, torch.float64, torch.randn(2, 4, dtype=torch.float64))
    x, v = torch.randn(3, 4, dtype=torch.float64), torch.randn(exact.size, dtype=torch.float64)
    torch.testing.assert_close(fast.jvp(x, v)[1], exact.jvp(x, v)[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["convnet", "attention"])
def test_captured_graphs_agree_and_merge_what_is_equal(name: str) -> None:
    exact, fast = pair(name, torch.float64)
    x, v = images(4), torch.randn(exact.size, dtype=torch.float64)
    dz = exact.jvp(x, v)[1]
    u = torch.randn_like(dz)
    forward = Captured(fast._compilable_jvp, pytest.fail, backend="eager")
    backward = Captured(fast._compilable_vjp, pytest.fail, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(forward(x, v)[1], dz, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(backward(x, u)[0], exact.vjp(x, u), rtol=1e-10, atol=1e-10)
    twice = torch.fx.experimental.proxy_tensor.make_fx(lambda a: (a * 2).sin() + (a * 2).sin() + (a * 2.0).cos())(x)
    before = len(twice.graph.nodes)
    merged = merge_equal(twice)
    assert len(merged.graph.nodes) == before - 2  # 2 and 2.0 are not the same operand
    torch.testing.assert_close(merged(x), 2 * (2 * x).sin() + (2 * x).cos())


def test_what_cannot_be_compiled_runs_without_it_and_says_so() -> None:
    said: list[str] = []
    branches = Captured(lambda x: x if float(x.sum()) > 0 else -x, said.append)
    x = -torch.ones(3)
    assert branches(x).tolist() == [1, 1, 1]
    assert branches(x).tolist() == [1, 1, 1]
    assert len(said) == 1
    assert said[0].startswith("compilation failed (")
    assert said[0].endswith("; continuing without it")


@pytest.mark.parametrize("name", ["resnet50", "efficientnet_lite0"])
def test_merged_passes_of_the_built_in_networks_are_exact(name: str) -> None:
    exact, x, v = built_in(name)
    fast = FastLinearization(exact, torch.float64, x, merges=True)
    assert fast.format == torch.channels_last
    assert_same_products(fast, exact, x, v, 1e-9)


@pytest.mark.parametrize(("stride", "only_tangent_of"), [(1, "both"), (2, "both"), (1, "weight"), (1, "input")])
def test_pointwise_convolutions_are_products(stride: int, only_tangent_of: str) -> None:
    first, second = nn.Conv2d(3, 4, 3, bias=False), nn.Conv2d(4, 6, 1, stride, bias=False)
    net = nn.Sequential(first, second, nn.Flatten()).double().eval()
    names = {"both": None, "weight": ["1.weight"], "input": ["0.weight"]}[only_tangent_of]
    exact = Linearization(net, names)
    x, v = torch.randn(2, 3, 9, 9).double(), torch.randn(exact.size).double()
    fast = FastLinearization(exact, torch.float64, x, merges=True)
    assert as_products(fast.module) == (1 if stride == 1 else 0)
    assert_same_products(fast, exact, x, v)


def test_where_compilation_fails_the_products_are_still_right(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", fails)
    said: list[str] = []
    exact, fast = pair("convnet", torch.float64, compiled=True, say=said.append)
    x, v = images(6), torch.randn(exact.size, dtype=torch.float64)
    for _ in range(2):
        assert_same_products(fast, exact, x, v)
    assert said == ["compilation failed (no compiler); continuing without it"] * 2


def test_a_vector_that_was_changed_in_place_is_another_one() -> None:
    exact, fast = pair("convnet", torch.float64)
    x, v = images(6), torch.randn(exact.size, dtype=torch.float64)
    first = fast.jvp(x, v)[1]
    v.mul_(2)
    torch.testing.assert_close(fast.jvp(x, v)[1], 2 * first)


def test_a_vector_is_loaded_again_when_it_has_changed_and_not_before() -> None:
    net = network("mlp")
    body = Linearization(net)
    tangents, asked = Tangents(body.layout, body.weights()), []

    def scale() -> float:
        asked.append(1)
        return 2.0

    whole = torch.randn(body.size + 3, dtype=torch.float64)
    for _ in range(2):
        tangents.load(whole[3:], 1.0, scale)  # another view each time
    assert len(asked) == 1
    whole[5] += 1.0
    tangents.load(whole[3:], 1.0, scale)
    assert len(asked) == 2
    flat = body.layout.flatten(tangents.parts[n] for n in body.layout.names)
    assert torch.equal(flat, 2 * whole[3:])
    tangents.load(whole[: body.size], 1.0, scale)
    assert len(asked) == 3
