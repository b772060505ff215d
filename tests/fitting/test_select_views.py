"""The views of a fit: kept where leave-one-out of whole images gains by them, through the solvers and back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fits import classifier, convnet, data, pictures, sequential
from lqf import LQFClassifier
from lqf.backbones import load_backbone
from lqf.data import Preprocess, load_samples, open_images, select_images, with_views
from lqf.errors import LQFError
from lqf.fitting import Context, TrainingSet
from lqf.fitting.checkpoint import Checkpoint
from lqf.fitting.encoder import Encoder
from lqf.fitting.select_pooling import select_pooling
from lqf.fitting.select_ridge import Trial
from lqf.fitting.select_views import GAIN, in_views, reason_against, worth_it
from lqf.linear.problem import QuadraticProblem
from lqf.settings import Settings
from lqf.solvers.planner import Plan, Rates, plan


def network() -> nn.Module:
    """Sees where something is: small pictures (3, 8, 8) -> 16 features; stages `conv` and `deep`."""
    return sequential(
        lambda: {
            "conv": nn.Conv2d(3, 2, 3),
            "flat": nn.Flatten(),
            "deep": nn.Linear(72, 16),
            "tanh": nn.Tanh(),
            "head": nn.Linear(16, 2),
        }
    )


def marked(n: int = 36, seed: int = 0, *, sided: bool) -> tuple[np.ndarray, np.ndarray]:
    """Noise with a bright bar: at the top or at the bottom, at either side; or, ``sided``, on the left or the right."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    x = rng.integers(0, 150, (n, 8, 8, 3))
    side = rng.integers(0, 2, n)
    for i in range(n):
        down, right = (side[i], y[i]) if sided else (y[i], side[i])
        x[i, 5 * down : 5 * down + 3, 5 * right : 5 * right + 3] += 105
    return x.astype(np.uint8), y


def fitted(x: np.ndarray, y: np.ndarray, **params: Any) -> LQFClassifier:
    return classifier(backbone=network(), size=8, squash=True, **params).fit(x, y)


def the_choice(model: LQFClassifier) -> dict[str, Any]:
    (entry,) = [c for c in model.report_["choices"] if c["what"] == "views"]
    return entry


@pytest.mark.parametrize("solver", ["head", "dense", "pcg"])
def test_mirror_images_are_kept_where_they_help(solver: str) -> None:
    x, y = marked(sided=False)
    exact = {"tol": 1e-9, "max_passes": 300} if solver == "pcg" else {}
    auto, flip, none = (fitted(x, y, solver=solver, views=v, **exact) for v in ("auto", "flip", "none"))
    entry = the_choice(auto)
    assert (auto.report_["views"], entry["kept"], entry["why"]) == ("flip", "flip", "")
    assert entry["tried"]["flip"]["loss"] < (1 - GAIN) * entry["tried"]["none"]["loss"]
    assert entry["tried"]["none"]["loo_error"] == none.report_["head_loo_error"]
    assert entry["tried"]["flip"]["loo_error"] == flip.report_["head_loo_error"]
    new = marked(10, seed=3, sided=False)[0]
    np.testing.assert_allclose(auto.decision_function(new), flip.decision_function(new), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(auto.leave_one_out().outputs, flip.leave_one_out().outputs, rtol=1e-6, atol=1e-6)
    assert not any(c["what"] == "views" for c in flip.report_["choices"])


@pytest.mark.parametrize("linearize", ["all", "deep"])
def test_mirror_images_are_left_out_where_left_and_right_matter(linearize: str) -> None:
    x, y = marked(sided=True)
    auto, none = (fitted(x, y, views=v, linearize=linearize) for v in ("auto", "none"))
    entry = the_choice(auto)
    assert (auto.report_["views"], entry["kept"], entry["why"]) == ("none", "none", "flip gains too little")
    assert entry["tried"]["flip"]["loo_error"] > 0.3 > entry["tried"]["none"]["loo_error"]
    np.testing.assert_array_equal(auto.decision_function(x), none.decision_function(x))


def test_views_are_chosen_with_a_frozen_prefix_and_a_reduction() -> None:
    """The prefix's activations are made again for the views; a reduction is found on the central views."""
    x, y = pictures(16, 2, side=12)
    net = sequential(
        lambda: {
            "a": nn.Conv2d(3, 6, 3),
            "b": nn.Conv2d(6, 6, 3),
            "pool": nn.AdaptiveAvgPool2d(1),
            "flat": nn.Flatten(),
            "head": nn.Linear(6, 2),
        }
    )
    params = {"backbone": net, "size": 10, "pooling": "bilinear", "pool_channels": 3, "linearize": "b"}
    flip, none = (classifier(views=v, **params).fit(x, y) for v in ("flip", "none"))
    same = [m.fitted_.backbone.body.get_submodule("pool").reduction for m in (flip, none)]
    torch.testing.assert_close(*same, rtol=1e-9, atol=1e-9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lqf.fitting.select_views.worth_it", lambda *_: True)
        auto = classifier(**params).fit(x, y)
    np.testing.assert_allclose(auto.decision_function(x), flip.decision_function(x), rtol=1e-7, atol=1e-7)


def test_a_solve_that_would_take_too_long_has_no_extra_views(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lqf.fitting.select_views.BEARABLE", 0.0)
    x, y = marked(sided=False)
    auto = fitted(x, y)
    entry = the_choice(auto)
    assert (entry["kept"], auto.report_["views"]) == ("none", "none")
    assert entry["why"].startswith("flip: dense: ")
    np.testing.assert_array_equal(auto.decision_function(x), fitted(x, y, views="none").decision_function(x))


def test_a_kernel_that_only_fits_without_views_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def cost(problem: QuadraticProblem, rates: Any, memory: int, **_: Any) -> Plan:
        return Plan("dense", 1.0, len(problem.targets), 1 << 28, "dense")

    monkeypatch.setattr("lqf.solvers.planner.cost_dense", cost)
    monkeypatch.setattr(
        "lqf.fitting.pose._plan",
        lambda t: plan(t.quadratic, "dense", Rates.measure(t.quadratic, t.quadratic), 50),
    )
    auto = fitted(*marked(36, sided=False))  # 36 rows without views, 72 with them
    entry = the_choice(auto)
    assert (entry["kept"], entry["why"]) == ("none", "flip needs too much memory")
    assert auto.report_["views"] == "none"


def test_a_saved_model_keeps_its_views(tmp_path: Path) -> None:
    model = fitted(*marked(sided=False))
    model.save(tmp_path / "run")
    loaded = LQFClassifier.load(tmp_path / "run", backbone=network(), device="cpu")
    assert (loaded.views, loaded.fitted_.preprocess.views) == ("auto", "flip")
    new = marked(10, seed=3, sided=False)[0]
    np.testing.assert_array_equal(loaded.decision_function(new), model.decision_function(new))


def test_a_resumed_fit_has_the_views_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = marked(sided=False)
    params = {"backbone": network(), "size": 8, "squash": True, "solver": "pcg", "tol": 1e-9}
    save = Checkpoint.save
    monkeypatch.setattr(Checkpoint, "save", lambda self, vectors, state, force=False: save(self, vectors, state, True))
    begun = classifier(**params, max_passes=4, unconverged="keep").fit(x, y, checkpoint=tmp_path / "kept")
    assert begun.report_["views"] == "flip"
    monkeypatch.setattr("lqf.fitting.select_views.BEARABLE", 0.0)  # as if the machine were busier now
    after = classifier(**params, max_passes=300).fit(x, y, checkpoint=tmp_path / "kept", resume=True)
    assert after.report_["views"] == "flip"
    whole = classifier(**params, max_passes=300, views="flip").fit(x, y)
    np.testing.assert_allclose(after.decision_function(x), whole.decision_function(x), rtol=1e-5, atol=1e-5)


def test_tensors_and_random_crops_have_no_mirror_images() -> None:
    assert classifier().fit(*data()).report_["views"] == "none"
    x, y = marked(sided=False)
    crops = fitted(x, y, solver="sgd", epochs=1, augment="crop")
    assert crops.report_["views"] == "none"
    assert [c["what"] for c in crops.report_["choices"]] == ["weight decay (head)", "weight decay (body)"]


def test_only_a_clear_gain_is_worth_the_views() -> None:
    def at(loss: float) -> Trial:
        return Trial(1.0, 1.0, loss, 0.1)

    assert worth_it(at(1.0), at(0.9))
    assert not worth_it(at(1.0), at(0.999))
    assert not worth_it(at(1.0), at(float("inf")))
    assert not worth_it(at(float("inf")), at(float("nan")))


def test_views_of_too_many_images_are_not_tried() -> None:
    assert reason_against(200, 1280, 4, 1 << 33, "cpu") == ""
    assert "20,000 rows" in reason_against(20_000, 32_896, 4, 1 << 40, "cpu")
    assert "memory" in reason_against(4000, 32_896, 4, 1 << 20, "cuda")


@pytest.mark.parametrize("stage", ["all", "deep"])
def test_more_views_are_added_to_those_that_are_known(stage: str) -> None:
    """Whether the activations before a stage are kept or not, every row has the features that it has alone."""
    preprocess = Preprocess(size=8, resize=10)
    images = open_images(load_samples(*pictures(9)), preprocess)
    context = Context(Settings(dtype="float64", linearize=stage, views="none"), torch.device("cpu"))
    head = select_pooling(TrainingSet.of(images, preprocess, context), load_backbone(convnet()))
    grown = in_views(in_views(head, "flip"), "crops5")
    at_once = Encoder(head.data.with_views("crops5"), grown.backbone).features()
    assert grown.features.shape == (45, head.features.shape[1])
    torch.testing.assert_close(grown.features, at_once, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(grown.features[::5], head.features, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(grown.encoder.features(), at_once, rtol=1e-12, atol=1e-12)


# --- the images ----------------------------------------------------------------------------------------------------


def test_views_share_the_pixels() -> None:
    plain = Preprocess(size=8, resize=10)
    images = open_images(load_samples(*pictures(6)), plain)
    both = with_views(images, Preprocess(size=8, resize=10, views="flip"))
    assert (images.n_views, both.n_views) == (1, 2)
    assert both.store is images.store
    assert torch.equal(both.batch(range(6), 1), images.batch(range(6)).flip(-1))
    with pytest.raises(LQFError, match="need pictures"):
        with_views(open_images(load_samples(*data(), tensors="normalized"), plain), Preprocess(views="flip"))


def test_a_part_of_the_images() -> None:
    images = open_images(load_samples(*pictures(6)), Preprocess(size=8, resize=10, views="flip"))
    part = select_images(images, np.array([1, 3, 4]))
    assert (len(part), part.samples.ids) == (3, tuple(images.samples.ids[i] for i in (1, 3, 4)))
    assert part.hashes == tuple(images.hashes[i] for i in (1, 3, 4))
    assert torch.equal(part.batch([0, 2], 1), images.batch([1, 4], 1))
    again = select_images(part, np.array([False, True, True]))
    assert torch.equal(again.batch(range(2)), images.batch([3, 4]))
    assert torch.equal(part.whole([1]), images.whole([3]))
    tensors = open_images(load_samples(*data(6), tensors="normalized"), Preprocess())
    assert torch.equal(select_images(tensors, np.array([5])).batch([0]), tensors.batch([5]))
