"""Several networks of one kind as one backbone: its features are theirs, and it comes back from its spec."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from dense import jacobian
from fits import sequential
from lqf.backbones import Backbone, load_backbone, rebuild_backbone
from lqf.backbones.average_pool import (
    acting,
    acting_features,
    acting_through_all,
    reduction_of,
    with_both_pools,
)
from lqf.backbones.side_by_side import networks_of, side_by_side
from lqf.backbones.state import moved, state_of
from lqf.linear.linearize import Linearization

C, ROWS = 4, torch.eye(4, dtype=torch.float64)[:2]
X = torch.randn(3, 3, 9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def net() -> nn.Module:
    layers = lambda: {  # noqa: E731
        "conv": nn.Conv2d(3, C, 3),
        "norm": nn.BatchNorm2d(C),
        "tanh": nn.Tanh(),
        "pool": nn.AdaptiveAvgPool2d(1),
        "flat": nn.Flatten(),
        "head": nn.Linear(C, 2),
    }
    return sequential(layers).double()


def backbones(n: int = 3, pooled: bool = False) -> list[Backbone]:
    """Of the same kind, with other weights and statistics."""
    out = []
    for k in range(n):
        backbone = load_backbone(net())
        if pooled:
            backbone = acting_through_all(with_both_pools(backbone, "pool", ROWS, 2, C, 0.3))
        generator = torch.Generator().manual_seed(k)
        for name, value in backbone.body.state_dict().items():
            if value.is_floating_point() and "reduction" not in name:
                value.add_(0.1 * torch.rand(value.shape, dtype=value.dtype, generator=generator))
        out.append(moved(backbone, backbone.body, {"epochs": 2}))
    return out


@pytest.mark.parametrize("pooled", [False, True], ids=["average", "both poolings"])
def test_its_features_are_those_of_all(pooled: bool) -> None:
    some = backbones(pooled=pooled)
    expected = torch.cat([b.body(X) for b in some], 1)
    one = side_by_side(some)
    assert torch.equal(one.body(X), expected)
    assert one.features == expected.shape[1]
    assert one.spec["moved"] == {"epochs": 2, "networks": 3}
    assert some[-1].spec["moved"] == {"epochs": 2}
    assert networks_of(one.body) == [b.body for b in some]
    assert networks_of(some[0].body) == [some[0].body]


@pytest.mark.parametrize("pooled", [False, True], ids=["average", "both poolings"])
def test_a_spec_and_its_state_make_it_again(pooled: bool) -> None:
    one = side_by_side(backbones(pooled=pooled))
    state = {k: v.clone() for k, v in state_of(one.body).items()}
    reduction = reduction_of(one)
    assert (reduction is not None) is pooled
    spec = json.loads(json.dumps(one.spec))
    again = rebuild_backbone(spec, module=net(), reduction=reduction, state=state)
    assert torch.equal(again.body(X), one.body(X))
    assert (again.features, again.spec) == (one.features, one.spec)
    assert not any(m.training for m in again.body.modules())


# --- through both poolings --------------------------------------------------------------------------------------------


def test_weights_may_act_through_the_covariance_too() -> None:
    backbone = with_both_pools(load_backbone(net()), "pool", ROWS, 2, C, 0.3)
    through = acting_through_all(backbone)
    assert torch.equal(through.body(X), backbone.body(X))
    before, after = (jacobian(Linearization(b.body), X) for b in (backbone, through))
    assert torch.equal(after[:, :C], before[:, :C])
    assert not before[:, C:].any()
    assert torch.allclose(after, by_differences(through), atol=1e-6)
    assert (acting_features(backbone), acting_features(through)) == (C, None)
    assert acting(through) is through
    assert acting_through_all(through) is through
    assert "through" not in backbone.spec["pooling"]


def by_differences(backbone: Backbone, h: float = 1e-6) -> Tensor:
    """(B, p, D) by central differences."""
    body, columns = copy.deepcopy(backbone.body), []
    with torch.no_grad():
        for w in body.parameters():
            flat = w.view(-1)
            for i in range(len(flat)):
                values = []
                for step in (h, -2 * h):
                    flat[i] += step
                    values.append(body(X))
                flat[i] += h
                columns.append((values[0] - values[1]) / (2 * h))
    return torch.stack(columns, -1)


def test_only_both_poolings_know_a_difference() -> None:
    backbone = load_backbone(net())
    assert acting_through_all(backbone) is backbone
    other = replace(backbone, spec={**backbone.spec, "pooling": {"kind": "bilinear", "module": "pool", "channels": 2}})
    assert acting_through_all(other) is other
