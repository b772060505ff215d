"""Predicted against actual change of test outputs when a training image is left out, by four methods on one model.

    python benchmarks/influence.py DATA [--classes 5] [--per-class 10] [--test 10] [--size 96] [--device auto]

DATA is a folder with train/ and test/. The model is the default one (cross-fitted point, two ridge strengths), and all
methods have the same linear-quadratic problem. *Actual* is that problem solved again without each training image (the
kernel of the kept rows, factorised anew), for every image, and `--passes K` times by conjugate gradients over the
images themselves. Compared are

- lqf, dense: the removal formula with exact leverages;
- K-FAC in place of H, in the same formula, and without leverages (first order);
- kronfluence's EK-FAC, first order, its damping set to the model's own ridge strengths; skipped, and said so, where
  kronfluence is not installed (pip install kronfluence). It follows Linear and Conv2d, averages the inputs of grouped
  convolutions over the groups, and leaves normalisation layers out.

Seconds and memory are of everything after the images are open, for all outputs of all (train × test) pairs.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from common.hardware import hardware, write
from common.options import Options, settings_of
from common.peak import Measured, measured
from common.subset import subset
from torch import Tensor, nn

from lqf import LQFClassifier
from lqf.analysis import Analysis, Queries
from lqf.analysis.by_iteration import ByIteration
from lqf.analysis.by_kernel import ByKernel
from lqf.analysis.by_kfac import ByKFAC
from lqf.runtime.device import resolve_device
from lqf.runtime.precision import matmul_precision


def actual_changes(exact: ByKernel, queries: Queries) -> Tensor:
    """(N, Q, C) by refits without each sample."""
    n, whole = len(exact.problem.data), exact.outputs(queries)
    every = torch.arange(n)
    return torch.stack([exact.refitted(queries, every[every != i]) - whole for i in range(n)])


def agreement(predicted: Tensor, actual: Tensor) -> dict[str, float]:
    """Correlation over all (train, test, output), the median of it per test output, and the relative error."""
    a, b = predicted.flatten(1).T, actual.flatten(1).T  # (QC, N)
    each = [float(np.corrcoef(x, y)[0, 1]) for x, y in zip(a, b, strict=True)]
    return {
        "correlation": float(np.corrcoef(a.flatten(), b.flatten())[0, 1]),
        "median_correlation_per_output": float(np.median(each)),
        "relative_error": float((a - b).norm() / b.norm()),
    }


class Net(nn.Module):
    """The network whose gradients are those of the linear model: V z̃ + W z(w), V and w trainable, W fixed.

    Every training row has its fold's head W; the last of the heads (K+1, C, p) is their mean, for test images.
    """

    def __init__(self, body: nn.Module, heads: Tensor):
        super().__init__()
        self.body, self.head = body, nn.Linear(heads.shape[2], heads.shape[1])
        self.register_buffer("heads", heads)

    def forward(self, x: Tensor, fold: Tensor) -> Tensor:
        z = self.body(x)
        return self.head(z.detach()) + (self.heads[fold] @ z[:, :, None])[..., 0]


def by_kronfluence(exact: ByKernel, queries: Queries) -> tuple[Callable[[], None], Callable[[str], Tensor]]:
    """Fits its factors; (N, Q, C) first-order effects. Residuals are the loss's gradient, ±1 draws its curvature."""
    from kronfluence.analyzer import Analyzer, prepare_model
    from kronfluence.arguments import FactorArguments, ScoreArguments
    from kronfluence.task import Task

    problem, c = exact.problem.quadratic, exact.problem.model.n_outputs
    e = exact.dual.e.reshape(-1, c).float().cpu()

    class Linear(Task):
        def compute_train_loss(self, batch: Any, model: nn.Module, sample: bool = False) -> Tensor:
            x, residual, fold = batch
            f = model(x, fold)
            u = torch.randint(0, 2, f.shape, device=f.device).to(f) * 2 - 1 if sample else -residual
            return (u * f).sum()

        def compute_measurement(self, batch: Any, model: nn.Module) -> Tensor:
            x, k = batch
            return model(x, torch.full_like(k, len(heads) - 1)).gather(1, k[:, None]).sum()

    n, views, inputs = len(exact.problem.data), exact.problem.data.n_views, exact.problem.inputs_of(queries.images)
    x = problem.inputs.fetch(torch.arange(n * views)).float().cpu()
    q = inputs.fetch(torch.arange(len(inputs))).float().cpu()
    train = torch.utils.data.TensorDataset(x, e, problem.fold.cpu())
    asked = torch.utils.data.TensorDataset(q.repeat_interleave(c, 0), torch.arange(c).repeat(len(q)))
    heads = problem.model.heads[..., :-1].float().cpu()
    heads = torch.cat([heads, heads.mean(0, keepdim=True)])
    net = Net(copy.deepcopy(problem.model.body.module).float().cpu(), heads)
    task = Linear()
    folder = tempfile.mkdtemp()
    cpu = exact.problem.context.device.type == "cpu"
    analyzer = Analyzer("lqf", prepare_model(net, task), task, output_dir=folder, cpu=cpu, disable_tqdm=True)

    def factors() -> None:
        arguments = FactorArguments(strategy="ekfac")
        analyzer.fit_all_factors("f", train, per_device_batch_size=8, factor_args=arguments)

    def scores(part: str) -> Tensor:
        """It has one damping: head and body are asked for one after the other, and the modules of one are taken."""
        mu = problem.ridge.head if part == "head" else problem.ridge.body
        analyzer.compute_pairwise_scores(
            part,
            "f",
            asked,
            train,
            per_device_query_batch_size=8,
            per_device_train_batch_size=8,
            score_args=ScoreArguments(damping_factor=mu / n, compute_per_module_scores=True),
        )
        found = analyzer.load_pairwise_scores(part)
        total = sum(v.double() for k, v in found.items() if (k == "head") == (part == "head"))  # of all rows
        return (total / n).T.reshape(n, views, len(queries), views, c).mean((1, 3))  # the views share a weight of 1

    return factors, scores


def line(name: str, found: dict[str, float], setup: Measured, asked: Measured, pairs: int) -> dict[str, Any]:
    total = setup.seconds + asked.seconds
    print(
        f"{name:28s} correlation {found['correlation']:8.5f}  relative error {found['relative_error']:9.2e}  "
        f"{1e3 * total / pairs:8.2f} ms per pair, {1e3 * asked.seconds / pairs:8.2f} without set-up",
        flush=True,
    )
    return {
        **found,
        "setup_seconds": setup.seconds,
        "query_seconds": asked.seconds,
        "seconds_per_pair": total / pairs,
        "query_seconds_per_pair": asked.seconds / pairs,
        "bytes_beyond": max(setup.peak, asked.peak) - setup.before,
    }


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --per-class 4 --test 3 --size 32 --linearize stage7 --passes 2")
    out.add_data()
    out.add_settings("backbone", "weights", "linearize", "device", size=96, pooling="avg")
    out.add_argument("--classes", type=int, default=5)
    out.add_argument("--per-class", type=int, default=10)
    out.add_argument("--test", type=int, default=10, help="test images")
    out.add_argument("--passes", type=int, default=0, help="refits by passes over the images")
    out.add_argument("--name", default="influence")
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    device, generator = resolve_device(args.device), np.random.default_rng(0)
    train, (test, _) = subset(args.data, args.classes, args.per_class, generator)
    test = [test[i] for i in generator.permutation(len(test))[: args.test]]
    model = LQFClassifier(solver="dense", **settings_of(args)).fit(*train)
    analysis = model.analyse(*train)
    fitted, problem, units = analysis.model, analysis.problem, analysis.units
    pairs = len(units) * len(test)
    report: dict[str, Any] = {}

    def fresh() -> Queries:
        return analysis.queries(test)

    queries = fresh()
    with measured(device) as setup:
        exact = ByKernel.of(fitted, problem)
    with measured(device) as asked:
        predicted = exact.effects(queries, units, None).value
    actual = actual_changes(exact, queries)
    report["lqf, dense"] = line("lqf, dense", agreement(predicted, actual), setup, asked, pairs)
    report["lqf, dense"]["size_of_actual_changes"] = float(actual.abs().mean())

    other = fresh()
    with measured(device) as setup:
        factored = ByKFAC.of(fitted, problem)
    with measured(device) as asked:
        found = factored.effects(other, units, None).value
    report["K-FAC"] = line("K-FAC", agreement(found, actual), setup, asked, pairs)
    p = factored._response(other)[0]
    n, c = len(units), problem.model.n_outputs
    first = -(p.view(len(p), n, -1) * factored._e.view(n, -1)).sum(-1).T.reshape(n, -1, c).cpu()
    report["K-FAC, first order"] = line("K-FAC, first order", agreement(first, actual), setup, asked, pairs)

    if find_spec("kronfluence") is None:
        print("kronfluence is not installed (pip install kronfluence): not compared")
        report["kronfluence EK-FAC"] = None
    else:
        factors, scores = by_kronfluence(exact, queries)
        with measured(device) as setup:
            factors()
        with measured(device) as asked:
            found = scores("body")
        found = found + scores("head")  # not timed: with one ridge strength there would be one call
        report["kronfluence EK-FAC"] = line("kronfluence EK-FAC", agreement(found, actual), setup, asked, pairs)

    if args.passes:
        report["refits by passes"] = by_passes(analysis, queries, actual, args.passes)
    result = {
        "what": f"{args.data.name}, {args.backbone}, {args.size} px, {args.pooling} pooling",
        "problem": f"{len(problem.data.classes)} classes × {args.per_class} training images, {len(test)} test images",
        "pairs": pairs,
        "outputs": c,
        "weight_decay": {k: model.report_[k] for k in ("weight_decay", "body_weight_decay")},
        "methods": report,
        "hardware": hardware(device),
    }
    print(write(args.name, result, args.out))


def by_passes(analysis: Analysis, queries: Queries, actual: Tensor, refits: int) -> dict[str, Any]:
    """The same changes by conjugate gradients over the images, without any kernel."""
    with matmul_precision(fast=False):
        solver = ByIteration.of(analysis.model, analysis.problem)
        chosen = torch.linspace(0, len(actual) - 1, refits).long()
        whole = solver.outputs(queries)
        found = torch.stack([
            solver._outputs(queries, solver.refit.without(i[None], solver._body)) - whole for i in chosen
        ])  # fmt: skip
    out = {"samples": chosen.tolist(), **agreement(found, actual[chosen])}
    print("refits by passes over the images:", out)
    return out


if __name__ == "__main__":
    main()
