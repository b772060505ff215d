"""A recorded step is SGD as PyTorch has it, and recording it changes nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from closeness import relative
from fits import CPU, SHORT, SMALL, convnet, fine_tuned, opened, pictures
from lqf.backbones import load_backbone
from lqf.fast.fused import FusedLinearization
from lqf.fast.replay import Bound, Replayed
from lqf.training import finetune as nlft
from lqf.training.finetune import FineTuning, seeded
from lqf.training.network import Network
from lqf.training.random_views import RandomViews
from lqf.training.step import sgd_step
from lqf.training.stream import stream
from lqf.utils.schedule import rate
from lqf_paper.methods import linear
from lqf_paper.methods import linear_training as training
from lqf_paper.methods.linear import Linear
from recorder import Recorder

PLAIN = {"momentum": 0.9, "nesterov": False, "weight_decay": 0.01}


def as_it_is(function: Bound) -> Bound:
    """Stands for a CUDA graph: buffers, runs beforehand and their undoing are those of a real one."""
    return function


def refusing(function: Bound) -> Bound:
    raise RuntimeError("not on this device\nand more")


def fresh(device: torch.device = CPU) -> Network:
    torch.manual_seed(0)
    network = Network(load_backbone(convnet()), SMALL, 3).to(device)
    assert isinstance(network.body, nn.Sequential)
    network.body.append(nn.Dropout(0.5))
    network.training_mode("train")
    return network


def batches(n: int = 5) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Pixels, labels, sample weights and learning rates."""
    x, y = pictures(6 * n)
    pixels, labels = torch.from_numpy(x).permute(0, 3, 1, 2).split(6), torch.from_numpy(y).split(6)
    weights = (0.5 + torch.rand(6 * n, generator=torch.Generator().manual_seed(1))).split(6)
    rates = torch.tensor([0.05 * rate("cosine", k / n) for k in range(n)])
    return list(zip(pixels, labels, weights, rates, strict=True))


def by_hand(network: Network, options: dict[str, Any]) -> list[float]:
    """The plain loop: a number as learning rate, momentum as SGD begins it."""
    optimiser = torch.optim.SGD(network.parameters(), lr=1.0, **options)
    out = []
    for x, y, s, eta in batches():
        optimiser.param_groups[0]["lr"] = float(eta)
        loss = (s * FineTuning().losses(network(x), y)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        out.append(loss.item())
    return out


def assert_same_state(one: nn.Module, two: nn.Module, error: float = 0.0) -> None:
    """Every entry up to an error relative to the largest one of its tensor."""
    for (name, a), b in zip(one.state_dict().items(), two.state_dict().values(), strict=True):
        atol = error * float(b.abs().max())
        torch.testing.assert_close(a, b, rtol=0, atol=atol, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("record", [None, as_it_is], ids=["plain", "recorded"])
@pytest.mark.parametrize("changed", [{}, {"nesterov": True}, {"momentum": 0.0}, {"weight_decay": 0.0}], ids=str)
def test_the_steps_are_those_of_sgd(changed: dict[str, Any], record: Any, fused: bool) -> None:
    expected, network = fresh(), fresh()
    torch.manual_seed(1)  # of the dropout
    losses = by_hand(expected, PLAIN | changed)
    torch.manual_seed(1)
    step = sgd_step(network, FineTuning().losses, precision="float32", record=record, fused=fused, **PLAIN | changed)
    got = [float(step(*batch)[0]) for batch in batches()]
    assert got == pytest.approx(losses, abs=1e-6)
    assert_same_state(network, expected, error=1e-5)
    weights = [nn.utils.parameters_to_vector(net.parameters()).detach() for net in (network, fresh())]
    assert float((weights[0] - weights[1]).abs().max()) > 0.01


def test_what_runs_before_the_recording_leaves_no_trace() -> None:
    network, before = fresh(), fresh()
    runs = []

    def losses(outputs: Tensor, labels: Tensor) -> Tensor:
        runs.append(0)
        return FineTuning().losses(outputs, labels)

    def watching(function: Bound) -> Bound:
        assert len(runs) == 2
        assert_same_state(network, before)  # weights, running statistics, number of batches
        assert torch.equal(torch.get_rng_state(), state)
        assert all(float(m.abs().max()) == 0 for m in step.changes[-len(list(network.parameters())) :])  # type: ignore[attr-defined]
        return function

    step = sgd_step(network, losses, precision="float32", record=watching, **PLAIN)
    state = torch.get_rng_state()
    step(*batches()[0])
    assert len(runs) == 3
    assert int(network.state_dict()["body.bn.num_batches_tracked"]) == 1


def test_what_a_failed_recording_ran_leaves_no_trace() -> None:
    said: list[str] = []
    expected, network = fresh(), fresh()
    steps = [
        sgd_step(net, FineTuning().losses, precision="float32", say=said.append, record=how, **PLAIN)
        for net, how in ((expected, None), (network, refusing))
    ]
    for step in steps:
        torch.manual_seed(1)
        for batch in batches():
            step(*batch)
    assert_same_state(network, expected)
    assert said == ["the passes cannot be recorded as a CUDA graph (not on this device); continuing without it"]


def test_the_share_of_wrong_predictions_is_that_before_the_step() -> None:
    network, (x, y, s, eta) = fresh().eval(), batches()[0]
    step = sgd_step(network, FineTuning().losses, precision="float32", record=as_it_is, **PLAIN)
    with torch.no_grad():
        expected = float((network(x).argmax(1) != y).float().mean())
    assert float(step(x, y, s, eta)[1]) == expected


@pytest.mark.parametrize("options", [{}, {"precision": "bf16"}, {"stop_below": 1.0, "epochs": 9}], ids=str)
def test_a_whole_run_is_the_same_recorded_or_not(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plain = fine_tuned(leaky=True, **options)
    monkeypatch.setattr(nlft, "sgd_step", partial(sgd_step, record=as_it_is))
    recorded = fine_tuned(leaky=True, **options)
    assert recorded.losses == plain.losses
    assert len(plain.losses) == (5 if "stop_below" in options else 4)  # an error of at most 1 in five epochs
    assert_same_state(recorded.network, plain.network)
    assert all(w.grad is None for w in recorded.network.parameters())


def test_a_run_is_the_plain_loop_over_the_stream() -> None:
    how, images = FineTuning(**SHORT, nesterov=True), opened(*pictures(30), SMALL)
    with seeded(0, CPU):
        network = Network(load_backbone(convnet()), SMALL, 3)
        network.training_mode("train")
        optimiser = torch.optim.SGD(network.parameters(), lr=1.0, momentum=0.9, nesterov=True, weight_decay=1e-4)
        for k, (rows, x) in enumerate(stream(RandomViews(images, SMALL, "crop", CPU), 30, 4, 6, 0)):
            optimiser.param_groups[0]["lr"] = 0.05 * rate("cosine", k / 20)
            loss = how.losses(network(x), torch.tensor(images.samples.labels)[rows]).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    assert_same_state(fine_tuned(leaky=True, nesterov=True).network, network, error=1e-5)


@pytest.mark.parametrize("options", [{}, {"kfac": True}, {"optimiser": "adam"}, {"scope": "fc"}], ids=str)
def test_a_linear_run_is_the_same_recorded_or_not(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    how = Linear(**{"epochs": 2, "batch_size": 6, "learning_rate": 0.01, **options})
    images, runs = opened(*pictures(30), SMALL), []

    def recorder(function: Bound) -> Bound:
        runs.append(0)
        return function

    def fit() -> Tensor:
        return how.fit(load_backbone(convnet().float()), images, SMALL, device=CPU).delta

    plain = fit()
    monkeypatch.setattr(training, "Replayed", partial(Replayed, record=recorder))
    assert torch.equal(fit(), plain)
    assert runs == [0]


class NothingForTheHost(TorchDispatchMode):
    """Refuses what a recording cannot hold: numbers on their way to the host, or from it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func not in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.lift_fresh.default)
        return func(*args, **(kwargs or {}))


class Watching:
    """Stands for a CUDA graph that is made of a pass as it is watched, and counts its replays."""

    def __init__(self) -> None:
        self.replays = 0

    def __call__(self, function: Bound) -> Bound:
        def run() -> tuple[Tensor, ...]:
            self.replays += 1
            with NothingForTheHost():
                return function()

        return run


@pytest.mark.parametrize("precision", ["bf16", "float32"])
@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_a_step_exchanges_nothing_with_the_host(loss: Any, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nlft.F, "one_hot", without_check)
    watching = Watching()
    step = sgd_step(fresh(), FineTuning(loss=loss).losses, precision=precision, record=watching, fused=True, **PLAIN)
    step(*batches()[0])
    assert watching.replays == 1


@pytest.mark.parametrize("options", [{"kfac": True}, {"loss": "cross_entropy"}, {"scope": "fc"}], ids=str)
def test_the_gradient_of_a_linear_model_exchanges_nothing_with_the_host(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear.F, "one_hot", without_check)
    watching = Watching()
    monkeypatch.setattr(training, "Replayed", partial(Replayed, record=watching))
    monkeypatch.setattr(training.Training, "_quick", shared)
    how = Linear(epochs=1, batch_size=6, **options)
    how.fit(load_backbone(convnet().float()), opened(*pictures(12), SMALL), SMALL, device=CPU)
    assert watching.replays == 2  # two batches of six


def without_check(labels: Tensor, n: int) -> Tensor:
    """`F.one_hot` on a CPU looks at the labels first; on a GPU it does not."""
    return (labels[:, None] == torch.arange(n)).long()


def shared(run: Any) -> Any:
    """The model as on a GPU."""
    if run.how.scope == "fc":
        return run.model
    body = FusedLinearization(run.body, torch.bfloat16, run.inputs.example(), merges=True)
    return replace(run.model, body=body)


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "error"), [("float32", 1e-3), ("bf16", 0.02)])
def test_recorded_equals_eager_on_a_gpu(precision: str, error: float, monkeypatch: pytest.MonkeyPatch) -> None:
    images, cuda = opened(*pictures(30), SMALL), torch.device("cuda")
    backbone, how = load_backbone(convnet()), FineTuning(**SHORT | {"precision": precision})
    recorder = Recorder()
    recorded = how.fit(backbone, images, SMALL, device=cuda, progress=recorder)
    assert not recorder.said
    monkeypatch.setattr(nlft, "sgd_step", partial(sgd_step, record=as_it_is))
    eager = how.fit(backbone, images, SMALL, device=cuda)
    assert_same_state(recorded.network, eager.network, error=error)


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{"kfac": True}, {"loss": "cross_entropy"}, {"optimiser": "adam"}], ids=str)
def test_a_recorded_gradient_equals_the_eager_one_on_a_gpu(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    images, cuda = opened(*pictures(30), SMALL), torch.device("cuda")
    how = Linear(**{"epochs": 5, "batch_size": 6, "learning_rate": 1e-3, "precision": "float32", **options})
    recorder = Recorder()
    recorded = how.fit(load_backbone(convnet().float()), images, SMALL, device=cuda, progress=recorder)
    assert not recorder.said
    monkeypatch.setattr(training, "Replayed", partial(Replayed, record=as_it_is))
    eager = how.fit(load_backbone(convnet().float()), images, SMALL, device=cuda)
    assert relative(recorded.outputs(images), eager.outputs(images)) < 1e-3
