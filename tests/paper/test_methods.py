"""Every method under its name: the network it starts from, its loss and optimiser, and what a cell returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fits import CPU, convnet, opened, pictures
from lqf.backbones import load_backbone
from lqf.backbones.bilinear_pool import BilinearPool
from lqf.data import Preprocess
from lqf.errors import LQFError
from lqf.training.finetune import FineTuning
from lqf_paper.methods.bilinear import bilinear, trained_reduction
from lqf_paper.methods.catalogue import EXACT, METHODS, OURS, fit, fit_method, params
from lqf_paper.methods.exact import RidgeHead
from lqf_paper.methods.linear import Linear
from lqf_paper.runner.grid import GRIDS, RESIZED, grid
from lqf_paper.runner.scale import SCALES, Scale
from lqf_paper.runner.workspace import Task

SMALL = Preprocess(size=12)
VARIANTS = {"lqf-trace", "lqf-decay", "lqf-small-head", "lqf-bf16", "lqf-central", "lqf-fc-sgd"}
LEAKY = {"lqf", "b-lqf", "lqf-adam", "lqf-fc-adam", "lqf-no-mse", "lqf-no-kfac", "lqf-probe"} | VARIANTS
CROSS_ENTROPY = {"gaf", "gaf-probe", "fc", "fc-decay", "gaf-adam", "lqf-no-mse"}
KFAC = {"lqf", "b-lqf", "lqf-no-mse", "lqf-no-leaky", "lqf-probe"} | VARIANTS
HEADS = {"lqf-probe": "probe", "gaf-probe": "probe"} | dict.fromkeys(
    ("fc", "fc-decay", "lqf-fc-adam", "lqf-fc-sgd"), "zero"
)
LINEAR = sorted(set(METHODS) - set(EXACT) - {"nlft", "nlft-mse", "b-nlft"})


@pytest.mark.parametrize("method", LINEAR)
def test_linear_methods_are_what_their_name_says(method: str, task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def spy(self: Linear, backbone: Any, *_: Any, **__: Any) -> None:
        seen.update(how=self, backbone=backbone)

    monkeypatch.setattr(Linear, "fit", spy)
    fit_method(method, task, pool_channels=3)
    how, body = seen["how"], seen["backbone"].body
    assert any(isinstance(m, nn.LeakyReLU) for m in body.modules()) == (method in LEAKY)
    assert any(isinstance(m, nn.ReLU) for m in body.modules()) == (method not in LEAKY)
    assert how.loss == ("cross_entropy" if method in CROSS_ENTROPY else "mse")
    assert how.kfac == (method in KFAC)
    assert how.optimiser == ("adam" if method.endswith("adam") else "sgd")
    assert how.beta1 == (0.5 if method == "gaf-adam" else 0.9)
    assert how.scope == ("fc" if "fc" in method else "all")
    assert how.head == HEADS.get(method, "random")
    assert how.head_std == (0.01 if method == "lqf-small-head" else None)
    assert how.augment == ("none" if method == "lqf-central" else "crop")
    assert how.precision == ("bf16" if method == "lqf-bf16" else "tf32")
    assert how.damping_kind == ("trace" if method == "lqf-trace" else "factored")
    assert any(isinstance(m, BilinearPool) for m in body.modules()) == (method == "b-lqf")
    assert (how.batch_size, how.momentum, how.schedule) == (28, 0.9, "cosine")


@pytest.mark.parametrize(("method", "loss"), [("nlft", "cross_entropy"), ("nlft-mse", "mse")])
def test_nlft_keeps_its_relu_and_trains_with_batch_statistics(
    method: str, loss: str, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr(FineTuning, "fit", lambda self, backbone, *_, **__: seen.update(how=self, body=backbone.body))
    fit_method(method, task)
    assert not any(isinstance(m, nn.LeakyReLU) for m in seen["body"].modules())
    how = seen["how"]
    assert (how.bn, how.loss, how.schedule, how.batch_size, how.momentum) == ("train", loss, "cosine", 28, 0.9)


def test_ours_with_average_pooling_has_one_view(task: Task) -> None:
    model: Any = fit_method("lqf-ours-avg", task, pool_channels=3)
    assert (model.report["pooling"], model.report["views"]) == ("avg", "none")


@pytest.mark.parametrize(("method", "views", "n"), [("lqf-ours", "flip", 2), ("lqf-ours-crops", "resized", 4)])
def test_ours_sees_the_views_it_is_given(task: Task, method: str, views: str, n: int) -> None:
    model: Any = fit_method(method, task, pool_channels=3, solver="head", **{"views": views} if n == 2 else {})
    assert model.report["views"] == views
    assert model.fitted.preprocess.n_views == n
    plain: Any = fit_method("lqf-ours-avg", task, pool_channels=3, solver="head")
    assert not torch.allclose(model.outputs(task.test), plain.outputs(task.test))


def test_the_closed_form_head() -> None:
    images, backbone = opened(*pictures(30), SMALL), load_backbone(convnet())
    model = RidgeHead.fit(backbone, images, SMALL, device=CPU, weight_decay=0.01)
    x = torch.cat([images.batch([i]) for i in range(30)])
    mean, std = (torch.tensor(v, dtype=torch.float64)[:, None, None] for v in (SMALL.mean, SMALL.std))
    z = backbone.body((x.double() / 255 - mean) / std).detach().numpy()
    z = np.concatenate([z, np.ones((30, 1))], 1)
    t = 15 * np.eye(3)[images.samples.labels]
    expected = np.linalg.solve(z.T @ z + 0.01 * 30 * np.eye(z.shape[1]), z.T @ t)
    np.testing.assert_allclose(model.v.numpy(), expected.T, atol=1e-9)
    np.testing.assert_allclose(model.outputs(images).numpy(), z @ expected, atol=1e-9)


def test_leave_one_out_chooses_the_weight_decay_of_the_closed_form_head() -> None:
    images = opened(*pictures(30), SMALL)
    backbone = load_backbone(convnet())
    free = RidgeHead.fit(backbone, images, SMALL, device=CPU)
    again = RidgeHead.fit(backbone, images, SMALL, device=CPU, weight_decay=free.weight_decay)
    torch.testing.assert_close(free.v, again.v)
    assert free.loo_error == again.loo_error


@pytest.mark.parametrize("channels", [3, 9])
def test_mpn_cov_is_pooling_and_head_over_the_last_map(channels: int) -> None:
    images = opened(*pictures(12, side=14), SMALL)
    pooled = bilinear(load_backbone(convnet(), leaky=False), images, SMALL, CPU, channels)
    start = pooled.body.get_submodule("pool").reduction
    pooled.body = trained_reduction(pooled.body)
    tuned = FineTuning(epochs=2, batch_size=6, precision="float32", learning_rate=0.05).fit(
        pooled, images, SMALL, device=CPU
    )
    net: Any = tuned.network
    x = (images.batch([0, 1]).float() / 255 - net.mean) / net.std
    with torch.no_grad():
        y = net.body.tanh(net.body.deep(net.body.relu(net.body.bn(net.body.conv(x))))).flatten(2).double()
        if channels < 5:
            y = net.body.pool.reduction.double() @ y
        y = y - y.mean(2, keepdim=True)
        sigma = y @ y.mT / y.shape[2]
        k = sigma.shape[1]
        sigma = sigma + 1e-4 * sigma.diagonal(dim1=1, dim2=2).mean(1)[:, None, None] * torch.eye(k)
        lam, u = torch.linalg.eigh(sigma)
        root = u @ torch.diag_embed(lam.sqrt()) @ u.mT
        i, j = torch.triu_indices(k, k)
        z = root[:, i, j] * torch.where(i == j, 1.0, 2**0.5)
        expected = z.float() @ net.head.weight.T + net.head.bias
    torch.testing.assert_close(tuned.outputs(images)[:2], expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))
    if channels < 5:
        assert isinstance(net.body.pool.reduction, nn.Parameter)
        assert not torch.equal(net.body.pool.reduction.detach(), start.float())  # it is trained


def test_bilinear_pooling_needs_a_map() -> None:
    tiny = Preprocess(size=5)
    with pytest.raises(LQFError, match="has one position there"):
        bilinear(load_backbone(convnet()), opened(*pictures(6), tiny), tiny, CPU, 3)


@pytest.mark.parametrize("method", list(METHODS))
def test_a_cell_of_every_method(method: str, task: Task) -> None:
    tiny = Scale("quick", epochs=2, least_steps=2, pool_channels=3)
    settings = {} if method in EXACT else {"augment": "none", "learning_rate": 1e-4, "weight_decay": 1e-3}
    before = {n: t.clone() for n, t in task.workspace.network(leaky=True).body.state_dict().items()}
    result = fit(task, **params(method, tiny, len(task.train), settings, shots=4))
    assert result["n"] == 12
    shown = result.get("lost", result)  # two epochs may end above the loss of zero output
    assert 0 <= shown["test_error"] <= 1
    assert result["diverged"] == ("lost" in result)
    assert (shown["test_error_mirrored"] is None) == (method in OURS)  # they have views of their own
    assert len(result["losses"]) == (0 if method in EXACT else 2)
    after = task.workspace.network(leaky=True).body.state_dict()  # the network is shared by all cells
    assert all(torch.equal(t, after[n]) for n, t in before.items())


def test_grids_name_settings_that_exist() -> None:
    for name, by_scale in GRIDS.items():
        assert set(by_scale) == set(SCALES)
        for scale in by_scale:
            tried = grid(name, scale)
            assert len({str(s) for s in tried}) == len(tried) > 0
            if name not in EXACT:
                for settings in tried:
                    if "nlft" in name or name in ("online", "eigenvalues", "robustness"):
                        FineTuning(**settings)
                    else:
                        Linear(**settings)


def test_the_short_grid_has_one_way_to_cut_images_for_all_methods_by_mini_batches() -> None:
    strongest = [n for n in GRIDS if n.endswith("-resized")]
    searched = [n for n in GRIDS if n not in EXACT and n not in (*strongest, "online", "eigenvalues")]
    searched.remove("lqf-central")
    assert {s["augment"] for n in searched for s in grid(n, "short")} == {"crop"}
    assert {n.removesuffix("-resized") for n in strongest} == {
        "nlft",
        "nlft-mse",
        "b-nlft",
        "gaf",
        "fc",
        "lqf",
        "b-lqf",
    }


def test_the_strongest_augmentation_is_tried_with_the_papers_combination_and_with_rates_that_suit_the_method() -> None:
    for name in (n for n in GRIDS if n.endswith("-resized")):
        assert grid(name, "paper") == [RESIZED]
        tried = grid(name, "short")
        assert {(s["weight_decay"], s["augment"]) for s in tried} == {(1e-5, "resized")}
        known = {s["learning_rate"] for s in grid(name.removesuffix("-resized"), "short")}
        assert known & {s["learning_rate"] for s in tried}


def test_the_papers_grid() -> None:
    tried = grid("gaf", "paper")
    assert {s["learning_rate"] for s in tried} == {0.01, 0.001}
    assert {s["learning_rate"] for s in grid("lqf", "paper")} == {0.1, 0.01, 0.001}
    assert {s["weight_decay"] for s in tried} == {1e-4, 1e-5}
    assert {s["augment"] for s in tried} == {"none", "crop", "resized"}
    assert sum(s["augment"] == "resized" for s in tried) == 1
    adam = grid("gaf-adam", "paper")
    assert {s["learning_rate"] for s in adam} == {1e-3, 4e-4, 1e-4}
    assert {s["weight_decay"] for s in adam} == {1e-5, 1e-6}


def test_few_images_get_more_epochs() -> None:
    scale = Scale("short", epochs=30, least_steps=300)
    assert scale.epochs_for(1000) == 30
    assert scale.epochs_for(40) == 210  # 300 batches of 28
    assert scale.epochs_for(10) == 300  # 300 batches of 10
