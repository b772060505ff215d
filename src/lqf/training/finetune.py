"""Ordinary fine-tuning of all weights of a network under a linear head, by mini-batches.

    min_w (1/N) Σ s_i ℓ(f(x_i; w), y_i) + (λ/2) ‖w‖²       by SGD with momentum,

with ℓ the cross entropy, or ½‖f − α·onehot(y)‖². From the closed-form head it makes fine-tuned models, and comes before
LQF where the settings ask for it (`lqf.fitting.finetuned`). It adapts a backbone to leaky activations
(`lqf.training.adapt`), and it is the baseline that the paper calls NLFT: momentum 0.9 and batches of 28, learning rates
0.01 and 0.001, λ 1e-4 and 1e-5, random crops, random resized crops or none.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from lqf.backbones import Backbone
from lqf.data import Images, Preprocess
from lqf.errors import LQFError
from lqf.training.network import FineTuned, Network, placed, plain_float32
from lqf.training.random_views import RandomViews
from lqf.training.step import sgd_step
from lqf.training.stream import per_epoch, steps, stream
from lqf.utils.progress import SILENT, Progress
from lqf.utils.schedule import Schedule, rate

Loss = Literal["cross_entropy", "mse"]
Augment = Literal["crop", "resized", "crops", "none"]
Precision = Literal["bf16", "float32"]
Mode = Literal["train", "eval"]
SHOWN = 50
"""Steps between two losses that are shown: to look at one, a GPU has to be waited for."""
STOP_EPOCHS = 5
"""So many epochs in a row must be (nearly) without error before a run ends early, as in the paper."""


def check_choices(how: object, choices: dict[str, Any]) -> None:
    """Refuse a value of a field that is none of its Literal's."""
    for name, allowed in choices.items():
        if getattr(how, name) not in get_args(allowed):
            raise LQFError(f"{name} is {getattr(how, name)!r}; choose {', '.join(get_args(allowed))}")


@dataclass(frozen=True)
class FineTuning:
    """How to fine-tune.

    Attributes:
        learning_rate: η at the beginning.
        weight_decay: λ.
        epochs: passes over the data.
        batch_size: images per step; all batches have this size (the next epoch follows on in the same batch).
        loss: "cross_entropy" or "mse"; with one output, whose sign says which of two classes, "mse" alone.
        alpha: scale of the targets of "mse".
        momentum, nesterov: of SGD.
        schedule: "cosine" to zero, "steps": η/10 from two thirds on, or "constant".
        augment: random views, or "none": the central one.
        bn: whether batch normalisation uses the batch's statistics ("train") or keeps its own ("eval").
        precision: of forward and backward pass; weights and optimiser are float32. "float32" uses no TF32.
        compile: run the network through `torch.compile`, instead of recording whole steps on a GPU.
        stop_below: end early, once the training error has been at most this in `STOP_EPOCHS` epochs in a row; None:
            never.
        seed: of head, order, views and dropout. On a GPU sums may still differ in their last digits.
    """

    learning_rate: float = 0.01
    weight_decay: float = 1e-4
    epochs: int = 30
    batch_size: int = 28
    loss: Loss = "cross_entropy"
    alpha: float = 15.0
    momentum: float = 0.9
    nesterov: bool = False
    schedule: Schedule = "cosine"
    augment: Augment = "crop"
    bn: Mode = "train"
    precision: Precision = "bf16"
    compile: bool = False
    stop_below: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        choices = {"loss": Loss, "schedule": Schedule, "augment": Augment, "bn": Mode, "precision": Precision}
        check_choices(self, choices)

    def fit(
        self,
        backbone: Backbone,
        images: Images,
        preprocess: Preprocess,
        *,
        device: torch.device,
        start: Network | None = None,
        progress: Progress = SILENT,
        tick: Callable[[], None] = lambda: None,
    ) -> FineTuned:
        """Fine-tune a copy of the backbone (load it with ``leaky=False`` for the original ReLU network).

        Or a copy of ``start``, a network that was tuned before, head and all. ``tick`` is called before every step, to
        give up when the time is up.
        """
        began = time.perf_counter()
        with seeded(self.seed, device), plain_float32():
            given = copy.deepcopy(start) if start else Network(backbone, preprocess, len(images.samples.classes))
            network = given.to(device)
            views = RandomViews(images, preprocess, self.augment, device)
            losses, wrong = self._train(network, images, views, progress, tick)
        network.eval()
        means, errors = (per_epoch(x, len(images), self._batch(images)) for x in (losses, wrong))
        return FineTuned(network, means, time.perf_counter() - began, self.precision, errors)

    def _train(
        self, network: Network, images: Images, views: RandomViews, progress: Progress, tick: Callable[[], None]
    ) -> tuple[Tensor, Tensor]:
        """All steps; the loss of every one and its share of wrong predictions, on the CPU.

        Where the training diverges the last loss is not a number, and the steps end with their epoch.
        """
        device = views.device
        if device.type == "cuda":
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        network.training_mode(self.bn)
        step = sgd_step(
            network,
            self.losses,
            precision=self.precision,
            compile=self.compile,
            say=progress.say,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
            fused=device.type == "cuda",
        )
        labels = torch.tensor(images.samples.labels, device=device)
        weights = torch.tensor(images.samples.weights, dtype=torch.float32, device=device)
        weights = weights / weights.mean()
        batch = self._batch(images)
        total = steps(len(images), self.epochs, batch)
        rates = torch.tensor([rate(self.schedule, k / total) for k in range(total)], dtype=torch.float32, device=device)
        rates *= self.learning_rate
        losses, wrong = torch.zeros(2, total, device=device)
        done = 0
        with progress.stage("fine-tuning", total=total * batch, unit="images") as stage:
            for k, (rows, x) in enumerate(stream(views, len(images), self.epochs, batch, self.seed)):
                done = k + 1
                tick()
                try:
                    losses[k], wrong[k] = step(placed(x, device), labels[rows], weights[rows], rates[k])
                except torch.linalg.LinAlgError as error:  # bilinear pooling takes the root of a covariance
                    progress.say(f"fine-tuning diverged in step {done} of {total}: {str(error).splitlines()[0][:200]}")
                    losses[k] = math.nan
                    break
                shown = {"loss": float(losses[k]), "error": float(wrong[k])} if k % SHOWN == 0 else {}
                stage.advance(batch, **shown)
                if done * batch // len(images) > k * batch // len(images) and self._ends(
                    losses[k], wrong[:done], images
                ):
                    break
        network.zero_grad(set_to_none=True)  # they would keep the memory of the recording
        return losses[:done].cpu(), wrong[:done].cpu()

    def _ends(self, loss: Tensor, wrong: Tensor, images: Images) -> bool:
        """Whether to stop after an epoch: it diverged, or there is nothing left to learn."""
        return not math.isfinite(float(loss)) or self._enough(wrong, images)

    def _enough(self, wrong: Tensor, images: Images) -> bool:
        """Whether the last epochs, by the training errors of all steps so far, had next to no error."""
        if self.stop_below is None:
            return False
        last = per_epoch(wrong.cpu(), len(images), self._batch(images))[-STOP_EPOCHS:]
        return len(last) == STOP_EPOCHS and max(last) <= self.stop_below

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """ℓ (B,) of every sample."""
        if self.loss == "cross_entropy":
            return F.cross_entropy(outputs, labels, reduction="none")
        targets = self.alpha * (labels[:, None] - 0.5 if outputs.shape[1] == 1 else F.one_hot(labels, outputs.shape[1]))
        return 0.5 * (outputs - targets).square().sum(1)

    def _batch(self, images: Images) -> int:
        return min(self.batch_size, len(images))


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the global generators (head, dropout) and leave them afterwards as they were."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
