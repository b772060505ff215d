"""Products of a batch whose activations are kept are those of any other batch, without the primal."""

import weakref

import pytest
import torch
from torch import Tensor, nn

from cases import every_network, images, network
from closeness import relative
from collector import no_collector
from lqf.backbones import load_backbone
from lqf.fast import FastLinearization
from lqf.fast.cache_budget import keep_activations, keep_within, release_activations, room_for
from lqf.fast.primal_cache import CannotCache, PrimalCache
from lqf.linear.batch import COPIES
from lqf.linear.linearize import Linearization
from problems import problem


def fast(module: nn.Module, x: Tensor, dtype: torch.dtype = torch.float64, **kwargs: object) -> FastLinearization:
    return FastLinearization(Linearization(module), dtype, x[:2], **kwargs)


def products(body: FastLinearization, x: Tensor) -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    z, dz = body.jvp(x, torch.randn(body.size, generator=g, dtype=x.dtype))
    return [z, dz, body.vjp(x, torch.randn(z.shape, generator=g, dtype=x.dtype))]


@every_network
@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float64, 1e-14), (torch.float16, 2e-3)], ids=str)
@pytest.mark.parametrize("merges", [False, True])
def test_products_from_kept_activations_are_the_same(
    name: str, dtype: torch.dtype, rounding: float, merges: bool
) -> None:
    x = images(6)
    body = fast(network(name), x, dtype, merges=merges)
    before = products(body, x)
    assert body.keep(x) > 0
    primal = body._kept[id(x)].primal
    for a, b in zip(products(body, x), before, strict=True):
        assert relative(a, b) <= rounding
    assert primal.hits == 2 * len(primal._values)  # one pass each way, and nothing of the primal computed again


def test_only_the_very_tensor_is_recognised_and_another_v_gives_another_product() -> None:
    x = images(6)
    body = fast(network("convnet"), x)
    body.keep(x)
    other = x.flip(0).clone()
    torch.testing.assert_close(products(body, other)[0], products(body, x)[0].flip(0))
    v = torch.randn(body.size, dtype=x.dtype)
    torch.testing.assert_close(body.jvp(x, 2 * v)[1], 2 * body.jvp(x, v)[1])
    body.forget()
    assert not body._kept


class Adds(nn.Module):
    """Overwrites activations that nothing else reads."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.act = nn.Linear(5, 5), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        y += x
        return self.act(y) * y


class Overwrites(Adds):
    """Overwrites a part of one."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        y[:, 0] = 1
        return y.square()


class Relies(Adds):
    """Reads what it has overwritten by another name."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        same = y
        y += x
        return same * y


def test_sums_in_place_are_done_out_of_place() -> None:
    x = torch.randn(4, 5, dtype=torch.float64)
    body = fast(Adds().double().eval(), x)
    before = products(body, x)
    assert body.keep(x) > 0
    for a, b in zip(products(body, x), before, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", [Overwrites, Relies])
def test_a_network_that_overwrites_its_activations_is_not_kept(kind: type[nn.Module]) -> None:
    x, said = torch.randn(4, 5, dtype=torch.float64), []
    body = fast(kind().double().eval(), x, say=said.append)
    before = products(body, x)
    assert body.keep(x) == 0
    assert "activations are not kept" in said[0]
    for a, b in zip(products(body, x), before, strict=True):
        assert torch.equal(a, b)


def test_random_operations_and_those_on_other_tensors_are_computed() -> None:
    x = torch.randn(3)
    primal = PrimalCache([x])
    primal.watch(lambda: torch.rand_like(x) + x)
    with primal:
        assert not torch.equal(torch.rand_like(x), torch.rand_like(x))
        torch.testing.assert_close(torch.full((3,), 2.0) + x, 2 + x)
    assert primal.bytes == 0


def test_a_kept_value_must_not_be_overwritten_afterwards() -> None:
    x = torch.randn(3)
    primal = PrimalCache([x])
    primal.watch(lambda: x.exp())
    with primal, pytest.raises(CannotCache):
        x.exp().mul_(2)


def test_as_many_batches_are_kept_as_fit() -> None:
    p = problem("convnet", n=10, batch_size=3)
    v = torch.randn(p.model.body.size, dtype=torch.float64)
    expected = p.body_jvp(v), p.body_vjp(p.targets)
    body = fast(p.model.body.module, p.inputs.example())
    quick = p.with_body(body)
    one = body.keep(p.inputs.example(3))
    body.forget()
    for batches, rows in ((0, 0), (0.5, 0), (1, 3), (1.9, 3), (2, 6), (100, 10)):
        assert keep_within(quick, int(batches * one)) == rows
        assert (len(body._kept), p.inputs.held_share) == (-(-rows // 3), rows / 10)
        torch.testing.assert_close(quick.body_jvp(v), expected[0], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(quick.body_vjp(p.targets), expected[1], rtol=1e-10, atol=1e-10)
        release_activations(quick)
        assert (len(body._kept), p.inputs.held_share) == (0, 0)
    assert keep_within(p, one) == 0  # an exact body keeps nothing
    assert keep_activations(quick, p) == 0  # nor does a CPU


def test_an_exact_pass_finds_room_beside_what_is_kept() -> None:
    assert room_for(100, 0) == 60
    assert room_for(100, 20) == 100 - COPIES * 20
    assert room_for(100, 50) == 0


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["convnet", "attention"])
def test_recorded_products_of_several_batches(name: str) -> None:
    device = torch.device("cuda")
    module = network(name).float().to(device)
    body = FastLinearization(Linearization(module), torch.float32, images(2).float().to(device))
    batches = [images(6).float().to(device) + k for k in range(3)]
    vectors = [torch.randn(body.size, device=device) for _ in range(2)]

    def both(x: Tensor, v: Tensor) -> list[Tensor]:
        z, dz = body.jvp(x, v)
        return [z.clone(), dz.clone(), body.vjp(x, dz).clone()]

    before = [both(x, v) for x in batches for v in vectors]
    assert all(body.keep(x) > 0 for x in batches)
    after = [both(x, v) for x in batches for v in vectors]
    for a, b in zip(after, before, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("recorded", [True, False])
def test_what_is_kept_is_freed_with_the_body(recorded: bool) -> None:
    x = images(6)
    body = fast(network("convnet"), x, recorded=recorded)
    assert body.keep(x) > 0
    products(body, x)
    kept, gone = weakref.ref(body._kept[id(x)].primal), weakref.ref(body)
    with no_collector():
        del body
        assert gone() is None
        assert kept() is None


def test_the_batch_itself_counts_as_kept() -> None:
    x = images(6)
    body = fast(network("convnet"), x)
    used = body.keep(x)
    kept = body._kept[id(x)]
    assert used == kept.primal.bytes + x.nbytes + (0 if kept.x is x else kept.x.nbytes)


def test_a_pass_that_cannot_be_recorded_ends_no_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    reasons: list[str] = []
    x = images(6)
    body = fast(network("convnet"), x, say=reasons.append)
    before = products(body, x)
    monkeypatch.setattr("lqf.fast.linearization.CachedBatch", fails)
    assert body.keep(x) == 0
    assert reasons == ["activations are not kept (operation not permitted when stream is capturing)"]
    assert not body._kept
    for a, b in zip(products(body, x), before, strict=True):
        torch.testing.assert_close(a, b)


class MakesConstants(nn.Module):
    """Multiplies by a number that it makes anew in every pass, so that no value is known again."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(72, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer((x * torch.tensor(2.0, dtype=x.dtype)).flatten(1))


def test_a_network_of_which_nothing_is_kept_holds_no_batch() -> None:
    reasons: list[str] = []
    x = images(6)
    body = fast(MakesConstants().double().eval(), x, say=reasons.append)
    assert body.keep(x) == 0
    assert not body._kept
    assert "activations are not kept" in reasons[0]


def test_a_converted_network_is_freed_when_it_is_let_go() -> None:
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    body = fast(load_backbone("resnet50", weights="random").body.double(), x, merges=True)
    assert body.merged == 49
    gone = weakref.ref(body.module)
    with no_collector():
        del body
        assert gone() is None
