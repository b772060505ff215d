"""Inner products of gradients do not depend on how the work is cut."""

import sys

import pytest
import torch
from torch import Tensor, nn

from cases import every_network, images
from dense import rows
from lqf.curvature.kfac import Piece, Sums
from lqf.kernels.gradients import TOGETHER, gradients, parts
from lqf.kernels.gram import add_gram, body_kernel, every_output
from lqf.linear.layers import Tape, in_groups
from lqf.linear.linearize import Linearization
from problems import problem

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


@every_network
@pytest.mark.parametrize("budget", [1, 20_000, 1 << 30])
def test_memory_only_decides_how_often_the_data_are_passed(name: str, budget: int) -> None:
    p = problem(name, n=5, n_classes=TOGETHER + 2, heads=2, batch_size=3)  # more outputs than are made together
    j = rows(p)[0].flatten(0, 1)[:, p.model.head_size :]
    kernel = body_kernel(p, every_output(p), TOGETHER + 2, budget=budget)[0]
    torch.testing.assert_close(kernel, j @ j.T, **CLOSE)


@pytest.mark.parametrize("n", [1, 6, 7, 10])
def test_tiles_and_columns_add_up(n: int) -> None:
    x = torch.randn(n, 23, dtype=torch.float64)
    kernel = torch.ones(n, n, dtype=torch.float64)
    add_gram(kernel, x, 0.5, columns=5, tile=3)
    torch.testing.assert_close(kernel, 1 + 0.5 * x @ x.T, **CLOSE)


class Unknown(nn.Module):
    """A network of which no rule knows any weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(*shape) / 5) for shape in ((72, 9), (9, 9), (9, 4))])
        self.shift = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for w in self.weights:
            x = torch.tanh(x @ w)
        return x + self.shift


def unknown() -> Linearization:
    torch.manual_seed(0)
    return Linearization(Unknown().double().eval().requires_grad_(False))


@pytest.mark.parametrize("largest", [1, 30, 100, 10_000])
def test_weights_without_a_rule_are_cut_into_pieces(largest: int) -> None:
    body, x = unknown(), images(5)
    tape = Tape(body, x)
    assert len(tape.others) == 4
    cut = parts(tape, largest)
    assert max(p.size for p in cut) <= largest
    assert sum(p.size for p in cut) == body.size == 72 * 9 + 81 + 36 + 4
    u = torch.randn(2, 5, 4, dtype=torch.float64)
    whole, pieces = x.new_zeros(5, 2, body.size), x.new_zeros(5, 2, body.size)
    gradients(tape, parts(tape, body.size), x, u, whole)
    gradients(tape, cut, x, u, pieces)
    torch.testing.assert_close(pieces, whole, **CLOSE)
    expected = torch.stack([body.vjp(x[i : i + 1], u[1, i : i + 1]) for i in range(5)])
    torch.testing.assert_close((whole[:, 1] ** 2).sum(1), (expected**2).sum(1), **CLOSE)


def test_curvature_of_weights_without_a_rule_does_not_depend_on_how_many_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body, x = unknown(), images(5)
    piece = Piece(x, torch.ones(5).double(), torch.randn(2, 5, 4, dtype=torch.float64))
    sums = []
    for most in (1, 100, 10_000):
        monkeypatch.setattr(sys.modules[Sums.__module__], "AT_A_TIME", most)
        sums.append(Sums(Tape(body, x)))
        sums[-1].add(piece)
    for other in sums[1:]:
        for name, channel in sums[0].channel.items():
            torch.testing.assert_close(other.channel[name].blocks, channel.blocks, **CLOSE)


def test_names_are_taken_together_in_order() -> None:
    assert in_groups({"a": 2, "b": 3, "c": 9, "d": 1, "e": 1}, 5) == [["a", "b"], ["c"], ["d", "e"]]
    assert in_groups({}, 5) == []
