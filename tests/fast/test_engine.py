"""In which floating-point type products are made."""

import torch
from torch import nn

from cases import images, network
from lqf.fast.engine import in_range
from lqf.linear.linearize import Linearization


def test_activations_beyond_the_range_of_a_type_are_seen() -> None:
    body = Linearization(network("convnet"))
    assert in_range(body, images(4), torch.float16)
    assert not in_range(body, 1e6 * images(4), torch.float16)
    assert in_range(body, 1e6 * images(4), torch.bfloat16)


def test_a_large_value_in_between_counts_although_the_output_is_small() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(72, 5), nn.Linear(5, 3)).double()
    with torch.no_grad():
        net[1].weight *= 1e6
        net[2].weight *= 1e-6
    assert not in_range(Linearization(net.eval()), images(4), torch.float16)
