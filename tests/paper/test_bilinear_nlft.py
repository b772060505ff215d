"""MPN-COV: its loss, its batch normalisation, and what happens where it diverges."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from faults import at_call
from fits import CPU, convnet, opened, pictures
from lqf.backbones import load_backbone
from lqf.data import Preprocess
from lqf.training.finetune import FineTuning
from lqf.training.network import FineTuned, Network
from lqf.training.step import sgd_step
from lqf_paper.methods.bilinear import bilinear, trained_reduction
from lqf_paper.methods.catalogue import fit, fit_method
from lqf_paper.methods.models import error
from lqf_paper.runner.workspace import Task
from recorder import Recorder

SMALL = Preprocess(size=12)
ONE: dict[str, Any] = {"epochs": 1, "batch_size": 12, "precision": "float32", "augment": "none"}


def pooled(n: int = 12) -> tuple[Any, Any]:
    """The tiny network under bilinear pooling with a trained reduction, and its images."""
    images = opened(*pictures(n), SMALL)
    net = bilinear(load_backbone(convnet().float(), leaky=False), images, SMALL, CPU, 3)
    net.body = trained_reduction(net.body)
    return net, images


@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_the_loss_of_mpn_cov_is_that_of_its_outputs(loss: Any) -> None:
    net, images = pooled()
    how = FineTuning(loss=loss, bn="eval", learning_rate=0.0, weight_decay=0.0, **ONE)
    model = how.fit(net, images, SMALL, device=CPU)
    f, y = model.outputs(images), torch.tensor(images.samples.labels)
    targets = 15.0 * F.one_hot(y, 3)
    expected = F.cross_entropy(f, y) if loss == "cross_entropy" else 0.5 * (f - targets).square().sum(1).mean()
    assert model.losses == (pytest.approx(float(expected), rel=1e-5),)  # a rate of zero leaves the network as it was


def test_one_step_is_the_gradient_of_the_loss_through_the_root() -> None:
    net, images = pooled()
    network = Network(net, SMALL, 3).double()
    network.training_mode("train")
    weights = [w.detach().clone() for w in network.parameters()]
    x, y = images.batch(torch.arange(12)), torch.tensor(images.samples.labels)

    def loss() -> torch.Tensor:
        z = network.body(((x.float() / 255 - network.mean) / network.std).double())
        return F.cross_entropy(network.head(z), y)

    name = next(n for n, _ in network.named_parameters() if n.endswith("reduction"))
    reduction: Any = dict(network.named_parameters())[name]
    (g,) = torch.autograd.grad(loss(), reduction)
    v = torch.randn(reduction.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        ends = []
        for h in (1e-5, -1e-5):
            reduction += h * v
            ends.append(float(loss()))
            reduction -= h * v
    assert float((g * v).sum()) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6)
    network.load_state_dict(network.state_dict() | dict(zip(dict(network.named_parameters()), weights, strict=True)))
    network.float()
    step = sgd_step(network, FineTuning().losses, precision="float32", momentum=0.9, weight_decay=0.0)
    before = reduction.detach().clone()
    step(x, y, torch.ones(12), torch.tensor(0.01))
    torch.testing.assert_close(reduction.detach(), before - 0.01 * g.float(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("bn", ["train", "eval"])
def test_batch_normalisation_is_in_the_mode_asked_for(bn: Any, task: Task) -> None:
    settings = {"epochs": 1, "learning_rate": 1e-3, "augment": "none"}
    chosen = {} if bn == "train" else {"bn": "eval"}  # train mode is the method's own
    model: Any = fit_method("b-nlft", task, pool_channels=3, **settings, **chosen)
    given: Any = task.workspace.network(leaky=False).body
    assert torch.equal(model.network.body.bn.running_mean, given.bn.running_mean.float()) == (bn == "eval")
    assert not model.network.training


def test_a_divergence_inside_the_root_is_told_and_is_no_exception(task: Task) -> None:
    settings = {"epochs": 20, "learning_rate": 1e6, "augment": "none", "batch_size": 5}
    result = fit(task, method="b-nlft", settings=settings, pool_channels=3)
    assert result["diverged"]
    assert result["test_error"] is None
    assert result["test_error_mirrored"] is None


def test_training_ends_where_the_root_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    net, images = pooled()
    recorder = Recorder()

    def fail() -> None:
        raise torch.linalg.LinAlgError("linalg.eigh: the input matrix contained non-finite values.\nmore")

    calls = at_call(monkeypatch, Network, "forward", 3, fail)
    model = FineTuning(**ONE | {"epochs": 8}).fit(net, images, SMALL, device=CPU, progress=recorder)
    assert len(calls) == 3
    assert recorder.said == [
        "fine-tuning diverged in step 3 of 8: linalg.eigh: the input matrix contained non-finite values."
    ]
    assert error(model, images) is None


def test_a_network_whose_outputs_have_no_root_has_no_error() -> None:
    net, images = pooled()
    model = FineTuning(**ONE).fit(net, images, SMALL, device=CPU)
    with torch.no_grad():
        for w in model.network.body.parameters():
            w.fill_(float("nan"))
    broken = FineTuned(model.network, (1.0,), 0.0, "float32")
    assert error(broken, images) is None
