"""Saved fine-tuned networks, stacks with them, and models that predict in other views than they were trained in."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from finetuned_models import CROPPED, training, tuned, tuned_model
from fits import CPU, classifier, convnet, pictures
from lqf import LQFClassifier, storage
from lqf.backbones import Backbone, load_backbone
from lqf.backbones.average_pool import acting_through_all
from lqf.data import Preprocess, load_samples, normalize, open_images
from lqf.fitting import Context, FittedModel, Model, Stack, TrainingSet
from lqf.fitting.assemble import assemble_finetuned, assemble_head
from lqf.fitting.finetuned import averaged
from lqf.fitting.select_pooling import candidate_heads
from lqf.fitting.select_views import in_views
from lqf.fitting.token_poolings import KINDS, OWN
from lqf.linear.model import with_one
from lqf.settings import Settings
from lqf.storage import checks
from refitted_stacks import NEW, X, Y, fitted_members, stack_of
from token_networks import SIDE, transformer


def outputs(model: Model, x: np.ndarray = NEW) -> torch.Tensor:
    images = open_images(load_samples(x), model.preprocess)
    return model.outputs(images, device=CPU, batch_size=3)


def back(model: Model, folder: Path, net: Callable[[], nn.Module] | None = convnet) -> Any:
    """Saved and loaded twice over."""
    for k in range(2):
        storage.save(model, folder / f"run{k}")
        model = storage.load(folder / f"run{k}", backbone=net and net())
    return model


def under(pooling: str, data: TrainingSet, backbone: Backbone) -> Backbone:
    """The network with the features that a head of this pooling would be fine-tuned under."""
    (head,) = candidate_heads(data, backbone, pooling)
    return head.acting.backbone


# --- fine-tuned networks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("pooling", ["avg", "both", "bilinear"])
def test_a_fine_tuned_network_predicts_the_same_bit_for_bit(tmp_path: Path, pooling: str, dtype: str) -> None:
    data = training(X, Y, pooling=pooling, pool_channels=3, dtype=dtype)
    end = tuned(data, under(pooling, data, load_backbone(convnet())), epochs=8)
    model = assemble_finetuned(end, None, "crops4")
    loaded = back(model, tmp_path)
    assert isinstance(loaded, FittedModel)
    assert torch.equal(outputs(loaded), outputs(model))
    assert float(outputs(model).std()) > 0
    assert loaded.backbone.spec == model.backbone.spec
    assert (loaded.preprocess, loaded.trained_on) == (model.preprocess, model.trained_on)
    assert loaded.report == replace(model.report, relative_residual=None)
    assert not loaded.solved
    assert not any(m.training for m in loaded.backbone.body.modules())


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("pooling", ["avg", "both", "bilinear"])
def test_a_mean_of_networks_predicts_the_same_bit_for_bit(tmp_path: Path, pooling: str, dtype: str) -> None:
    data = training(X, Y, pooling=pooling, pool_channels=3, dtype=dtype)
    (head,) = candidate_heads(data, load_backbone(convnet()), pooling)
    networks = [tuned(data, acting_through_all(head.backbone), epochs=n).put_away(data) for n in (8, 16, 24)]
    model = assemble_finetuned(averaged(networks), None, "crops4")
    loaded = back(model, tmp_path)
    assert torch.equal(outputs(loaded), outputs(model))
    alone = torch.stack([outputs(assemble_finetuned(one, None, "crops4")) for one in networks])
    assert float(alone.std(0).min()) > 0
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if dtype == "float64" else {"rtol": 1e-3, "atol": 1e-3}
    torch.testing.assert_close(outputs(model), alone.mean(0), **tolerance)
    assert "the mean of 3 networks" in loaded.report.plan


NORMED: dict[str, Any] = {"pool": "mean", "after": nn.LayerNorm(8)}
"""A network whose own features are the mean of its tokens, normalised."""


@pytest.mark.parametrize(
    ("pool", "pooling"),
    [*(({}, name) for name in KINDS), *((NORMED, name) for name in (OWN, "bilinear", "both"))],
    ids=lambda value: value if isinstance(value, str) else "mean" if value else "class",
)
def test_a_fine_tuned_transformer_predicts_the_same_bit_for_bit(
    tmp_path: Path, pool: dict[str, Any], pooling: str
) -> None:
    net, preprocess = lambda: transformer(**pool), Preprocess(size=SIDE)
    x, y = pictures(12, side=14)
    context = Context(Settings(dtype="float64", pool_channels=3), CPU)
    data = TrainingSet.of(open_images(load_samples(x, y), preprocess), preprocess, context)
    (head,) = candidate_heads(data, load_backbone(net()), pooling)
    new = pictures(5, side=14, seed=7)[0]
    for k, backbone in enumerate((head.acting.backbone, acting_through_all(head.backbone))):
        model = assemble_finetuned(tuned(data, backbone, epochs=8), None, "flip")
        loaded = back(model, tmp_path / str(k), net)
        assert torch.equal(outputs(loaded, new), outputs(model, new))


def test_a_named_network_needs_nothing_but_the_folder(tmp_path: Path) -> None:
    backbone = load_backbone("mobilenet_v2", weights="random", seed=3)
    x, y = pictures(4, 2, side=32)
    preprocess = backbone.preprocess(size=32)
    data = TrainingSet.of(open_images(load_samples(x, y), preprocess), preprocess, Context(Settings(), CPU))
    model = assemble_finetuned(tuned(data, backbone, epochs=1), None, "none")
    loaded = back(model, tmp_path, None)
    assert torch.equal(outputs(loaded, x), outputs(model, x))
    untouched = load_backbone("mobilenet_v2", weights="random", seed=3).body.state_dict()
    assert any(not torch.equal(w, untouched[name]) for name, w in loaded.backbone.body.state_dict().items())


def test_what_is_known_out_of_sample_comes_back(tmp_path: Path) -> None:
    model = tuned_model(X, Y, shown="flip")
    loaded = back(model, tmp_path)
    assert model.loo is not None
    assert torch.equal(loaded.loo.outputs, model.loo.outputs)
    assert (loaded.loo.level, loaded.loo.note, loaded.beta) == (model.loo.level, model.loo.note, model.beta)


def test_a_loaded_network_answers_as_the_one_that_was_saved(tmp_path: Path) -> None:
    before = classifier(backbone=convnet(), size=8)
    before._adopt(tuned_model(X, Y, shown="crops4"))
    before.save(tmp_path / "run")
    after = LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu")
    a, b = (m.analyse(X).influence(NEW) for m in (before, after))
    assert (a.level, a.note) == (b.level, b.note)
    torch.testing.assert_close(b.effects, a.effects, rtol=1e-9, atol=1e-12)


# --- stacks -----------------------------------------------------------------------------------------------------------


def test_a_stack_with_a_fine_tuned_member_predicts_the_same_bit_for_bit(tmp_path: Path) -> None:
    solved = [m.fitted_ for m in fitted_members()[:2]]
    stack = stack_of([*solved, tuned_model(X, Y, shown="crops4")], (0.2, 0.3, 0.5))
    loaded = back(stack, tmp_path)
    assert isinstance(loaded, Stack)
    assert torch.equal(outputs(loaded), outputs(stack))
    assert [m.solved for m in loaded.members] == [True, True, False]
    assert loaded.main is loaded.members[2]
    assert loaded.answering is loaded.members[1]
    assert [m.trained_views for m in loaded.members] == [None, None, "none"]
    names = {p.name for p in (tmp_path / "run1" / "member3").iterdir()}
    assert names == {"model.json", "weights.safetensors", "backbone.safetensors", "samples.csv"}


# --- views of training and of predictions -----------------------------------------------------------------------------


def in_crops(shown: str | None) -> FittedModel:
    """A head that was fitted in eight views."""
    data = training(X, Y, pooling="avg", solver="head")
    (head,) = candidate_heads(data, load_backbone(convnet()), "avg")
    return assemble_head(in_views(head, "crops8"), shown)


def test_a_model_of_eight_crops_that_predicts_in_two_views_comes_back(tmp_path: Path) -> None:
    model = in_crops("flip")
    assert (model.preprocess.views, model.trained_views, model.report.predict_views) == ("flip", "crops8", "flip")
    loaded = back(model, tmp_path)
    assert (loaded.preprocess, loaded.trained_views) == (model.preprocess, "crops8")
    assert loaded.trained_on == replace(CROPPED, views="crops8")
    assert loaded.report == model.report
    assert torch.equal(outputs(loaded), outputs(model))
    all_views = outputs(in_crops(None))
    assert not torch.allclose(outputs(model), all_views, atol=1e-3)
    images = open_images(load_samples(NEW), replace(CROPPED, views="crops8"))
    body = load_backbone(convnet()).body.double()
    z = [body(normalize(images.batch(torch.arange(4), v), CROPPED, torch.float64)) for v in (0, 1)]
    mean = model.constant + with_one(torch.stack(z).mean(0)) @ model.head.T
    torch.testing.assert_close(outputs(model), mean, rtol=1e-9, atol=1e-9)


def test_its_questions_are_about_all_views_that_it_was_trained_in(tmp_path: Path) -> None:
    storage.save(in_crops("flip"), tmp_path / "run")
    model = LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu")
    analysis = model.analyse(X)
    assert analysis.problem.data.n_views == 8
    found = analysis.influence(NEW)
    np.testing.assert_allclose(found.outputs, model.decision_function(NEW), rtol=1e-8, atol=1e-8)
    loo = model.fitted_.loo
    assert loo is not None
    torch.testing.assert_close(analysis.leave_one_out().outputs, loo.outputs, rtol=1e-8, atol=1e-8)


def test_a_folder_of_before_has_no_views_of_training(tmp_path: Path) -> None:
    model = in_crops(None)
    storage.save(model, tmp_path / "run")
    path = tmp_path / "run" / "model.json"
    meta = json.loads(path.read_text())
    assert "trained_views" not in meta  # which older readers would not miss, either
    del meta["sha256"], meta["report"]["predict_views"], meta["settings"]["predict_views"]
    path.write_text(json.dumps(meta | {"sha256": checks.digest(meta)}))
    loaded = storage.load(tmp_path / "run", backbone=convnet())
    assert isinstance(loaded, FittedModel)
    assert loaded.trained_views is None
    assert loaded.trained_on == loaded.preprocess == model.preprocess
    assert (loaded.report.predict_views, loaded.settings.predict_views) == (None, "auto")
    assert torch.equal(outputs(loaded), outputs(model))
