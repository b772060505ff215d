"""One step of non-linear fine-tuning, recorded on a GPU.

A step of ResNet-50 on a batch of 28 is about two thousand kernels, and a fast GPU spends most of it waiting for them to
be asked for. All that changes from step to step therefore enters through tensors, the learning rate too, so that one
recording of forward pass, backward pass and update serves them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lqf.fast.replay import Passes, Record, Replayed
from lqf.linear.targets import decide
from lqf.training.network import Network, autocast


def sgd_step(
    network: Network,
    losses: Callable[[Tensor, Tensor], Tensor],
    *,
    precision: str,
    compile: bool = False,
    say: Callable[[str], None] = lambda _: None,
    record: Record | None = None,
    **options: Any,
) -> Passes:
    """A function that takes one step and leaves the network's weights and statistics changed.

    Args:
        network: in the mode it is to be trained in, on its device.
        losses: of outputs (B, C) and labels (B,), giving ℓ (B,).
        precision: "bf16" or "float32".
        compile: run the network through `torch.compile`; the step is not recorded then.
        say: called with the reason where recording fails.
        record: as of `Replayed`.
        options: of `torch.optim.SGD`, but for the learning rate.

    Returns:
        (pixels, labels (B,), sample weights (B,), learning rate () in float32) -> mean weighted loss and share of wrong
        predictions before the step; both are overwritten by the next one.
    """
    optimiser = torch.optim.SGD(network.parameters(), lr=0.0, **options)
    forward: Callable[[Tensor], Tensor] = torch.compile(network) if compile else network

    def step(x: Tensor, labels: Tensor, weights: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
        optimiser.param_groups[0]["lr"] = rate
        with autocast(x.device, precision):
            outputs = forward(x)
        loss = (weights * losses(outputs.float(), labels)).mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        return loss.detach(), (decide(outputs.detach()) != labels).float().mean()

    changes = [*network.parameters(), *network.buffers(), *without_momentum(optimiser)]
    return step if compile else Replayed(step, say, changes=changes, record=record)


def without_momentum(optimiser: torch.optim.SGD) -> list[Tensor]:
    """Give every weight a momentum of zeros; returns them.

    SGD would take the first gradient itself for it, in a step unlike the others. m·0 + g is the same.
    """
    made = []
    for group in optimiser.param_groups:
        for weight in group["params"] if group["momentum"] else []:
            made.append(torch.zeros_like(weight, requires_grad=False))
            optimiser.state[weight]["momentum_buffer"] = made[-1]
    return made
