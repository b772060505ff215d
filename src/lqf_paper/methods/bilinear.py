"""Bilinear pooling for the paper's methods: the network's average replaced by the root of the covariance.

The channels are reduced to k first, by the principal directions of the training images' maps. Under linearisation the
reduction is a constant; under ordinary fine-tuning (MPN-COV) it is a layer like the others and is trained.
"""

from __future__ import annotations

import torch
from torch import nn

from lqf.backbones import Backbone
from lqf.backbones.average_pool import find_average_pool, with_bilinear_pool
from lqf.backbones.bilinear_pool import BilinearPool, ChannelMoment, principal_rows
from lqf.data import Images, Preprocess
from lqf.errors import LQFError
from lqf.linear.batch import usual_rows
from lqf.linear.inputs import Inputs


def bilinear(
    backbone: Backbone, images: Images, preprocess: Preprocess, device: torch.device, channels: int
) -> Backbone:
    """A copy of the backbone that pools bilinearly, on its device."""
    body = backbone.body.to(device)
    dtype = next(body.parameters()).dtype
    inputs = Inputs(images, preprocess, device=device, dtype=dtype, batch_size=usual_rows(device))
    pool = find_average_pool(body, inputs.example())
    if pool is None or pool.positions == 1:
        what = "does not end in an average over its last feature map" if pool is None else "has one position there"
        raise LQFError(f"bilinear pooling needs several positions of a last feature map; `{backbone.name}` {what}")
    if channels >= pool.channels:
        return with_bilinear_pool(backbone, pool.name, None, pool.channels)
    with ChannelMoment(body.get_submodule(pool.name)) as moment, torch.no_grad():
        for rows, x in inputs.batches():
            body(x)
            moment.add(torch.ones(len(rows), device=device))
    assert moment.sum is not None
    return with_bilinear_pool(backbone, pool.name, principal_rows(moment.sum, channels).to(dtype), channels)


def trained_reduction(body: nn.Module) -> nn.Module:
    """The same network with the reduction of its bilinear pooling as a weight, in place."""
    for module in body.modules():
        if isinstance(module, BilinearPool) and module.reduction is not None:
            start = module.reduction
            del module._buffers["reduction"]
            module.register_parameter("reduction", nn.Parameter(start.clone()))
    return body
