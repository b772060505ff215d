"""Moving the linearisation point: each step is what one does by hand, the moved network is saved, nothing flatters."""

import json
import weakref
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from collector import no_collector
from dense import optimum
from fits import (
    CPU,
    FIXED,
    brute_outputs,
    classifier,
    convnet,
    data,
    network,
    opened,
    outline,
    pictures,
    problem_of,
    reopened,
)
from lqf import LQFClassifier
from lqf.backbones import load_backbone
from lqf.backbones.state import flat_state, is_moved, with_flat_state
from lqf.data import Preprocess, load_samples, open_images
from lqf.errors import LQFError
from lqf.fast import FastLinearization
from lqf.fast.engine import Engine
from lqf.fitting import relinearize, solve
from lqf.fitting.checkpoint import Checkpoint
from lqf.fitting.relinearize import finetuned_encoder, follows, stepped
from lqf.fitting.strengths import Strengths, Used
from lqf.fitting.training_problem import TrainingProblem
from lqf.kernels.tangent import Kernels
from lqf.linear.inputs import average_views
from lqf.linear.ridge import Ridge
from lqf.settings import Settings

X, Y = data(24, signal=0.7)
NEW = data(9, seed=5)[0]
TIGHT = {"rtol": 1e-7, "atol": 1e-7}
PLAIN = Preprocess()


def _pretrained(**params: Any) -> TrainingProblem:
    settings = Settings(solver="dense", dtype="float64", **params)
    return outline(settings, load_backbone(network()), opened(X, Y, PLAIN), PLAIN)


def moved_by_hand(steps: int, x: np.ndarray = X, y: np.ndarray = Y, **params: Any) -> tuple[Any, torch.Tensor]:
    """The last problem and its optimum from the dense Jacobian, with fixed weight decays."""
    settings = Settings(solver="dense", dtype="float64", **FIXED, **params)
    backbone, images, n = load_backbone(network()), opened(x, y, PLAIN), len(x)
    for _ in range(steps + 1):
        training = outline(settings, backbone, images, PLAIN, 0.1 * n)
        problem = training.quadratic.with_ridge(Ridge(0.1 * n, 0.2 * n))
        best = optimum(problem)
        backbone = stepped(training.head_fit.backbone, settings.linearize, problem.model.split(best)[1])
    return problem, best


@pytest.mark.parametrize("steps", [1, 2])
def test_a_step_is_what_one_does_by_hand(steps: int) -> None:
    model = classifier(relinearize=steps, loo="none", **FIXED).fit(X, Y)
    problem, best = moved_by_hand(steps)
    expected = brute_outputs(problem, best, torch.tensor(NEW))
    np.testing.assert_allclose(model.decision_function(NEW), expected, **TIGHT)
    assert model.report_["moved"] == {"steps": [1.0] * steps}
    still = classifier(loo="none", **FIXED).fit(X, Y)
    assert still.report_["moved"] is None
    assert not np.allclose(still.decision_function(NEW), expected, atol=1e-2)


def test_a_step_moves_the_linearised_weights_by_delta_and_no_others() -> None:
    first = classifier(linearize="second", loo="none", **FIXED).fit(X, Y).fitted_
    moved = classifier(linearize="second", relinearize=1, loo="none", **FIXED).fit(X, Y).fitted_
    a, b = (dict(f.backbone.body.named_parameters()) for f in (first, moved))
    assert torch.equal(a["first.weight"], b["first.weight"])
    change = torch.cat([(b[n] - a[n]).reshape(-1) for n in ("second.weight", "second.bias")])
    torch.testing.assert_close(change, first.delta, rtol=1e-9, atol=1e-12)
    assert not is_moved(first.backbone)


def test_a_step_over_which_the_network_does_not_follow_is_halved() -> None:
    """With a hardly penalised body the linear model's solution is far away, where the network is another one."""
    params = {"weight_decay": 0.1, "body_weight_decay": 1e-4, "loo": "none", "head": "probe"}
    model = classifier(relinearize=1, **params).fit(X, Y)
    (length,) = model.report_["moved"]["steps"]
    assert length < 1
    first = classifier(**params).fit(X, Y).fitted_
    training = _pretrained()
    backbone, body, x = training.head_fit.backbone, training.model.body, torch.tensor(X)
    for eta, good in ((length, True), (2 * length, False)):
        z, change = body.jvp(x, eta * first.delta)
        gap, linear = follows(z, change, stepped(backbone, "all", first.delta, eta).body(x)).tolist()
        assert (gap <= linear) == good
    change = flat_state(model.fitted_.backbone.body) - flat_state(backbone.body)
    torch.testing.assert_close(change, length * first.delta, rtol=1e-6, atol=1e-9)


def test_all_solvers_take_the_same_steps() -> None:
    dense, pcg = (
        classifier(solver=s, relinearize=1, loo="none", tol=1e-11, max_passes=400, **FIXED).fit(X, Y)
        for s in ("dense", "pcg")
    )
    np.testing.assert_allclose(pcg.decision_function(NEW), dense.decision_function(NEW), rtol=1e-5, atol=1e-5)


def counting_at_every_move(monkeypatch: pytest.MonkeyPatch, made: list[Any]) -> list[int]:
    """How many of the objects behind these weak references are alive whenever a network is linearised again."""
    around, alive = relinearize._around, []

    def counted(*args: Any) -> Any:
        alive.append(sum(found() is not None for found in made))
        return around(*args)

    monkeypatch.setattr(relinearize, "_around", counted)
    return alive


def test_a_step_holds_no_recorded_passes_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[FastLinearization]] = []
    make = FastLinearization.__init__

    def remembered(self: FastLinearization, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        made.append(weakref.ref(self))

    monkeypatch.setattr(FastLinearization, "__init__", remembered)
    alive = counting_at_every_move(monkeypatch, made)
    with no_collector():
        classifier(**FIXED, solver="pcg", relinearize=2, loo="none").fit(*data())
    assert made
    assert alive == [0, 0]


def test_no_kernels_but_the_present_ones_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Kernels]] = []
    make = solve.exact_kernels

    def remembered(*args: Any, **options: Any) -> Kernels:
        kernels = make(*args, **options)
        made.append(weakref.ref(kernels))
        return kernels

    monkeypatch.setattr(solve, "exact_kernels", remembered)
    alive = counting_at_every_move(monkeypatch, made)
    with no_collector():
        classifier(**FIXED, relinearize=2, loo="none").fit(X, Y)
    assert alive == [0, 0]
    assert len(made) == 3


def test_whole_refits_find_the_memory_of_kept_activations_free(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    release, replay = Engine.release, relinearize.replay
    monkeypatch.setattr(Engine, "release", lambda self: (order.append("released"), release(self))[1])
    monkeypatch.setattr("lqf.fitting.refits.replay", lambda *args: (order.append("refits"), replay(*args))[1])
    classifier(**FIXED, solver="pcg", relinearize=1).fit(X, Y)
    assert order[order.index("refits") - 1] == "released"


def test_strengths_keep_their_size_relative_to_the_kernels() -> None:
    model = classifier(relinearize=1, loo="none").fit(X, Y)
    still = classifier(loo="none").fit(X, Y)
    scales = [reopened(m, X, Y).head.ridge.scale for m in (model, still)]
    relative = [m.report_["weight_decay"] / s for m, s in zip((model, still), scales, strict=True)]
    assert relative[0] == pytest.approx(relative[1], rel=1e-9)
    assert scales[0] != pytest.approx(scales[1], rel=1e-4)
    assert [c["what"] for c in model.report_["choices"]] == ["weight decay (head)", "weight decay (body)"]
    assert model.report_["choices"] == still.report_["choices"]
    assert model.report_["head_loo_error"] == still.report_["head_loo_error"]


def test_given_weight_decays_are_used_at_every_step() -> None:
    report = classifier(relinearize=2, loo="none", **FIXED).fit(X, Y).report_
    assert report["weight_decay"] == pytest.approx(FIXED["weight_decay"])
    assert report["body_weight_decay"] == pytest.approx(FIXED["body_weight_decay"])
    w0 = classifier(relinearize=1, loo="none", form="w0").fit(X, Y).report_
    assert w0["weight_decay"] == w0["body_weight_decay"]


def test_strengths_in_other_units() -> None:
    used = Used(2.0, 3.0, 12.0, (("a", 24.0), ("b", 6.0)))
    strengths = Strengths.of(used, 10.0, 10.0, 8.0)
    auto = strengths.at(20.0, 4.0, Settings(), 5.0)
    assert (auto.head, auto.body) == (6.0, pytest.approx(12.0))
    assert dict(auto.stages) == pytest.approx({"a": 24.0, "b": 6.0})
    assert strengths.point_at(20.0, Settings(), 5.0) == 4.0
    given = strengths.at(20.0, 4.0, Settings(weight_decay=2.0), 5.0)
    assert (given.head, given.body) == (10.0, pytest.approx(20.0))
    assert dict(given.stages) == pytest.approx({"a": 40.0, "b": 10.0})
    assert strengths.point_at(20.0, Settings(weight_decay=2.0), 5.0) == 10.0
    assert Used(**json.loads(json.dumps(asdict(used)))) == used
    assert Strengths(**json.loads(json.dumps(asdict(strengths)))) == strengths


# --- the error on unseen data ----------------------------------------------------------------------------------------


def test_refits_go_the_whole_way_without_the_fold() -> None:
    model = classifier(relinearize=1, **FIXED).fit(X, Y)
    loo = model.leave_one_out()
    assert (loo.level, loo.note) == ("estimated", "by refits without each of 5 folds, from the pretrained weights on")
    folds = _pretrained().data.folds
    for k in (0, 3):
        keep = (folds != k).numpy()
        part = classifier(relinearize=1, loo="none", **_fixed_for(keep)).fit(X[keep], Y[keep])
        torch.testing.assert_close(loo.outputs[~keep], torch.tensor(part.decision_function(X[~keep])), **TIGHT)


def test_a_few_folds_are_enough_for_many_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lqf.fitting.refits.ENOUGH", 8)
    few, every = (classifier(relinearize=1, loo=way, **FIXED).fit(X, Y).leave_one_out() for way in ("auto", "folds"))
    assert few.note.startswith("by refits without 2 of 5 folds, from the pretrained weights on; ")
    known = torch.isfinite(few.outputs).all(1)
    assert 8 <= int(known.sum()) < 24
    torch.testing.assert_close(few.outputs[known], every.outputs[known], **TIGHT)
    assert bool(torch.isfinite(every.outputs).all())


def _fixed_for(keep: np.ndarray) -> dict[str, float]:
    """The same μ for fewer samples."""
    return {k: v * len(keep) / keep.sum() for k, v in FIXED.items()}


@pytest.mark.parametrize("moves", [{"relinearize": 2}, {"finetune_first": 100, "learning_rate": 0.002}])
def test_noise_is_not_predicted_by_a_moved_network(moves: dict[str, Any]) -> None:
    """Leave-one-out around the moved network sees nothing wrong; refits know better."""
    x, y = data(40, 2, seed=3)[0], np.random.default_rng(1).integers(0, 2, 40)
    weak = {"weight_decay": 1e-4, "body_weight_decay": 1e-3}
    honest, kernel = (classifier(**moves, **weak, loo=way).fit(x, y).leave_one_out() for way in ("auto", "kernel"))
    assert honest.error > 0.35
    assert kernel.error < honest.error
    assert kernel.level == "estimated"
    assert kernel.note.endswith("flatters it by an unknown amount")


def test_probabilities_do_not_come_from_flattered_outputs() -> None:
    none, kernel = (classifier(relinearize=1, loo=way).fit(X, Y).fitted_.beta for way in ("none", "kernel"))
    assert none == kernel == pytest.approx(classifier(solver="head").fit(X, Y).fitted_.beta)


def test_views_and_pooling_are_chosen_at_the_pretrained_weights() -> None:
    x, y = pictures(18, side=12)
    params = {"backbone": convnet(), "size": 8, "views": "flip", "pooling": "bilinear", "pool_channels": 3}
    model = classifier(relinearize=1, **params).fit(x, y)
    loo = model.leave_one_out()
    assert loo.outputs.shape == (18, 3)
    assert bool(torch.isfinite(loo.outputs).all())
    pools = [m.fitted_.backbone.body.get_submodule("pool").reduction for m in (model, classifier(**params).fit(x, y))]
    assert torch.equal(*pools)


# --- fine-tuning first ------------------------------------------------------------------------------------------------


def test_fine_tuning_first_is_linearised_where_it_ends() -> None:
    model = classifier(finetune_first=3, loo="none", **FIXED).fit(X, Y)
    tuned = finetuned_encoder(_pretrained(finetune_first=3, **FIXED).encoder).backbone
    torch.testing.assert_close(flat_state(model.fitted_.backbone.body), flat_state(tuned.body).double())
    problem = problem_of(model, X, Y)
    expected = brute_outputs(problem, optimum(problem), torch.tensor(NEW))
    np.testing.assert_allclose(model.decision_function(NEW), expected, **TIGHT)
    assert model.report_["moved"].keys() == {"epochs", "rate"}
    both = classifier(finetune_first=2, relinearize=1, loo="none", **FIXED).fit(X, Y)
    assert both.report_["moved"]["epochs"] == 2
    assert both.report_["moved"]["steps"] == [1.0]


def test_fine_tuning_changes_what_lies_before_the_linearised_stage() -> None:
    model = classifier(finetune_first=2, linearize="second", loo="none", **FIXED).fit(X, Y)
    own = dict(model.fitted_.backbone.body.named_parameters())["first.weight"]
    assert not torch.equal(own, network()[1].weight)
    prefix_first = average_views(model.fitted_.outputs(_opened(NEW), device=CPU, batch_size=4), 1)
    np.testing.assert_allclose(prefix_first, model.decision_function(NEW), rtol=1e-10)


def _opened(x: np.ndarray) -> Any:
    return open_images(load_samples(x, tensors="normalized"), PLAIN)


def test_fine_tuning_that_diverges_says_so() -> None:
    with pytest.raises(LQFError, match=r"diverged at a learning rate of 1e.30; give a smaller one"):
        classifier(finetune_first=30, learning_rate=1e30).fit(X, Y)


def test_a_network_that_no_longer_acts_is_refused() -> None:
    with pytest.raises(LQFError, match="no weight of its body acts"):
        Strengths(1.0, 1.0, 1.0).at(1.0, 0.0, Settings(), 5.0)


# --- on disk ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moves", [{"relinearize": 1}, {"finetune_first": 1}])
def test_a_moved_model_comes_back_without_the_original_weights(tmp_path: Path, moves: dict[str, Any]) -> None:
    model = classifier(**moves, loo="none", **FIXED).fit(X, Y)
    model.save(tmp_path / "run")
    assert (tmp_path / "run" / "backbone.safetensors").is_file()
    other = network(seed=7)  # the same architecture, other weights
    loaded = LQFClassifier.load(tmp_path / "run", backbone=other, device="cpu")
    np.testing.assert_array_equal(loaded.decision_function(NEW), model.decision_function(NEW))
    loaded.save(tmp_path / "again")
    again = LQFClassifier.load(tmp_path / "again", backbone=other, device="cpu")
    np.testing.assert_array_equal(again.decision_function(NEW), model.decision_function(NEW))


def test_moved_bilinear_pooling_and_float32_come_back(tmp_path: Path) -> None:
    x, y = pictures(15, side=12)
    params = {"backbone": convnet().float(), "size": 8, "pooling": "bilinear", "pool_channels": 3, "dtype": "float32"}
    model = classifier(**params, **FIXED, relinearize=1, loo="none").fit(x, y)
    model.save(tmp_path / "run")
    loaded = LQFClassifier.load(tmp_path / "run", backbone=convnet(seed=3), device="cpu")
    np.testing.assert_allclose(loaded.decision_function(x), model.decision_function(x), rtol=1e-6, atol=1e-6)


def test_a_damaged_or_foreign_network_is_refused(tmp_path: Path) -> None:
    classifier(relinearize=1, loo="none", **FIXED).fit(X, Y).save(tmp_path / "run")
    with pytest.raises(LQFError, match="not those of a `module:Sequential`"):
        LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu")
    file = tmp_path / "run" / "backbone.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(LQFError, match=r"damaged: `backbone.safetensors`"):
        LQFClassifier.load(tmp_path / "run", backbone=network(), device="cpu")


def test_a_flat_state_goes_back_and_forth() -> None:
    backbone = load_backbone(convnet())
    flat = flat_state(backbone.body)
    other = with_flat_state(backbone, 2 * flat, {"steps": [1.0]})
    torch.testing.assert_close(flat_state(other.body), 2 * flat)
    torch.testing.assert_close(flat_state(backbone.body), flat)


# --- resuming ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moves", [{"relinearize": 2}, {"finetune_first": 2, "relinearize": 1}])
def test_an_interrupted_fit_of_a_moved_network_continues_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: dict[str, Any]
) -> None:
    params = {"solver": "pcg", "tol": 1e-8, "max_passes": 200, "loo": "none", **FIXED, **moves}
    whole = classifier(**params).fit(X, Y)
    saved, save = [], Checkpoint.save

    def interrupt(self: Checkpoint, vectors: Any, state: Any, force: bool = False) -> None:
        save(self, vectors, state, True)
        saved.append({**state, **self._state})
        if len(saved[-1].get("used", [])) == 1:  # during the second solve
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", interrupt)
        with pytest.raises(KeyboardInterrupt):
            classifier(**params).fit(X, Y, checkpoint=tmp_path / "kept")
    tuned = []
    monkeypatch.setattr("lqf.fitting.relinearize.finetuned_encoder", lambda *_: tuned.append(1))
    after = classifier(**params).fit(X, Y, checkpoint=tmp_path / "kept", resume=True)
    np.testing.assert_allclose(after.decision_function(NEW), whole.decision_function(NEW), rtol=1e-5, atol=1e-5)
    assert after.report_["moved"] == whole.report_["moved"]
    assert not tuned


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"relinearize": -1}, "relinearize is -1; it must be a whole number, 0 or more"),
        ({"finetune_first": 1.5}, "finetune_first is 1.5"),
        ({"relinearize": 1, "solver": "head"}, "solver `head` leaves it as it is"),
    ],
)
def test_what_makes_no_sense_is_refused(params: dict[str, Any], sentence: str) -> None:
    with pytest.raises(LQFError, match=sentence):
        classifier(**params).fit(X, Y)
