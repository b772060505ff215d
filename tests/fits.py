"""Small fits for the tests of the estimator and of its stages, and their solution by dense matrices."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from dense import jacobian
from lqf import LQFClassifier
from lqf.backbones import Backbone, load_backbone
from lqf.data import Preprocess, load_samples, open_images
from lqf.fitting import Context, HeadFit, TrainingProblem, TrainingSet
from lqf.fitting.encoder import Encoder
from lqf.fitting.pose import outlined
from lqf.fitting.reopen import reopen
from lqf.linear.model import with_one
from lqf.linear.problem import QuadraticProblem
from lqf.settings import Settings
from lqf.training.finetune import FineTuning
from lqf.training.network import FineTuned

CPU = torch.device("cpu")
SMALL = Preprocess(size=8)
FIXED = {"weight_decay": 0.1, "body_weight_decay": 0.2}
"""Weight decays of head and body, where a test compares two fits."""
SHORT: dict[str, Any] = {"epochs": 4, "batch_size": 6, "precision": "float32", "learning_rate": 0.05}
"""An ordinary fine-tuning of seconds."""


def sequential(layers: Callable[[], dict[str, nn.Module]], seed: int = 0) -> nn.Module:
    """Layers by their names in float64, with the weights of this seed; other random numbers stay as they are."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(OrderedDict(layers())).double()


def network(seed: int = 0, n_in: int = 12) -> nn.Module:
    """Vectors or small arrays -> 2 outputs, in float64; stages `first` and `second` before the `head`."""
    return sequential(
        lambda: {
            "flat": nn.Flatten(),
            "first": nn.Linear(n_in, 6),
            "tanh": nn.Tanh(),
            "second": nn.Linear(6, 5),
            "relu": nn.ReLU(),
            "head": nn.Linear(5, 2),
        },
        seed,
    )


def convnet(seed: int = 0) -> nn.Module:
    """Pictures of any size -> 2 outputs, in float64; stages `conv`, `bn` and `deep`."""
    return sequential(
        lambda: {
            "conv": nn.Conv2d(3, 4, 3, stride=2),
            "bn": nn.BatchNorm2d(4),
            "relu": nn.ReLU(),
            "deep": nn.Conv2d(4, 5, 2),
            "tanh": nn.Tanh(),
            "pool": nn.AdaptiveAvgPool2d(1),
            "flat": nn.Flatten(),
            "head": nn.Linear(5, 2),
        },
        seed,
    )


def data(n: int = 18, n_classes: int = 3, *, seed: int = 0, signal: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """(n, 3, 4) normal numbers around a mean per class (the same for every seed), and labels in turn."""
    means = np.random.default_rng(99).normal(size=(n_classes, 3, 4))
    y = np.arange(n) % n_classes
    return signal * means[y] + np.random.default_rng(seed).normal(size=(n, 3, 4)), y


def pictures(n: int = 12, n_classes: int = 3, *, side: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(n, side, side, 3) uint8 noise with a brighter channel per class, and labels in turn."""
    y = np.arange(n) % n_classes
    x = np.random.default_rng(seed).integers(0, 160, (n, side, side, 3))
    return (x + 90 * np.eye(3, dtype=int)[y % 3][:, None, None]).astype(np.uint8), y


def photos(folder: Path, per_class: int = 4, *, seed: int = 0, classes: tuple[str, ...] = ("blue", "green")) -> Path:
    """A folder CLASS/*.png of 36 × 36 pixels."""
    for k, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        x, _ = pictures(per_class, 1, side=36, seed=100 * seed + k)
        for i, pixels in enumerate(np.roll(x, 2 - k, axis=3)):
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


def classifier(**params: Any) -> LQFClassifier:
    """A dense fit in float64 of the small network, by default; what forty passes do not solve is kept."""
    if "backbone" not in params:
        params = {"backbone": network(), "tensors": "normalized", **params}
    params = {"solver": "dense", "device": "cpu", "dtype": "float64", "unconverged": "keep", **params}
    return LQFClassifier(**params)


def fine_tuned(n: int = 30, *, leaky: bool = False, **options: Any) -> FineTuned:
    """The small network for pictures after a short ordinary fine-tuning."""
    backbone = load_backbone(convnet(), leaky=leaky)
    return FineTuning(**SHORT | options).fit(backbone, opened(*pictures(n), SMALL), SMALL, device=CPU)


def outline(
    settings: Settings, backbone: Backbone, images: Any, preprocess: Preprocess, mu: float = 1.0
) -> TrainingProblem:
    """The training problem around the point of a head with ridge strength μ, without ridge strengths of its own."""
    data = TrainingSet.of(images, preprocess, Context(settings, CPU))
    return outlined(HeadFit.at(Encoder(data, backbone), "its own", mu))


def reopened(model: LQFClassifier, x: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> TrainingProblem:
    """The training problem that a fitted model solves, on its data."""
    fitted = model.fitted_
    samples = load_samples(x, y, sample_weight=sample_weight, groups=groups, tensors=fitted.setup.tensors)
    return reopen(fitted, open_images(samples, fitted.preprocess), Context(fitted.settings, CPU))


def problem_of(model: LQFClassifier, x: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> QuadraticProblem:
    """The quadratic problem that was solved."""
    return reopened(model, x, y, sample_weight, groups).quadratic


def brute_outputs(problem: QuadraticProblem, delta: Tensor, x: Tensor) -> Tensor:
    """f(x) = c + b·W̃z̃ + Vz̃ + W J_z δ_body with the mean head W, from the dense Jacobian."""
    model = problem.model
    v, body = model.split(delta)
    w = model.heads.mean(0)
    z, jac = model.body.value(x), jacobian(model.body, x)
    moved = torch.einsum("cp,bpd,d->bc", w[:, :-1], jac, body)
    return model.constant + with_one(z) @ (v + w if model.around_w0 else v).T + moved


def opened(x: np.ndarray, y: np.ndarray, preprocess: Preprocess) -> Any:
    """Images of arrays: pictures, or normalised tensors."""
    return open_images(load_samples(x, y, tensors=kind(x)), preprocess)


def kind(x: Any) -> str:
    """What arrays of `data` and of `pictures` are; a folder has pictures."""
    return "normalized" if isinstance(x, np.ndarray) and x.dtype.kind == "f" else "pictures"
