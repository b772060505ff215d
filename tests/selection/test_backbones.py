"""Backbones ranked by their heads: leave-one-out by refits, differences by hand, and sentences for what cannot be."""

import numpy as np
import pytest
import torch
from torch import nn

import lqf
from fits import classifier, convnet, pictures
from lqf import LQFError
from lqf.data import Preprocess, load_samples, open_images
from lqf.evaluation.paired import cross_fitted_losses
from lqf.fitting import Context, TrainingSet
from lqf.linear.targets import centre, encode
from lqf.settings import Settings

N, CLASSES = 24, 3


class Clear(nn.Sequential):
    """Sees the pattern of each class."""


class Blind(nn.Sequential):
    """Sees next to nothing of it."""


def tensors() -> tuple[torch.Tensor, np.ndarray]:
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(N) % CLASSES
    x = torch.randn(CLASSES, 2, 3, 3, generator=g, dtype=torch.float64)[labels]
    return x + 0.7 * torch.randn(N, 2, 3, 3, generator=g, dtype=torch.float64), labels.numpy()


def network(kind: type[nn.Sequential], scale: float = 1.0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        net = kind(nn.Flatten(), nn.Linear(18, 6), nn.Tanh(), nn.Linear(6, 2))
    with torch.no_grad():
        net[1].weight *= scale
    return net


@pytest.fixture(scope="module")
def selection():
    x, y = tensors()
    nets = [network(Blind, 1e-3), network(Clear)]
    nets[0][1].weight.data[:, 4:] = 0
    return lqf.select(x, y, backbones=nets, tensors="normalized", dtype="float64", device="cpu")


def test_leave_one_out_equals_refits(selection):
    x, y = tensors()
    net = network(Clear).double()
    z = torch.cat([net[:3](x.double()), torch.ones(N, 1)], 1).detach()
    found = next(c for c in selection.candidates if c.name == "module:Clear")
    t = encode(torch.tensor(y), CLASSES, 15.0)
    constant = centre(CLASSES, 15.0)
    outputs = torch.stack([_without(z, t - constant, i, found.ridge) + constant for i in range(N)])
    assert torch.equal(outputs.argmax(1), found.outputs.argmax(1))
    assert torch.allclose(outputs, found.outputs, rtol=0, atol=1e-9)
    assert found.error == pytest.approx(float((outputs.argmax(1) != torch.tensor(y)).double().mean()))


def _without(z: torch.Tensor, t: torch.Tensor, i: int, mu: float) -> torch.Tensor:
    keep = torch.arange(N) != i
    gram = z[keep].T @ z[keep] + mu * torch.eye(z.shape[1]).double()
    return z[i] @ torch.linalg.solve(gram, z[keep].T @ t[keep])


def test_the_loss_is_the_cross_fitted_one_and_its_difference_is_paired(selection):
    best, other = selection.candidates
    samples = load_samples(*tensors(), tensors="normalized")
    data = TrainingSet.of(open_images(samples, Preprocess()), Preprocess(), Context(Settings(), torch.device("cpu")))
    losses = cross_fitted_losses(best.outputs, data.labels, torch.ones(N), data.folds)
    assert best.loss == pytest.approx(float(losses.mean()), abs=1e-12)
    difference = (other.losses - best.losses).numpy()
    assert selection.lead.mean == pytest.approx(difference.mean())
    assert selection.lead.standard_error == pytest.approx(difference.std(ddof=1) / N**0.5)


def test_the_network_that_sees_the_classes_is_first(selection):
    assert [c.name for c in selection.candidates] == ["module:Clear", "module:Blind"]
    assert selection.best.loss < selection.candidates[1].loss
    assert selection.best.log_me > selection.candidates[1].log_me
    assert (selection.best.parameters, selection.best.features, selection.n) == (18 * 6 + 6, 6, N)
    assert selection.best.seconds > 0
    assert "module:Clear" in repr(selection)


def test_json_has_every_figure(selection):
    found = selection.to_dict()
    assert found["best"] == "module:Clear"
    assert found["lead"]["mean"] > 0
    assert {"loss", "error", "log_me", "seconds", "parameters", "size"} <= set(found["backbones"][0])


def test_what_cannot_be_loaded_is_named_and_the_others_go_on():
    x, y = tensors()
    given = ["resnet51", network(Clear), "resnet50=missing.safetensors"]
    found = lqf.select(x, y, backbones=given, tensors="normalized", device="cpu")
    assert [c.name for c in found.candidates] == ["module:Clear"]
    assert found.lead is None
    reasons = {f.name: f.reason for f in found.failed}
    assert "no backbone `resnet51`" in reasons["resnet51"]
    assert "missing.safetensors" in reasons["resnet50=missing.safetensors"]


def test_a_network_that_does_not_take_the_images_is_named():
    x, y = tensors()
    wrong = Blind(nn.Flatten(), nn.Linear(5, 4), nn.Linear(4, 2))
    found = lqf.select(x, y, backbones=[wrong, network(Clear)], tensors="normalized", device="cpu")
    assert "module:Blind" in [f.name for f in found.failed]


def test_sentences_for_bad_input():
    x, y = tensors()
    with pytest.raises(LQFError, match=r"no backbone could be tried: `resnet51`: there is no backbone"):
        lqf.select(x, y, backbones=["resnet51"], tensors="normalized")
    with pytest.raises(LQFError, match="named twice"):
        lqf.select(x, y, backbones=["resnet50", "resnet50"], tensors="normalized")
    with pytest.raises(LQFError, match="no backbone was named"):
        lqf.select(x, y, backbones=[], tensors="normalized")
    with pytest.raises(LQFError, match="one class"):
        lqf.select(x, np.zeros(N, int), backbones=[network(Clear)], tensors="normalized")
    with pytest.raises(LQFError, match="has one image, or images of one group"):
        lqf.select(x[:3], y[:3], backbones=[network(Clear)], tensors="normalized")


def test_a_pooling_is_chosen_as_a_fit_chooses_it():
    x, y = pictures(12)
    given = {"size": 16, "device": "cpu", "dtype": "float64"}
    net = convnet()
    found = lqf.select(x, y, backbones=[net], pooling="bilinear", **given).best
    fitted = classifier(backbone=net, solver="head", views="none", pooling="bilinear", size=16).fit(x, y)
    assert found.features == 15
    assert torch.allclose(found.outputs, fitted.leave_one_out().outputs, rtol=0, atol=1e-9)
