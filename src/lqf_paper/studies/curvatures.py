"""The spectra that the paper compares, as works: NLFT before and after, LQF without and with its preconditioner."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from lqf.curvature import precondition
from lqf.curvature.damping import DampedCurvature, Damping, DampingKind
from lqf.curvature.preconditioner import spread
from lqf.data import Images
from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge
from lqf.runtime.precision import matmul_precision
from lqf.settings import Settings
from lqf.training.finetune import FineTuning, seeded
from lqf.training.network import Network, placed
from lqf_paper.methods.catalogue import fit_method
from lqf_paper.methods.linear import Linear
from lqf_paper.runner.registry import defaults, work
from lqf_paper.runner.workspace import Task
from lqf_paper.studies.affine_norm import with_affine_norms
from lqf_paper.studies.problem import LQF, lqf_problem
from lqf_paper.studies.spectrum import (
    Loss,
    Product,
    Spectrum,
    largest,
    loss_curvature,
    preconditioned_curvature,
    row_curvature,
    trace,
)

TOL = 1e-2
"""Relative accuracy of the eigenvalues: far below what a histogram shows. Products may be TF32's, which are ten times
as accurate."""
RHO = 1.0
KIND: DampingKind = "trace"
"""How P is damped here: a number added to all eigenvalues, which those of P⁻¹H show most plainly."""
PROBES = 8
"""Random vectors that a mean eigenvalue is measured with, to one or two per cent with a real network."""


@work("spectrum of nlft", version=2, tol=TOL, probes=PROBES)
@defaults(FineTuning, without=("seed", "precision"))
def spectrum_of_nlft(
    task: Task, *, k: int, images: int, settings: dict[str, Any] | None, seed: int = 0
) -> dict[str, Any]:
    """Of the cross entropy of some training images, at the weights where fine-tuning begins or (``settings``) ends."""
    workspace = task.workspace
    if settings is None:
        with seeded(seed, workspace.device):
            network = Network(workspace.network(leaky=False), workspace.preprocess, len(task.classes)).to(
                workspace.device
            )
    else:
        network = fit_method("nlft", task, seed=seed, **settings).network  # type: ignore[attr-defined]
    product, like = cross_entropy_curvature(network.eval(), _some(task, images).train)
    rank = images * (len(task.classes) - 1)  # of its Gauss-Newton part
    with matmul_precision(fast=True):
        mean = trace(product, like, PROBES, seed) / rank
        found = largest(product, like, k, tol=TOL, seed=seed, progress=workspace.progress)
    return replace(found, mean=mean).to_dict()


@work("spectra of lqf", version=2, tol=TOL, probes=PROBES, damping=RHO, batch_size=Linear.batch_size)
@defaults(Settings, **LQF)
def spectra_of_lqf(task: Task, *, k: int, images: int, settings: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """Of H/N over head and body, and of P^(−1/2) H P^(−1/2) with P damped as `KIND` says."""
    workspace, part = task.workspace, _some(task, images)
    net = copy.deepcopy(workspace.network(leaky=True))
    given = {"seed": seed, **settings}
    training = lqf_problem(
        net, part.train, workspace.preprocess, workspace.device, progress=workspace.progress, **given
    )
    problem, s = training.measured, training.context.settings
    how: dict[str, Any] = {"tol": TOL, "seed": seed, "progress": workspace.progress}
    with matmul_precision(fast=True):
        made = precondition(
            training.quadratic, training.features, draws=s.draws, seed=s.seed, progress=workspace.progress
        )
        damped = Damping(RHO, KIND, Linear.batch_size).of(made, problem)
        return {
            "lqf": _plain(problem, k, how).to_dict(),
            "kfac": _preconditioned(problem, damped, k, how).to_dict(),
        }


def _plain(problem: QuadraticProblem, k: int, how: dict[str, Any]) -> Spectrum:
    """Of H/N with one ridge strength: by its rows, whose vectors are far shorter."""
    product, like, decay = row_curvature(problem)
    mean = trace(product, like, PROBES, how["seed"]) / len(like)
    return replace(largest(product, like, k, **how), mean=mean).shifted(decay, problem.size)


def _preconditioned(problem: QuadraticProblem, damped: DampedCurvature, k: int, how: dict[str, Any]) -> Spectrum:
    """Of P^(−1/2) H P^(−1/2); the mean is that of the directions in which outputs move, without the ridge."""
    zero = problem.zero()
    found = largest(preconditioned_curvature(problem, damped), zero, k, **how)
    data = preconditioned_curvature(problem.with_ridge(Ridge(0.0, 0.0)), damped)
    return replace(found, mean=trace(data, zero, PROBES, how["seed"]) / problem.targets.numel())


def cross_entropy_curvature(network: Network, images: Images) -> tuple[Product, Tensor]:
    """The Hessian of the mean cross entropy in all weights of a network, whose batch normalisation is in eval mode."""
    device, plain = network.mean.device, with_affine_norms(network)
    labels = torch.tensor(images.samples.labels, device=device)
    pixels = placed(images.batch(torch.arange(len(images))), device)
    size = 64 if device.type == "cuda" else 8

    def batches() -> Iterator[Loss]:
        for x, y in zip(pixels.split(size), labels.split(size), strict=True):
            yield lambda w, x=x, y=y: F.cross_entropy(functional_call(plain, w, (x,)), y, reduction="sum")  # type: ignore[misc]

    return loss_curvature(dict(plain.named_parameters()), batches, len(images))


def _some(task: Task, images: int) -> Task:
    """At most so many training images, evenly spread over the classes."""
    return task.some(np.asarray(spread(len(task.train), images)))
