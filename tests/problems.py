"""Small complete problems in float64 for the tests of objective, curvature and solvers, and their solutions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cases import images, network
from lqf.curvature import precondition
from lqf.data import Preprocess, load_samples, open_images
from lqf.kernels.ridge import KernelRidge
from lqf.kernels.tangent import exact_kernels
from lqf.linear.inputs import Inputs
from lqf.linear.linearize import Linearization
from lqf.linear.model import LinearModel, with_one
from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge
from lqf.linear.targets import centre, encode, n_outputs
from lqf.solvers import PCG, Dense
from lqf.solvers.solution import Solution


def inputs_of(x: Tensor, labels: Tensor, *, batch_size: int = 3, dtype: torch.dtype = torch.float64) -> Inputs:
    """Tensors as rows of a problem."""
    samples = load_samples(x.numpy(), labels.numpy(), tensors="normalized")
    pictures = open_images(samples, Preprocess())
    return Inputs(pictures, Preprocess(), device=torch.device("cpu"), dtype=dtype, batch_size=batch_size)


def problem(
    name: str = "mlp",
    *,
    n: int = 14,
    n_classes: int = 3,
    heads: int = 1,
    around_w0: bool = True,
    ridge: Ridge | None = None,
    weights: Tensor | None = None,
    batch_size: int = 8,
    dtype: torch.dtype = torch.float64,
    x: Tensor | None = None,
    labels: Tensor | None = None,
    alpha: float = 15.0,
) -> QuadraticProblem:
    """A linearised small network under ``heads`` random heads, random inputs, labels in turn."""
    net = network(name).to(dtype)
    x = images(n) if x is None else x
    labels = torch.arange(n) % n_classes if labels is None else labels
    body = Linearization(net)
    p, c = net(x[:1].to(dtype)).shape[1], n_outputs(n_classes)
    w = torch.randn(heads, c, p + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).to(dtype)
    model = LinearModel(body, w, around_w0, 0.0 if around_w0 else centre(n_classes, alpha))
    return QuadraticProblem(
        model,
        inputs_of(x.to(dtype), labels, batch_size=batch_size, dtype=dtype),
        encode(labels, n_classes, alpha).to(dtype),
        torch.ones(len(x), dtype=dtype) if weights is None else weights.to(dtype),
        torch.arange(len(x)) % heads,
        ridge or Ridge(0.7, 0.7),
    )


def features(p: QuadraticProblem) -> Tensor:
    """(n, p) features of all rows."""
    return p.model.body.value(p.inputs.fetch(torch.arange(len(p.targets))))


def head_kernel(p: QuadraticProblem) -> KernelRidge:
    """The factorised kernel of the head."""
    return KernelRidge.from_features(with_one(features(p)), p.weights)


def full_kernel(p: QuadraticProblem, budget: int = 1 << 30) -> KernelRidge:
    """The factorised kernel of head and body over all pairs of a row and an output."""
    kernels = exact_kernels(p, features(p), torch.arange(len(p.targets)), budget=budget)
    return kernels.factorise(p.ridge)


def solve_dense(p: QuadraticProblem, tol: float = 1e-11) -> Solution:
    """By the factorised kernel."""
    return Dense(tol=tol).solve(p, features(p), full_kernel(p))


def solve_pcg(
    p: QuadraticProblem, tol: float = 1e-10, max_passes: int = 2000, *, plain: bool = False, **options: Any
) -> Solution:
    """By conjugate gradients, preconditioned by K-FAC of all outputs unless ``plain``."""
    preconditioner = None if plain else precondition(p, features(p), draws=None).body
    return PCG(tol=tol, max_passes=max_passes).solve(p, features(p), head_kernel(p), preconditioner, **options)
