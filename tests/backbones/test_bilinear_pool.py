"""Bilinear pooling: the root is a root, its derivatives are exact, and both sides of the covariance agree."""

import pytest
import torch

from cases import Scale
from closeness import relative
from lqf.backbones.bilinear_pool import EPSILON, BilinearPool, covariance_root, principal_rows
from lqf.backbones.matrix_root import matrix_inverse, matrix_root
from lqf.linear.layers import Tape
from lqf.linear.linearize import Linearization

DOUBLE = torch.float64


def spd(values: list[float]) -> torch.Tensor:
    q = torch.linalg.qr(torch.randn(len(values), len(values), dtype=DOUBLE))[0]
    return (q * torch.tensor(values, dtype=DOUBLE)) @ q.T


SPECTRA = {"distinct": [3.0, 1.0, 0.5, 0.1], "repeated": [2.0, 2.0, 2.0, 0.5], "near zero": [1.0, 1e-6, 1e-6, 1e-7]}


NEWTON = pytest.mark.parametrize("newton", [False, True])


@NEWTON
@pytest.mark.parametrize("name", SPECTRA)
def test_root_and_its_derivatives(name: str, newton: bool) -> None:
    m = torch.stack([spd(SPECTRA[name]), 1e3 * spd(SPECTRA[name])])

    def root(m: torch.Tensor) -> torch.Tensor:
        return matrix_root(m, newton=newton)

    r = root(m)
    torch.testing.assert_close(r @ r, m, rtol=1e-11, atol=1e-11)
    d = torch.randn(2, 4, 4, dtype=DOUBLE)
    d = d + d.mT
    _, dr = torch.func.jvp(root, (m,), (d,))
    torch.testing.assert_close(r @ dr + dr @ r, d, rtol=1e-8, atol=1e-8)  # Sylvester's equation
    u = torch.randn(2, 4, 4, dtype=DOUBLE)
    pulled = torch.func.vjp(root, m)[1](u)[0]
    assert float((u * dr).sum()) == pytest.approx(float((pulled * d).sum()), rel=1e-9)


@NEWTON
def test_inverse_and_its_derivatives(newton: bool) -> None:
    t = torch.stack([spd([3.0, 1.0, 0.5, 1e-5]), spd([1.0, 1.0, 1.0, 1.0])])

    def inverse(t: torch.Tensor) -> torch.Tensor:
        return matrix_inverse(t, newton=newton)

    torch.testing.assert_close(inverse(t) @ t, torch.eye(4, dtype=DOUBLE).expand(2, 4, 4), rtol=1e-6, atol=1e-6)
    d, u = torch.randn(2, 4, 4, dtype=DOUBLE), torch.randn(2, 4, 4, dtype=DOUBLE)
    _, dx = torch.func.jvp(inverse, (t[1:],), (d[1:],))
    torch.testing.assert_close(dx, -d[1:], rtol=1e-9, atol=1e-9)
    _, dx = torch.func.jvp(inverse, (t,), (d,))
    pulled = torch.func.vjp(inverse, t)[1](u)[0]
    assert float((u * dx).sum()) == pytest.approx(float((pulled * d).sum()), rel=1e-9)


def test_inverses_of_many_positions_by_two_threads() -> None:
    """As many as the patches of a transformer, where torch.linalg.inv fails."""
    torch.set_num_threads(2)
    y = torch.randn(4, 256, 300, dtype=DOUBLE)
    t = y @ y.mT / 300 + 0.01 * torch.eye(256)
    torch.testing.assert_close(matrix_inverse(t, newton=False) @ t, torch.eye(256, dtype=DOUBLE).expand_as(t))


@pytest.mark.parametrize("n", [16, 49])
def test_newtons_iterations_reach_float64_at_the_spectra_of_feature_maps(n: int) -> None:
    """Rank n − 1 plus the ridge that pooling adds, here as small as a 256-channel map makes it."""
    y = torch.randn(3, n, n - 1, dtype=DOUBLE) * torch.logspace(0, -2, n - 1, dtype=DOUBLE)
    m = y @ y.mT + (1e-4 / 256) * y.square().sum((1, 2))[:, None, None] * torch.eye(n)
    d = torch.randn(3, n, n, dtype=DOUBLE)
    by_eigh, by_newton = (
        torch.func.jvp(lambda m, k=k: matrix_root(m, newton=k), (m,), (d + d.mT,)) for k in (False, True)
    )
    for a, b in zip(by_newton, by_eigh, strict=True):
        assert relative(a, b) < 1e-8


@pytest.mark.parametrize(("k", "length"), [(3, 7), (6, 4), (5, 5), (4, 1)])
def test_small_side_equals_the_definition(k: int, length: int) -> None:
    y = torch.randn(2, k, length, dtype=DOUBLE)
    centred = y - y.mean(2, keepdim=True)
    sigma = centred @ centred.mT / length
    epsilon = EPSILON * sigma.diagonal(dim1=1, dim2=2).sum(1) / k
    s = covariance_root(y)
    expected = sigma + (epsilon + torch.finfo(DOUBLE).tiny ** 0.5)[:, None, None] * torch.eye(k)
    torch.testing.assert_close(s @ s, expected, rtol=1e-10, atol=1e-12 * float(expected.abs().max()))
    torch.testing.assert_close(s, s.mT, rtol=1e-10, atol=1e-12 * float(s.abs().max()))


@pytest.mark.parametrize(("k", "size"), [(3, 4), (7, 2)])  # more and fewer positions than channels
@pytest.mark.parametrize("repeated", [False, True])
def test_derivatives_against_finite_differences_and_the_adjoint_identity(k: int, size: int, repeated: bool) -> None:
    pool = BilinearPool(torch.randn(k, 5, dtype=DOUBLE))
    x = torch.randn(3, 5, size, size, dtype=DOUBLE)
    if repeated:
        x = x[:, :, :, :1].expand(3, 5, size, size).clone()  # equal columns: more zero eigenvalues
    d, h = torch.randn_like(x), 1e-6
    _, dz = torch.func.jvp(pool, (x,), (d,))
    numeric = (pool(x + h * d) - pool(x - h * d)) / (2 * h)
    torch.testing.assert_close(dz, numeric, rtol=1e-6, atol=1e-7 * float(numeric.abs().max()))
    u = torch.randn_like(dz)
    pulled = torch.func.vjp(pool, x)[1](u)[0]
    assert float((u * dz).sum()) == pytest.approx(float((pulled * d).sum()), rel=1e-9)


def test_inner_products_of_features_are_those_of_the_matrices() -> None:
    x = torch.randn(4, 6, 3, 3, dtype=DOUBLE)
    z, s = BilinearPool(None, 6)(x), covariance_root(x.flatten(2))
    assert z.shape == (4, 21)
    torch.testing.assert_close(z @ z.T, torch.einsum("aij,bij->ab", s, s), rtol=1e-12, atol=1e-12)


def test_a_constant_map_has_features_and_derivatives() -> None:
    x = torch.ones(2, 4, 3, 3, dtype=DOUBLE)
    z, dz = torch.func.jvp(BilinearPool(None, 4), (x,), (torch.ones_like(x),))
    assert bool(torch.isfinite(z).all())
    assert bool(torch.isfinite(dz).all())


def test_positions_may_be_permuted_and_the_mean_does_not_matter() -> None:
    x = torch.randn(2, 5, 3, 3, dtype=DOUBLE)
    pool = BilinearPool(None, 5)
    shuffled = x.flatten(2)[:, :, torch.randperm(9)].view_as(x)
    torch.testing.assert_close(pool(shuffled), pool(x), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(pool(x + 3.0), pool(x), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_narrow_types(dtype: torch.dtype) -> None:
    x = torch.randn(2, 8, 3, 3)
    pool = BilinearPool(torch.randn(4, 8))
    z = pool(x.to(dtype))
    assert z.dtype == dtype
    assert relative(z.float(), pool(x)) < 0.02


def test_bilinear_pooling_is_linearised_like_any_layer() -> None:
    net = (
        torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3), torch.nn.Tanh(), BilinearPool(torch.randn(4, 6))).double().eval()
    )
    body = Linearization(net)
    assert body.size == 3 * 6 * 9 + 6  # the reduction is not a weight
    x, v = torch.randn(2, 3, 5, 5, dtype=DOUBLE), torch.randn(body.size, dtype=DOUBLE)
    _, dz = body.jvp(x, v)
    u = torch.randn_like(dz)
    assert float((u * dz).sum()) == pytest.approx(float(body.vjp(x, u) @ v), rel=1e-10)


def test_the_reduction_can_be_a_weight() -> None:
    rows = torch.randn(4, 6)
    parts = [torch.nn.Conv2d(3, 6, 3), torch.nn.Tanh()]
    fixed = torch.nn.Sequential(*parts, BilinearPool(rows)).double().eval()
    free = torch.nn.Sequential(*parts, BilinearPool(rows, linearised=True)).double().eval()
    x = torch.randn(2, 3, 5, 5, dtype=DOUBLE)
    torch.testing.assert_close(free(x), fixed(x), rtol=1e-12, atol=1e-12)
    body = Linearization(free)
    assert body.layout.names[-1] == "2.reduce.weight"
    assert body.size == Linearization(fixed).size + 4 * 6
    assert Tape(body, x).others == ()  # a rule knows it
    v = torch.zeros(body.size, dtype=DOUBLE)
    v[-24:] = torch.randn(24, dtype=DOUBLE)
    z, dz = body.jvp(x, v)

    def moved(t: float) -> torch.Tensor:
        changed = torch.nn.Sequential(*parts, BilinearPool(rows.double() + t * v[-24:].view(4, 6))).double().eval()
        return changed(x)

    h = 1e-5
    torch.testing.assert_close(dz, (moved(h) - moved(-h)) / (2 * h), rtol=1e-7, atol=1e-7)
    u = torch.randn_like(z)
    assert float((u * dz).sum()) == pytest.approx(float(body.vjp(x, u) @ v), rel=1e-10)


def test_principal_rows_are_the_strongest_directions() -> None:
    q = torch.linalg.qr(torch.randn(5, 5, dtype=DOUBLE))[0]
    moment = (q * torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0])) @ q.T
    rows = principal_rows(moment, 2)
    torch.testing.assert_close((rows @ q[:, :2]).abs(), torch.eye(2, dtype=DOUBLE), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(principal_rows(moment, 2), rows)


def test_gradients_of_single_samples_for_weights_without_a_rule() -> None:
    """They are made by vmap, which needs a rule for the root."""
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3), Scale(6), BilinearPool(torch.randn(4, 6))).double().eval()
    body, x = Linearization(net), torch.randn(2, 3, 5, 5, dtype=DOUBLE)
    tape = Tape(body, x)
    assert tape.others == ("1.gamma",)
    u = torch.randn(2, 10, dtype=DOUBLE)
    grads = tape.others_per_sample(x, u)["1.gamma"]
    for i in range(2):
        alone = body.layout.views(body.vjp(x[i : i + 1], u[i : i + 1]))["1.gamma"]
        torch.testing.assert_close(grads[i], alone.flatten(), rtol=1e-9, atol=1e-9)


def test_autocast_does_not_narrow_the_root() -> None:
    x, pool = torch.randn(2, 6, 4, 4), BilinearPool(None, channels=6)
    with torch.autocast("cpu", torch.bfloat16):
        narrow = pool(x)
    assert torch.equal(narrow, pool(x))
