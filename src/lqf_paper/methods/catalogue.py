"""Every method of the paper under its name, and the work `fit`: one method, one setting, its test error."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from lqf.backbones import Backbone
from lqf.settings import Settings
from lqf.training.finetune import FineTuning
from lqf_paper.methods.bilinear import bilinear, trained_reduction
from lqf_paper.methods.exact import Ours, RidgeHead
from lqf_paper.methods.linear import Linear
from lqf_paper.methods.models import Model, Predicted
from lqf_paper.runner.divergence import judged
from lqf_paper.runner.registry import defaults, defaults_of, work
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

Recipe = Callable[..., Model]


@dataclass(frozen=True)
class Method:
    """A method.

    Attributes:
        label: for tables.
        fit: (task, pool_channels=…, seed=…, **settings) -> the model.
        shares: (leaky, bilinear, head): methods alike in these share what depends on nothing else; None: nothing.
    """

    label: str
    fit: Recipe
    shares: tuple[Any, ...] | None = None


def _group(method: Method, task: Task, seed: int, pool_channels: int) -> tuple[Any, ...] | None:
    """The cells that share features, K-FAC and channels; None: nothing is shared."""
    return None if method.shares is None else (task.fingerprint, seed, pool_channels, *method.shares)


def fit_method(method: str, task: Task, *, seed: int = 0, pool_channels: int = 256, **settings: Any) -> Model:
    """Train a method on a task's training images. What is kept for other methods' cells is let go."""
    task.workspace.cache.under(_group(METHODS[method], task, seed, pool_channels))
    return METHODS[method].fit(task, seed=seed, pool_channels=pool_channels, **settings)


@work("fit", version=2, settings_of=lambda params: METHODS[params["method"]].fit)
def fit(
    task: Task,
    *,
    method: str,
    settings: dict[str, Any],
    seed: int = 0,
    shots: int | None = None,
    pool_channels: int = 256,
) -> dict[str, Any]:
    """Test error of one method with one setting, trained on all images or on a few of every class.

    Methods that predict from the central view also have the error of scores averaged over it and its mirror image. All
    predictions are kept.
    """
    part = task.shots(shots, seed)
    model = fit_method(method, part, seed=seed, pool_channels=pool_channels, **settings)
    predicted = Predicted.of(model, task.test, mirrored=method not in OURS).result(task.test)
    chosen = getattr(model, "report", {})
    result = {
        **predicted,
        "diverged": predicted["test_error"] is None,
        "losses": list(model.losses[:1] + model.losses[-1:]),
        "fit_seconds": model.seconds,
        "n": len(part.train),
        "chosen": {k: chosen[k] for k in CHOSEN if k in chosen},
    }
    return judged(result, defaults_of(METHODS[method].fit).complete(settings), len(task.classes))


CHOSEN = (
    *("solver", "pooling", "views", "weight_decay", "body_weight_decay", "relative_residual", "loo_error", "plan"),
    *("damping", "preconditioned", "learning_rate"),
)
"""What is kept of the report of a fit that chooses for itself, and of how K-FAC was damped."""


def params(method: str, scale: Scale, n: int, settings: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Parameters of a cell of the work `fit`.

    Args:
        method: its name.
        scale: gives epochs and channels.
        n: number of training images, for the number of epochs.
        settings: one entry of a grid.
        more: seed, shots.
    """
    if method not in EXACT:
        settings = {"epochs": scale.epochs_for(n, settings.get("batch_size", 28)), **settings}
    channels = {"pool_channels": scale.pool_channels} if method in BILINEAR else {}
    return {"method": method, "settings": settings, "seed": 0, **channels, **more}


# --- the recipes ----------------------------------------------------------------------------------------------------


def _nlft(**fixed: Any) -> Recipe:
    def recipe(task: Task, *, seed: int, pool_channels: int, **settings: Any) -> Model:
        workspace = task.workspace
        how = FineTuning(seed=seed, precision=workspace.precision, **fixed | settings)
        return how.fit(
            workspace.network(leaky=False),
            task.train,
            workspace.preprocess,
            device=workspace.device,
            progress=workspace.progress,
        )

    return defaults(FineTuning, without=("seed", "precision"), pooled=False, **fixed)(recipe)


@defaults(FineTuning, without=("seed", "precision"), pooled=True)
def _bilinear_nlft(task: Task, *, seed: int, pool_channels: int, **settings: Any) -> Model:
    """MPN-COV: all weights, the channel reduction among them, through the root, which is never narrow."""
    workspace, net = task.workspace, _pooled(task, False, pool_channels)
    net = replace(net, body=trained_reduction(copy.deepcopy(net.body)))
    how = FineTuning(seed=seed, precision=workspace.precision, **settings)
    return how.fit(net, task.train, workspace.preprocess, device=workspace.device, progress=workspace.progress)


def _linear(label: str, *, leaky: bool, pooled: bool = False, **fixed: Any) -> Method:
    def recipe(task: Task, *, seed: int, pool_channels: int, **settings: Any) -> Model:
        workspace = task.workspace
        net = _pooled(task, leaky, pool_channels) if pooled else workspace.network(leaky=leaky)
        given: dict[str, Any] = {"device": workspace.device, "cache": workspace.cache, "progress": workspace.progress}
        return Linear(**fixed | settings, seed=seed).fit(net, task.train, workspace.preprocess, **given)

    configured = defaults(Linear, leaky=leaky, pooled=pooled, **fixed)(recipe)
    return Method(label, configured, (leaky, pooled, fixed.get("head", Linear.head)))


@defaults(weight_decay="auto", alpha=15.0)
def _ridge_head(task: Task, *, seed: int, pool_channels: int, weight_decay: float | str = "auto") -> Model:
    workspace, decay = task.workspace, None if weight_decay == "auto" else float(weight_decay)
    net = workspace.network(leaky=True)
    return RidgeHead.fit(
        net, task.train, workspace.preprocess, device=workspace.device, weight_decay=decay, progress=workspace.progress
    )


def _ours(leaky: bool | None = None, **fixed: Any) -> Recipe:
    """With leaky activations unless told otherwise; told, a cell says so."""

    def recipe(task: Task, *, seed: int, pool_channels: int, **settings: Any) -> Model:
        workspace, net = task.workspace, copy.deepcopy(task.workspace.network(leaky=leaky is not False))
        given = {"seed": seed, "pool_channels": pool_channels, "loo": "none", **fixed, **settings}
        return Ours.fit(
            net, task.train, workspace.preprocess, device=workspace.device, progress=workspace.progress, **given
        )

    told = {} if leaky is None else {"leaky": leaky}
    return defaults(Settings, without=("seed", "pool_channels"), **{"loo": "none", **fixed, **told})(recipe)


def _pooled(task: Task, leaky: bool, channels: int) -> Backbone:
    """The network under bilinear pooling; it is shared: copy what you change."""
    workspace = task.workspace

    def make() -> Backbone:
        return bilinear(workspace.network(leaky=leaky), task.train, workspace.preprocess, workspace.device, channels)

    return workspace.cache.get(("bilinear", leaky, channels), make)


PAPERS: dict[str, Any] = {"pooling": "avg", "views": "none", "head": "random", "form": "w0", "weight_decay": 1e-4}
"""What LQF (paper) minimises, but for its random crops: what is left between the two is the work of mini-batches."""
SOLVED: dict[str, Any] = {"pooling": "avg", "views": "none", "loo": "folds"}
"""The same exact solver and the same rule for the strengths, whatever the activation; judged by refits."""
_CE: dict[str, Any] = {"loss": "cross_entropy"}
_FC: dict[str, Any] = {"scope": "fc", "head": "zero"}

METHODS: dict[str, Method] = {
    "nlft": Method("NLFT", _nlft()),
    "nlft-mse": Method("NLFT, squared error", _nlft(loss="mse")),
    "b-nlft": Method("MPN-COV", _bilinear_nlft, (False, True, "none")),
    "gaf": _linear("GaF", leaky=False, **_CE),
    "gaf-probe": _linear("GaF around a probe head", leaky=False, head="probe", alpha=5.0, **_CE),
    "fc": _linear("FC", leaky=False, **_CE, **_FC),
    "fc-decay": _linear("FC, larger λ", leaky=False, **_CE, **_FC),
    "lqf-fc": Method("LQF FC", _ridge_head),
    "lqf-fc-paper": Method("LQF FC, the paper's λ", _ridge_head),
    "lqf-fc-sgd": _linear("LQF FC, K-FAC SGD", leaky=True, kfac=True, **_FC),
    "lqf": _linear("LQF (paper)", leaky=True, kfac=True),
    "b-lqf": _linear("B-LQF (paper)", leaky=True, kfac=True, pooled=True),
    "lqf-ours": Method("LQF (ours)", _ours()),
    "lqf-ours-avg": Method("LQF (ours, average pooling)", _ours(pooling="avg", views="none")),
    "lqf-ours-crops": Method("LQF (ours, resized crops)", _ours(views="resized")),
    "lqf-solved": Method("LQF (the paper's, solved)", _ours(**PAPERS)),
    "lqf-leaky": Method("LQF, solved, Leaky-ReLU", _ours(leaky=True, **SOLVED)),
    "lqf-relu": Method("LQF, solved, ReLU", _ours(leaky=False, **SOLVED)),
    "b-lqf-ours": Method("B-LQF (ours)", _ours(pooling="bilinear")),
    "gaf-adam": _linear("GaF, Adam", leaky=False, optimiser="adam", beta1=0.5, **_CE),
    "lqf-adam": _linear("LQF, Adam", leaky=True, optimiser="adam"),
    "lqf-fc-adam": _linear("LQF FC, Adam", leaky=True, optimiser="adam", **_FC),
    "lqf-trace": _linear("LQF, damped by the trace", leaky=True, kfac=True, damping_kind="trace"),
    "lqf-decay": _linear("LQF, larger λ", leaky=True, kfac=True),
    "lqf-small-head": _linear("LQF, head of std 0.01", leaky=True, kfac=True, head_std=0.01),
    "lqf-bf16": _linear("LQF, bfloat16 throughout", leaky=True, kfac=True, precision="bf16"),
    "lqf-central": _linear("LQF, central crops", leaky=True, kfac=True, augment="none"),
    "lqf-no-mse": _linear("LQF without MSE", leaky=True, kfac=True, **_CE),
    "lqf-no-kfac": _linear("LQF without K-FAC", leaky=True),
    "lqf-no-leaky": _linear("LQF without Leaky-ReLU", leaky=False, kfac=True),
    "lqf-probe": _linear("LQF around the probe head", leaky=True, kfac=True, head="probe"),
}
OURS = ("lqf-ours", "lqf-ours-avg", "lqf-ours-crops", "lqf-solved", "lqf-leaky", "lqf-relu", "b-lqf-ours")
"""LQF as the library fits it; it predicts from the views that it was fitted to."""
EXACT = ("lqf-fc", "lqf-fc-paper", *OURS)
"""Methods without epochs."""
BILINEAR = ("b-nlft", "b-lqf", "lqf-ours", "lqf-ours-crops", "b-lqf-ours")
"""Methods whose result depends on the number of channels of bilinear pooling."""
