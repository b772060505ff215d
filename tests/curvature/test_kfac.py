"""K-FAC blocks against their defining formulae, and exactness where K-FAC is exact."""

import warnings

import pytest
import torch
from torch import nn

from cases import every_network, images, network
from closeness import relative
from dense import jacobian, offsets
from lqf.curvature.blocks import Channelwise, Gram, Kronecker, eigh
from lqf.curvature.ekfac import PRIOR, ekfac
from lqf.curvature.kfac import Piece, kfac
from lqf.linear.layers import Tape
from lqf.linear.linearize import Linearization
from lqf.linear.ridge import Ridge


def exact_piece(body: Linearization, x: torch.Tensor, weights: torch.Tensor) -> Piece:
    c = body.value(x[:1]).shape[1]
    return Piece(x, weights, torch.eye(c, dtype=x.dtype)[:, None].expand(c, len(x), c))


def dense_inverse(result: object, size: int, mu: float) -> torch.Tensor:
    return torch.stack([result.solve(e, Ridge(mu, mu)) for e in torch.eye(size, dtype=torch.float64)])


@pytest.mark.parametrize(("p", "m"), [(3, 10), (8, 3)])
def test_gram_eigenpairs_thin_and_full(p: int, m: int) -> None:
    columns, gram = torch.randn(2, p, m, dtype=torch.float64), Gram()
    for piece in columns.split(2, -1):
        gram.add(piece)
    lam, u = gram.eigenpairs()
    assert u.shape[-1] == min(p, m)
    torch.testing.assert_close((u * lam[:, None]) @ u.mT, columns @ columns.mT)
    assert float(gram.trace) == pytest.approx(float(columns.square().sum()))


@pytest.mark.parametrize("thin", [False, True])
@pytest.mark.parametrize("identity_g", [False, True])
def test_kronecker_solve_is_the_inverse(thin: bool, identity_g: bool) -> None:
    a = torch.randn(2, 5, 3 if thin else 9, dtype=torch.float64)
    gram = Gram()
    gram.add(a)
    lam_a, u_a = gram.eigenpairs()
    lam_g, u_g = eigh(torch.randn(2, 4, 4, dtype=torch.float64))
    lam_g = torch.ones(2, 4).double() if identity_g else lam_g + 0.1
    block = Kronecker(u_a, None if identity_g else u_g, 0.7 * lam_g[..., :, None] * lam_a[..., None, :])
    v = torch.randn(2, 4, 5, dtype=torch.float64)
    expected = torch.linalg.solve(block.dense() + 0.3 * torch.eye(40).double(), v.flatten()).view_as(v)
    torch.testing.assert_close(block.solve(v, 0.3), expected)


def test_exact_for_one_sample_of_a_linear_layer() -> None:
    """One sample, no positions: Σ JᵀJ is a Kronecker product, and K-FAC must be it."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(72, 4)).double().eval().requires_grad_(False)
    body, x = Linearization(net), images(1)
    jac = jacobian(body, x)[0]
    result = kfac(Tape(body, x), [exact_piece(body, x, torch.full((1,), 1.7).double())])
    expected = torch.linalg.inv(1.7 * jac.T @ jac + 0.4 * torch.eye(body.size).double())
    torch.testing.assert_close(dense_inverse(result, body.size, 0.4), expected, rtol=1e-8, atol=1e-9)


@every_network
def test_blocks_have_the_exact_trace(name: str) -> None:
    body, x = Linearization(network(name)), images()
    weights = torch.rand(7, dtype=torch.float64) + 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = kfac(Tape(body, x), [exact_piece(body, x, weights)])
    jac = jacobian(body, x)
    exact = torch.einsum("b,bod,bod->d", weights, jac, jac)
    mu = 1e-3
    inverse = dense_inverse(result, body.size, mu)
    block = torch.linalg.inv(inverse) - mu * torch.eye(body.size).double()
    at, sizes = offsets(body.layout), dict(zip(body.layout.names, body.layout.sizes, strict=True))
    for lay in Tape(body, x).layers:
        if name == "shared" and lay.name != "1":
            continue  # called twice: the factors ignore the correlation between the calls
        own = [n for n in (lay.weight, lay.bias) if n]
        index = torch.cat([torch.arange(at[n], at[n] + sizes[n]) for n in own])
        assert float(block[index, index].sum()) == pytest.approx(float(exact[index].sum()), rel=1e-6)


def test_norm_blocks_are_exact_per_channel() -> None:
    body, x = Linearization(network("convnet")), images()
    weights = torch.rand(7, dtype=torch.float64) + 0.5
    result = kfac(Tape(body, x), [exact_piece(body, x, weights)])
    jac, at = jacobian(body, x), offsets(body.layout)
    gamma, beta = (jac[..., at[f"1.{k}"] : at[f"1.{k}"] + 4] for k in ("weight", "bias"))
    both = torch.stack([gamma, beta], -1)
    expected = torch.einsum("b,boci,bocj->cij", weights, both, both)
    block = result.channels["1"]
    torch.testing.assert_close((block.u * block.lam[:, None]) @ block.u.mT, expected)


def test_weights_without_a_rule_get_their_exact_diagonal_and_are_named() -> None:
    body, x = Linearization(network("scaled")), images()
    with pytest.warns(UserWarning, match=r"1\.gamma"):
        result = kfac(Tape(body, x), [exact_piece(body, x, torch.ones(7).double())])
    at = offsets(body.layout)["1.gamma"]
    expected = jacobian(body, x)[..., at : at + 3].square().sum((0, 1))
    torch.testing.assert_close(result.channels["1.gamma"].lam[:, 0], expected)


def test_random_draws_are_unbiased() -> None:
    body, x = Linearization(network("mlp")), images()
    ones = torch.ones(7).double()
    exact = kfac(Tape(body, x), [exact_piece(body, x, ones)])
    signs = torch.randint(0, 2, (4000, 7, 4)).double() * 2 - 1
    drawn = kfac(Tape(body, x), [Piece(x, ones, signs / 4000**0.5)])
    for name in exact.kronecker:
        a, b = exact.kronecker[name].dense(), drawn.kronecker[name].dense()
        assert relative(b, a) < 0.05


def test_moments_are_the_diagonal_in_the_factored_basis() -> None:
    body, x = Linearization(network("convnet")), images()
    tape, piece = Tape(body, x), exact_piece(body, x, torch.rand(7, dtype=torch.float64) + 0.5)
    plain = kfac(tape, [piece])
    corrected = ekfac(plain, tape, [piece], float(piece.weights.sum()))
    jac, at = jacobian(body, x), offsets(body.layout)
    share = 7 / (7 + PRIOR)
    for lay in tape.layers:
        if lay.name not in plain.kronecker or lay.bias:
            continue
        block = plain.kronecker[lay.name]
        size = block.u_a.shape[0] * block.u_a.shape[1] * block.u_g.shape[1]
        grads = jac[..., at[lay.weight] : at[lay.weight] + size].unflatten(-1, (len(block.u_a), block.u_g.shape[1], -1))
        moments = torch.einsum("b,bogij->gij", piece.weights, block.to_basis(grads).square())
        torch.testing.assert_close(corrected.kronecker[lay.name].d, share * moments + (1 - share) * block.d)


def test_channelwise_solve() -> None:
    blocks = torch.randn(3, 2, 2, dtype=torch.float64)
    blocks = blocks @ blocks.mT
    v = torch.randn(3, 2, dtype=torch.float64)
    expected = torch.linalg.solve(blocks + 0.2 * torch.eye(2).double(), v)
    torch.testing.assert_close(Channelwise.of(blocks).solve(v, 0.2), expected)


def test_a_part_of_the_data_can_stand_for_all_of_it() -> None:
    body, x = Linearization(network("convnet")), images()
    tape, piece = Tape(body, x), exact_piece(body, x, torch.rand(7, dtype=torch.float64) + 0.5)
    whole = kfac(tape, [piece, piece, piece])
    part = kfac(tape, [piece], all_weight=3 * float(piece.weights.sum()))
    v = torch.randn(body.size, dtype=torch.float64)
    torch.testing.assert_close(part.solve(v, Ridge(0.3, 0.3)), whole.solve(v, Ridge(0.3, 0.3)), rtol=1e-8, atol=1e-9)
