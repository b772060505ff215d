"""An ordinarily fine-tuned network that begins at its closed-form head, with nothing to tune.

SGD with momentum, on random crops, minimises the squared error that the head minimises. The learning rate is

    η = RATE / λ,     λ the largest curvature of the loss of a batch (`lqf.training.sharpness`),

halved as long as the loss rises. Training uses the statistics of batches, for which the closed-form head was
not made, and loses much of what it knows in the first steps. λ is therefore measured where head and statistics agree:
under the statistics of the training images and the closed-form head of the features there. (To begin training there
instead gave networks that were no better out of sample.)

Nothing here has a closed form: errors come from networks without each fold.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lqf.backbones import Backbone
from lqf.backbones.side_by_side import side_by_side
from lqf.backbones.state import moved
from lqf.data import Images, has_pixels, normalize
from lqf.errors import LQFError
from lqf.fitting.encoder import Encoder
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.training_set import TrainingSet
from lqf.linear import head_products, sweep
from lqf.training.finetune import FineTuning, seeded
from lqf.training.network import Network, placed, plain_float32
from lqf.training.random_views import RandomViews
from lqf.training.sharpness import sharpness
from lqf.training.statistics import has_statistics, with_statistics_of
from lqf.training.stream import stream

RATE = 1.5
"""η·λ. Gradient descent with momentum 0.9 is stable up to 3.8; batches differ, and λ grows on the way. With ResNet-50
that is a rate of 9e-4 for 40 kinds of cars and of 3.5e-4 for ten hand signs."""
BATCHES = 2
"""On so many batches λ is measured; the larger one counts."""
HALVINGS = 4
NOISE = 1.5
"""Factor between the mean losses of some epochs that may be a matter of their crops: of 18 images in one batch, a
single epoch's loss varies by a factor of two."""
EPOCHS = 30


@dataclass(frozen=True)
class Tuned:
    """A fine-tuned network.

    Attributes:
        encoder: of its features, on the training set.
        head: (C, p+1) V of f = c + V z̃, float64.
        rate: η.
        start: the closed-form head that it began with.
    """

    encoder: Encoder
    head: Tensor
    rate: float
    start: HeadFit

    @property
    def backbone(self) -> Backbone:
        """The network."""
        return self.encoder.backbone

    def put_away(self, data: TrainingSet) -> Tuned:
        """On the CPU, without what was made for passes over its images; ``data``: whose network it is from here on."""
        backbone = replace(self.backbone, body=copy.deepcopy(self.backbone.body).cpu())
        return replace(self, encoder=Encoder(data, backbone), head=self.head.cpu())

    def rows(self, images: Images, views: str) -> Tensor:
        """(N, V, C) outputs of every view of other images, float64 on the CPU."""
        data = self.encoder.data
        preprocess = replace(data.preprocess, views=views)
        shown = replace(data, images=images).with_views(views) if has_pixels(images) else replace(data, images=images)
        z = sweep.features(self.encoder.reader, self.encoder.inputs.showing(shown.images, preprocess))
        f = data.constant + head_products.jvp(z, self.head)
        return f.unflatten(0, (len(images), -1)).double().cpu()


def finetuned(
    data: TrainingSet,
    backbone: Backbone,
    pooling: str = "avg",
    share: float = 1.0,
    *,
    epochs: int | None = None,
    rate: float | None = None,
) -> Tuned:
    """Fine-tune a copy of the backbone, under a linear head on its features, on all of the training set.

    Args:
        data: images to learn from.
        backbone: the network.
        pooling: the name of its features, for the report.
        share: of `RATE`.
        epochs: passes over the images; default: `EPOCHS`.
        rate: η; default: measured, and halved as long as the loss rises.
    """
    context = data.context
    if context.world.size > 1:
        raise LQFError("fine-tuning runs in one process; start it without torchrun")
    how, given = _how(data, epochs), rate
    with context.timed("fine-tuning"), seeded(how.seed, context.device):
        begun = _head_of(Encoder(data, backbone), pooling)
        network = _network(begun)
        rate = given or share * RATE / max(_curvature(begun, how), 1e-30)
        for _ in range(HALVINGS + 1):
            fit = replace(how, learning_rate=rate)
            tuned = fit.fit(
                begun.backbone,
                data.images,
                data.preprocess,
                device=context.device,
                start=network,
                progress=context.progress,
                tick=context.tick,
            )
            if not tuned.diverged and (given or not _rises(tuned.losses)):
                break
            if given:
                raise LQFError(f"the fine-tuning diverged at a learning rate of {given:g}; give a smaller one, or none")
            context.progress.say(f"the loss rises at a learning rate of {rate:.1e}; half of it is tried")
            rate /= 2
        else:
            raise LQFError("the network cannot be fine-tuned: its loss rises at every learning rate that was tried")
    body, top = tuned.network.body.to(context.dtype), tuned.network.head
    head = torch.cat([top.weight, top.bias[:, None] - data.constant], 1).detach().double()
    done = moved(backbone, body, {"epochs": how.epochs, "rate": rate})
    return Tuned(Encoder(data, done), head, rate, begun)


def _rises(losses: Sequence[float]) -> bool:
    """Whether the last fifth of the epochs has a higher loss than the first, by more than few images' crops differ."""
    part = max(1, len(losses) // 5)
    return sum(losses[-part:]) > NOISE * sum(losses[:part])


def averaged(networks: Sequence[Tuned]) -> Tuned:
    """The mean of several networks' outputs as one network; in all else as the last of them."""
    last, n = networks[-1], len(networks)
    backbone = side_by_side([t.backbone for t in networks])
    heads = [t.head.cpu() for t in networks]
    head = torch.cat([*[v[:, :-1] / n for v in heads], torch.stack(heads).mean(0)[:, -1:]], 1)
    return replace(last, encoder=Encoder(last.encoder.data, backbone), head=head)


def _how(data: TrainingSet, epochs: int | None = None) -> FineTuning:
    context, settings = data.context, data.context.settings
    return FineTuning(
        loss="mse",
        alpha=settings.alpha,
        epochs=epochs or EPOCHS,
        batch_size=settings.minibatch,
        augment="crops" if has_pixels(data.images) else "none",
        precision="bf16" if context.device.type == "cuda" else "float32",
        seed=settings.seed,
    )


def _head_of(encoder: Encoder, pooling: str) -> HeadFit:
    return HeadFit.of(encoder, pooling, encoder.features())


def _adapted(begun: HeadFit, how: FineTuning) -> HeadFit:
    """The closed-form head of the network under the statistics of its training images, as it will see them."""
    if not has_statistics(begun.backbone.body):
        return begun
    data, context = begun.data, begun.context
    inputs = (normalize(x, data.preprocess, context.dtype) for x, _ in _batches(data, how))
    body = with_statistics_of(begun.backbone.body.to(device=context.device, dtype=context.dtype), inputs)
    return _head_of(Encoder(data, moved(begun.backbone, body, {})), begun.pooling)


def _batches(data: TrainingSet, how: FineTuning) -> Iterator[tuple[Tensor, Tensor]]:
    """Pixels and row numbers of one epoch, in batches."""
    views = RandomViews(data.images, data.preprocess, how.augment, data.context.device)
    for rows, x in stream(views, len(data), 1, min(how.batch_size, len(data)), how.seed):
        data.context.tick()
        yield x, rows


def _network(begun: HeadFit) -> Network:
    data = begun.data
    network = Network(begun.backbone, data.preprocess, data.targets.shape[1])
    v = begun.head.solve(begun.choice.mu)
    with torch.no_grad():
        network.head.weight.copy_(v[:, :-1])
        network.head.bias.copy_(v[:, -1] + data.constant)
    return network.to(data.context.device)


def _curvature(begun: HeadFit, how: FineTuning) -> float:
    """λ of the weighted loss, the largest of a few batches."""
    data, network, found = begun.data, _network(_adapted(begun, how)), [0.0]
    device = data.context.device
    labels = data.labels.to(device)
    weights = torch.tensor(data.images.samples.weights, dtype=torch.float32, device=device)
    weights = weights / weights.mean()
    network.training_mode(how.bn)
    for k, (x, rows) in enumerate(_batches(data, how)):
        if k == BATCHES:
            break
        x = placed(x, device)

        def loss(x: Tensor = x, rows: Tensor = rows) -> Tensor:
            return (weights[rows] * how.losses(network(x), labels[rows])).mean()

        with plain_float32():
            found.append(sharpness(network, loss))
    return max(found)
