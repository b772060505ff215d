"""The paper's extra epoch: after ReLU has become leaky, let the network get used to it on the data it was trained on.

Ordinary training of all weights (cross-entropy, SGD with momentum 0.9, batch normalisation in training mode) at the
learning rate with which the usual ImageNet schedule ends. The result is a weights file for `load_backbone`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from itertools import starmap
from pathlib import Path
from typing import Literal

from safetensors.torch import save_file
from torch import Tensor, nn

from lqf.backbones import Backbone
from lqf.data import Images
from lqf.data.pixels import PixelImages
from lqf.errors import LQFError
from lqf.training.finetune import FineTuning
from lqf.training.network import Network
from lqf.utils import naming
from lqf.utils.files import atomic_file
from lqf.utils.progress import SILENT, Progress


@dataclass(frozen=True)
class Adapted:
    """Adapted weights.

    Attributes:
        state: body and classifier, with the names `load_backbone(backbone, weights=FILE)` reads.
        losses: mean cross-entropy of each epoch, while it ran.
        errors: share of wrong answers in each epoch, while it ran.
        backbone: whose weights they are.
        leaky: the activations they are adapted to.
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
    scheme: Literal["crop", "resized", "none"] = "resized",
    seed: int = 0,
    progress: Progress = SILENT,
) -> Adapted:
    """Train a copy of the backbone on labelled source data; the backbone itself stays as it is.

    Its own classifier stays on top where it has one output per class of `images` (ImageNet's 1000 classes in order of
    their folder names); otherwise a new one starts at zero, so that the first step leaves the body alone.

    Args:
        backbone: what to adapt.
        images: source data, e.g. ImageNet's training folder.
        epochs: passes over it.
        learning_rate: constant.
        batch_size: all batches have this size; the last images, where they do not fill one, are left out.
        weight_decay: of SGD, as in the usual ImageNet training.
        scheme: random views (`lqf.data.crops`), or the fixed centre view.
        seed: order and views.
        progress: called after every batch.
    """
    _check(images, epochs, learning_rate, batch_size)
    preprocess = backbone.preprocess()
    if isinstance(images, PixelImages):  # as they were opened, but for the numbers of the network
        preprocess = replace(images.preprocess, mean=backbone.mean, std=backbone.std)
    how = FineTuning(
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        epochs=epochs,
        batch_size=batch_size,
        schedule="constant",
        augment=scheme,
        precision="float32",
        seed=seed,
    )
    start = Network(backbone, preprocess, len(images.samples.classes))
    start.head = _classifier(backbone, len(images.samples.classes))
    device = next(backbone.body.parameters()).device
    tuned = how.fit(backbone, images, preprocess, device=device, start=start, progress=progress)
    if tuned.diverged:
        raise LQFError("adapting diverged (the loss is not finite); try a smaller learning rate")
    body, top = tuned.network.body, tuned.network.head
    state = body.state_dict() | {f"{backbone.head}.{k}": t for k, t in top.state_dict().items()}
    kept = {name: t.detach().cpu().contiguous().clone() for name, t in state.items()}
    return Adapted(kept, tuned.losses, tuned.errors, backbone.name, backbone.spec["leaky"])


def save_adapted(adapted: Adapted, path: str | Path, *, overwrite: bool = False) -> None:
    """Write adapted weights as safetensors, whole or not at all."""
    path = Path(path)
    if path.suffix != ".safetensors":
        raise LQFError(f"adapted weights are written as safetensors; give `{path.with_suffix('.safetensors')}`")
    if path.exists() and not overwrite:
        raise LQFError(f"`{path}` exists already; choose another name or allow it to be overwritten")
    about = {"lqf_backbone": adapted.backbone, "lqf_leaky": str(adapted.leaky)}
    with atomic_file(path) as temporary:
        save_file(adapted.state, temporary, metadata=about)


def _classifier(backbone: Backbone, classes: int) -> nn.Linear:
    if backbone.classifier is not None and backbone.classifier.out_features == classes:
        return copy.deepcopy(backbone.classifier).requires_grad_(True)
    top = nn.utils.skip_init(nn.Linear, backbone.features, classes)
    nn.init.zeros_(top.weight)
    nn.init.zeros_(top.bias)
    return top


def _check(images: Images, epochs: int, learning_rate: float, batch_size: int) -> None:
    if epochs < 1 or batch_size < 2 or not learning_rate > 0:
        given = {"epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate}
        raise LQFError(
            "adapting needs at least one epoch, batches of two or more images and a positive learning rate; "
            f"got {', '.join(starmap(naming.given, given.items()))}"
        )
    if len(images) < 2 or (images.samples.labels < 0).any() or len(images.samples.classes) < 2:
        raise LQFError("adapting needs labelled images of two or more classes")
