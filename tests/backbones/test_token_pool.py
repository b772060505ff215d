"""Features of a network's last tokens: their mean and their covariance, alone or beside its own features."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from adjoint import assert_adjoint
from closeness import assert_same_products, relative
from dense import jacobian
from lqf.backbones import Backbone
from lqf.backbones.average_pool import acting, acting_features, reduction_of, with_pooling
from lqf.backbones.bilinear_pool import EPSILON
from lqf.backbones.prefix import split_at, stages
from lqf.backbones.token_pool import TOKEN_POOL, TokenMoment, Tokens
from lqf.backbones.tokens import find_tokens
from lqf.backbones.with_token_pool import with_token_pool, with_tokens_in_sight
from lqf.errors import LQFError
from lqf.fast import FastLinearization
from lqf.linear.linearize import Linearization
from token_networks import LIBRARY, WIDTH, images, made, own

SCALE = 0.37
OTHERS = ("tokens_mean", "own_mean", "bilinear", "both")
kinds = pytest.mark.parametrize("kind", OTHERS)


def rows(tokens: Tokens, k: int = 3) -> Tensor:
    """(k, D) orthonormal rows."""
    square = torch.randn(tokens.channels, tokens.channels, generator=torch.Generator().manual_seed(1))
    return torch.linalg.qr(square.double())[0][:k]


def found(backbone: Backbone, x: Tensor) -> Tokens:
    tokens = find_tokens(backbone.body, x)
    assert tokens is not None
    return tokens


def pooled(kind: str, *, reduced: bool = True, linearised: bool = False, **options: Any) -> tuple[Backbone, Backbone]:
    """The small transformer, as it is and pooled."""
    before = own(**options)
    tokens = found(before, images())
    reduction = rows(tokens) if reduced and kind in ("bilinear", "both") else None
    return before, with_token_pool(before, tokens, kind, reduction, scale=SCALE, linearised=linearised)


def patches(backbone: Backbone, tokens: Tokens, x: Tensor) -> Tensor:
    """(B, L, D), of what the module makes."""
    seen: list[Tensor] = []
    handle = backbone.body.get_submodule(tokens.name).register_forward_hook(lambda _m, _x, y: seen.append(y))
    backbone.body(x)
    handle.remove()
    t = seen[0]
    if tokens.layout == "tokens":
        return t[:, tokens.prefix :]
    return t.flatten(1, 2) if tokens.layout == "channels_last" else t.flatten(2).transpose(1, 2)


def root(t: Tensor, reduction: Tensor | None) -> Tensor:
    """The upper triangle of (Σ + εI)^{1/2} of tokens (B, L, D), one image after the other, by eigenvalues."""
    out = []
    for y in t if reduction is None else t @ reduction.T:
        sigma = torch.cov(y.T, correction=0)
        k = len(sigma)
        values, q = torch.linalg.eigh(sigma + EPSILON * sigma.trace() / k * torch.eye(k, dtype=y.dtype))
        s = q @ values.sqrt().diag() @ q.T
        out.append([s[i, j] * (1 if i == j else 2**0.5) for i in range(k) for j in range(i, k)])
    return torch.tensor(out, dtype=t.dtype)


def expected(kind: str, z: Tensor, t: Tensor, reduction: Tensor | None) -> Tensor:
    """Features by their definition."""
    return {
        "own": lambda: z,
        "tokens_mean": lambda: t.mean(1),
        "own_mean": lambda: torch.cat([z, SCALE * t.mean(1)], 1),
        "bilinear": lambda: root(t, reduction),
        "both": lambda: torch.cat([z, SCALE * root(t, reduction)], 1),
    }[kind]()


def check_features(backbone: Backbone, x: Tensor, tokens: Tokens) -> None:
    """Every kind of features is what its definition says; the original stays."""
    kept = copy.deepcopy(backbone.body.state_dict())
    z, t = backbone.body(x), patches(backbone, tokens, x)
    assert t.shape[1:] == (tokens.positions, tokens.channels)
    for kind in tokens.kinds:
        other = with_token_pool(backbone, tokens, kind, rows(tokens), scale=SCALE)
        features = other.body(x)
        assert other.features == features.shape[1]
        torch.testing.assert_close(features, expected(kind, z, t, rows(tokens)), rtol=1e-8, atol=1e-8)
        assert torch.equal(backbone.body(x), z)
    assert all(torch.equal(kept[n], w) for n, w in backbone.body.state_dict().items())
    assert "pooling" not in backbone.spec


def check_cuts(backbone: Backbone, x: Tensor) -> None:
    """Both parts give the whole at every stage; each has its weights under the names of the whole."""
    z, own_names = backbone.body(x), [n for n, _ in backbone.body.named_parameters()]
    for stage in backbone.stages:
        prefix, suffix = split_at(backbone.body, stage)
        torch.testing.assert_close(suffix(prefix(x)), z, rtol=1e-10, atol=1e-12)
        names = [n for part in (prefix, suffix) for n, _ in part.named_parameters()]
        assert sorted(names) == sorted(own_names)
        assert stages(suffix)


def check_derivatives(before: Backbone, backbone: Backbone, x: Tensor) -> None:
    """J·v is the slope of finite differences, but for a covariance beside the own features, which no weight reaches."""
    body, original = Linearization(backbone.body), Linearization(before.body)
    v = torch.randn(body.size, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    dz = body.jvp(x, v)[1]
    h, weights, step = 1e-4, body.weights(), body.layout.views(v)
    with torch.no_grad():
        up, down = (body.call({n: w + s * h * step[n] for n, w in weights.items()}, x) for s in (1, -1))
    slope, p = (up - down) / (2 * h), before.features
    if backbone.spec["pooling"]["kind"] == "both":
        assert float(slope[:, p:].norm()) > 1e-3  # it would move
        assert not dz[:, p:].any()
        dz, slope = dz[:, :p], slope[:, :p]
        assert body.layout.names == original.layout.names
        torch.testing.assert_close(dz, original.jvp(x, v)[1], rtol=1e-9, atol=1e-10)
    assert relative(dz, slope) < 1e-5
    assert_adjoint(backbone.body, x, rel=1e-8)


# --- the small transformer --------------------------------------------------------------------------------------------


class Overwrites(nn.Module):
    """2x, by an operation whose result nobody takes."""

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0
        x.mul_(2)
        return x


@pytest.mark.parametrize(
    "options",
    [{}, {"prefix": 4}, {"pool": "mean", "after": nn.LayerNorm(WIDTH)}, {"after": Overwrites()}],
    ids=["class", "registers", "mean", "overwritten"],
)
def test_features_are_what_they_are_called(options: dict[str, Any]) -> None:
    backbone, x = own(**options), images()
    check_features(backbone, x, found(backbone, x))


def test_all_channels_without_a_reduction() -> None:
    before, after = pooled("bilinear", reduced=False)
    t = patches(before, found(before, images()), images())
    torch.testing.assert_close(after.body(images()), root(t, None), rtol=1e-8, atol=1e-8)
    assert after.features == WIDTH * (WIDTH + 1) // 2


def test_kinds_are_those_that_differ() -> None:
    backbone = own()
    tokens = found(backbone, images())
    assert tokens.kinds == ("own", *OTHERS)
    assert with_token_pool(backbone, tokens, "own") is backbone
    averages = found(own(pool="mean", after=nn.LayerNorm(WIDTH)), images())
    assert averages.kinds == ("own", "bilinear", "both")
    with pytest.raises(LQFError, match="no features of the kind `own_mean`; choose one of"):
        with_token_pool(own(pool="mean"), averages, "own_mean")


@kinds
def test_weights_keep_their_names_and_their_order(kind: str) -> None:
    before, after = pooled(kind)
    names = [n for n, _ in before.body.named_parameters()]
    for body in (after.body, copy.deepcopy(after.body)):
        assert [n for n, _ in body.named_parameters()] == names
        assert not any(m.training for m in body.modules())
        assert not any(w.requires_grad for w in body.parameters())


def test_a_norm_that_is_passed_by_is_gone() -> None:
    before, after = pooled("bilinear", pool="mean", after=nn.LayerNorm(WIDTH))
    names = {n for n, _ in before.body.named_parameters()}
    assert names - {n for n, _ in after.body.named_parameters()} == {"after.weight", "after.bias"}
    assert set(before.stages) - set(after.stages) == {"after"}


@kinds
def test_cut_and_uncut_agree(kind: str) -> None:
    before, after = pooled(kind)
    assert after.stages == before.stages
    assert len(after.stages) > 3
    check_cuts(after, images())


def test_a_part_has_the_stages_of_the_whole() -> None:
    for body in (own().body, pooled("both")[1].body):
        assert stages(split_at(body, "blocks.1")[1])[-1] == "norm"


@kinds
def test_derivatives(kind: str) -> None:
    before, after = pooled(kind)
    check_derivatives(before, after, images())


@kinds
def test_faster_passes_agree(kind: str) -> None:
    exact, x = Linearization(pooled(kind)[1].body), images()
    v = torch.randn(exact.size, dtype=torch.float64)
    assert_same_products(FastLinearization(exact, torch.float64, x), exact, x, v, error=1e-8)


def test_the_reduction_may_be_a_weight() -> None:
    _, after = pooled("bilinear", linearised=True)
    name = f"{TOKEN_POOL}.bilinear.reduce.weight"
    body = Linearization(after.body, [name])
    assert jacobian(body, images()).abs().max() > 1e-3
    assert torch.equal(reduction_of(after), rows(Tokens(**after.spec["pooling"]["tokens"])))
    again = with_pooling(own(), after.spec["pooling"], reduction_of(after))
    assert name in dict(again.body.named_parameters())


@kinds
@pytest.mark.parametrize("reduced", [True, False], ids=["reduced", "all channels"])
def test_a_spec_makes_the_same_network_again(kind: str, reduced: bool) -> None:
    _, after = pooled(kind, reduced=reduced)
    spec, saved = json.loads(json.dumps(after.spec["pooling"])), reduction_of(after)
    assert (saved is None) is not (reduced and kind in ("bilinear", "both"))
    again = with_pooling(own(), spec, saved)
    assert (again.spec, again.features, again.stages) == (after.spec, after.features, after.stages)
    assert torch.equal(again.body(images()), after.body(images()))


@kinds
def test_types_change_and_copies_are_their_own(kind: str) -> None:
    _, after = pooled(kind)
    z = after.body(images())
    other = copy.deepcopy(after.body)
    torch.testing.assert_close(other.float()(images().float()).double(), z, rtol=1e-3, atol=1e-3)
    with torch.no_grad():
        for w in other.parameters():
            w.zero_()
    assert torch.equal(after.body(images()), z)


@pytest.mark.gpu
@kinds
def test_on_a_gpu(kind: str) -> None:
    body, x = pooled(kind)[1].body, images()
    z = body(x)
    torch.testing.assert_close(copy.deepcopy(body).cuda()(x.cuda()).cpu(), z, rtol=1e-6, atol=1e-6)


def test_another_network_is_refused() -> None:
    tokens = Tokens("nothing", "output", "tokens", 1, WIDTH, 9, "class")
    with pytest.raises(LQFError, match="no `nothing` that is called once"):
        with_token_pool(own(), tokens, "bilinear")


def test_features_that_weights_act_through() -> None:
    before, after = pooled("both")
    assert acting_features(after) == before.features
    alone = acting(after)
    torch.testing.assert_close(alone.body(images()), before.body(images()), rtol=1e-12, atol=1e-12)
    assert all(acting_features(pooled(kind)[1]) is None for kind in OTHERS[:-1])


# --- moments ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"prefix": 2}, {"pool": "mean", "after": nn.LayerNorm(WIDTH)}], ids=str)
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
def test_the_moment_of_patch_tokens(options: dict[str, Any], cut: bool) -> None:
    backbone, x, w = own(**options), images(6), torch.rand(6).double()
    tokens = found(backbone, x)
    seen = with_tokens_in_sight(backbone, tokens)
    assert (seen.features, seen.spec) == (backbone.features, backbone.spec)
    prefix, body = split_at(seen.body, "blocks.1") if cut else (nn.Identity(), seen.body)
    with TokenMoment(body.get_submodule(TOKEN_POOL), room=1 << 20) as moment:
        for part, weights in zip(x.split(4), w.split(4), strict=True):
            torch.testing.assert_close(body(prefix(part)), backbone.body(part))
            moment.add(weights)
    t = patches(backbone, tokens, x)
    y = t - t.mean(1, keepdim=True)
    torch.testing.assert_close(moment.sum, torch.einsum("b,bli,blj->ij", w, y, y) / t.shape[1])
    torch.testing.assert_close(torch.cat(moment.means), t.mean(1))
    bilinear = with_token_pool(backbone, tokens, "bilinear", rows(tokens))
    pool = bilinear.body.get_submodule(TOKEN_POOL).bilinear
    assert moment.maps is not None
    torch.testing.assert_close(pool(torch.cat(moment.maps)), bilinear.body(x))


def test_no_more_maps_are_kept_than_there_is_room_for() -> None:
    backbone = own()
    body = with_tokens_in_sight(backbone, found(backbone, images())).body
    with TokenMoment(body.get_submodule(TOKEN_POOL), room=100) as moment:
        body(images())
        moment.add(torch.ones(3))
    assert moment.maps is None
    assert len(moment.means[0]) == 3


# --- libraries --------------------------------------------------------------------------------------------------------


@pytest.mark.timm
@pytest.mark.parametrize("name", LIBRARY)
def test_features_of_library_networks(name: str) -> None:
    check_features(*made(name))


@pytest.mark.timm
@pytest.mark.parametrize("name", LIBRARY)
def test_library_networks_are_cut_and_linearised(name: str) -> None:
    backbone, x, tokens = made(name)
    for kind in ("bilinear", "both"):
        other = with_token_pool(backbone, tokens, kind, rows(tokens), scale=SCALE)
        assert len(set(backbone.stages) - set(other.stages)) <= 1  # at most the norm after the tokens
        check_cuts(other, x)
        check_derivatives(backbone, other, x)


@pytest.mark.timm
def test_norms_of_timm_stay_layers() -> None:
    """There are rules for them: of curvature, and for faster passes."""
    backbone, _, tokens = made("vit")
    body = with_token_pool(backbone, tokens, "both", rows(tokens)).body
    counts = [sum(isinstance(m, nn.LayerNorm) for m in b.modules()) for b in (backbone.body, body)]
    assert counts == [5, 5]
