"""Per-sample gradients from the tape against the dense Jacobian."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cases import every_network, images, network
from dense import jacobian
from lqf.fast import FastLinearization
from lqf.linear.layers import Tape
from lqf.linear.linearize import Linearization


def per_sample(tape: Tape, x: Tensor, u: Tensor) -> Tensor:
    z, records = tape.record(x)
    gs = Tape.backward(z, records, u)
    grads = dict(tape.others_per_sample(x, u))
    for record, g in zip(records, gs, strict=True):
        for n, value in record.layer.per_sample(record.a, g).items():
            grads[n] = grads[n] + value if n in grads else value
    return torch.cat([grads[n] for n in tape.body.layout.names], 1)


@every_network
def test_per_sample_gradients(name: str) -> None:
    body, x = Linearization(network(name)), images()
    jac = jacobian(body, x)
    u = torch.randn(jac.shape[:2], dtype=x.dtype)
    expected = torch.einsum("bo,bod->bd", u, jac)
    torch.testing.assert_close(per_sample(Tape(body, x), x, u), expected, rtol=1e-10, atol=1e-10)


def test_weights_without_a_rule_are_listed_as_others() -> None:
    assert Tape(Linearization(network("scaled")), images()).others == ("1.gamma",)
    assert Tape(Linearization(network("attention")), images()).others == ("position",)
    assert Tape(Linearization(network("convnet")), images()).others == ()


class PaddedConv(nn.Conv2d):
    """Pads by itself before convolving, as timm's `Conv2dSame` does: the base class's rule would be wrong."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.pad(x, (1, 0, 1, 0)))


class SameConv(nn.Conv2d):
    """Only another name for a Conv2d."""


@pytest.mark.parametrize(("kind", "others"), [(PaddedConv, ("0.weight", "0.bias")), (SameConv, ())])
def test_subclasses_are_checked_not_trusted(kind: type[nn.Conv2d], others: tuple[str, ...]) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(kind(2, 3, 2, stride=2), nn.Flatten()).double().eval().requires_grad_(False)
    body, x = Linearization(net), images()
    tape = Tape(body, x)
    assert tape.others == others
    u = torch.randn_like(net(x))
    torch.testing.assert_close(per_sample(tape, x, u), torch.einsum("bo,bod->bd", u, jacobian(body, x)))


def test_a_fast_body_is_refused() -> None:
    """On a GPU its layers are merged; a tape of it would leave their weights out of the rules."""
    x = images()
    fast = FastLinearization(Linearization(network("convnet")), x.dtype, x[:2])
    with pytest.raises(TypeError, match="exact"):
        Tape(fast, x)
