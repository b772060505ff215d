"""The paper's extra epoch: after ReLU has become leaky, let the network get used to it on the data it was trained on.

Ordinary training of all weights (cross-entropy, SGD with momentum 0.9, batch normalisation in training mode) at the
learning rate with which the usual ImageNet schedule ends. The result is a weights file for `load_backbone`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from lqf.backbones.base import Backbone
from lqf.data import Images, Preprocess, normalize
from lqf.errors import LQFError
from lqf.utils.files import atomic_file
from lqf.utils.progress import SILENT, Progress, Stage


@dataclass(frozen=True)
class Adapted:
    """Adapted weights.

    Attributes:
        state: Body and classifier, with the names `load_backbone(backbone, weights=FILE)` reads.
        losses: Mean cross-entropy of each epoch, while it ran.
        errors: Share of wrong answers in each epoch, while it ran.
        backbone: Whose weights they are.
        leaky: The activations they are adapted to.
    """

    state: dict[str, Tensor]
    losses: tuple[float, ...]
    errors: tuple[float, ...]
    backbone: str
    leaky: bool


def adapt(
    backbone: Backbone,
    images: Images,
    *,
    epochs: int = 1,
    learning_rate: float = 1e-3,
    batch_size: int = 64,
    weight_decay: float = 1e-4,
    scheme: str | None = "resized",
    seed: int = 0,
    progress: Progress = SILENT,
) -> Adapted:
    """Train a copy of the backbone on labelled source data; the backbone itself stays as it is.

    Its own classifier stays on top where it has one output per class of `images` (ImageNet's 1000 classes in order of
    their folder names); otherwise a new one starts at zero, so that the first step leaves the body alone.

    Args:
        backbone: What to adapt.
        images: Source data, e.g. ImageNet's training folder.
        epochs: Passes over it.
        learning_rate: Constant.
        batch_size: An incomplete last batch is left out.
        weight_decay: Of SGD, as in the usual ImageNet training.
        scheme: Random views, see `Images.augmented`; None for the fixed centre view.
        seed: Order and views.
        progress: Told of every batch.
    """
    _check(images, epochs, learning_rate, batch_size)
    body = copy.deepcopy(backbone.body)
    device = next(body.parameters()).device
    top = _classifier(backbone, len(images.samples.classes)).to(device)
    net = nn.Sequential(body, top).requires_grad_(True).train()
    sgd = torch.optim.SGD(net.parameters(), lr=learning_rate, momentum=0.9, weight_decay=weight_decay)
    generator = torch.Generator().manual_seed(seed)
    records = []
    with progress.stage("adapting", total=epochs * _batches(len(images), batch_size), unit="batches") as stage:
        for _ in range(epochs):
            batches = _epoch(backbone, images, batch_size, scheme, generator, device)
            records.append(_train(net, sgd, batches, stage))
    state = body.state_dict() | {f"{backbone.head}.{k}": t for k, t in top.state_dict().items()}
    losses, errors = zip(*records, strict=True)
    kept = {name: t.detach().cpu().clone() for name, t in state.items()}
    return Adapted(kept, losses, errors, backbone.name, backbone.spec["leaky"])


def save_adapted(adapted: Adapted, path: str | Path, *, overwrite: bool = False) -> None:
    """Write adapted weights as safetensors, whole or not at all."""
    path = Path(path)
    if path.suffix != ".safetensors":
        raise LQFError(f"adapted weights are written as safetensors; give `{path.with_suffix('.safetensors')}`.")
    if path.exists() and not overwrite:
        raise LQFError(f"`{path}` exists already; choose another name or allow it to be overwritten.")
    about = {"lqf_backbone": adapted.backbone, "lqf_leaky": str(adapted.leaky)}
    with atomic_file(path) as beside:
        save_file(adapted.state, beside, metadata=about)


def _train(
    net: nn.Module, sgd: torch.optim.Optimizer, batches: Iterator[tuple[Tensor, Tensor]], stage: Stage
) -> tuple[float, float]:
    """One epoch; mean loss and share of wrong answers."""
    seen, lost, wrong = 0, 0.0, 0
    for x, y in batches:
        logits = net(x)
        loss = F.cross_entropy(logits, y)
        if not math.isfinite(loss.item()):
            raise LQFError("adapting diverged (the loss is not finite); try a smaller learning rate.")
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        seen, lost = seen + len(y), lost + loss.item() * len(y)
        wrong += int((logits.argmax(1) != y).sum())
        stage.advance(loss=lost / seen, error=wrong / seen)
    return lost / seen, wrong / seen


def _epoch(
    backbone: Backbone,
    images: Images,
    batch_size: int,
    scheme: str | None,
    generator: torch.Generator,
    device: torch.device,
) -> Iterator[tuple[Tensor, Tensor]]:
    fed = Preprocess(mean=backbone.mean, std=backbone.std)
    order = torch.randperm(len(images), generator=generator)
    labels = torch.tensor(images.samples.labels)
    for index in order.split(batch_size)[: _batches(len(images), batch_size)]:
        pixels = images.batch(index) if scheme is None else images.augmented(index, scheme, generator)
        yield normalize(pixels.to(device), fed, torch.float32), labels[index].to(device)


def _batches(n: int, batch_size: int) -> int:
    return max(1, n // batch_size)


def _classifier(backbone: Backbone, classes: int) -> nn.Linear:
    if backbone.classifier is not None and backbone.classifier.out_features == classes:
        return copy.deepcopy(backbone.classifier)
    top = nn.utils.skip_init(nn.Linear, backbone.features, classes)
    nn.init.zeros_(top.weight)
    nn.init.zeros_(top.bias)
    return top


def _check(images: Images, epochs: int, learning_rate: float, batch_size: int) -> None:
    if epochs < 1 or batch_size < 2 or not learning_rate > 0:
        raise LQFError(
            "adapting needs at least one epoch, batches of two or more images and a positive learning rate; "
            f"got epochs={epochs}, batch_size={batch_size}, learning_rate={learning_rate}."
        )
    if len(images) < 2 or (images.samples.labels < 0).any() or len(images.samples.classes) < 2:
        raise LQFError("adapting needs labelled images of two or more classes.")
