"""`model.suggest`: which images it names for each way, and sentences for pools that cannot be used."""

import numpy as np
import pytest
import torch

from finetuned_models import tuned_model
from fits import FIXED, classifier, convnet, data, opened, photos, pictures, reopened
from lqf import LQFClassifier, LQFError
from lqf.selection.covariance import predictive_covariance
from stacks import stacked


@pytest.fixture(scope="module")
def model() -> LQFClassifier:
    return classifier(solver="head").fit(*data(18))


def pool(n: int = 12) -> np.ndarray:
    return data(n, seed=5)[0]


def suggested(model, x, k, **options):
    return model.suggest(x, k, train=data(18)[0], **options)


def test_by_uncertainty_takes_the_smallest_margins(model):
    found = model.suggest(pool(), 4, by="uncertainty")
    p = np.sort(model.predict_proba(pool()), 1)
    scores = 1 - (p[:, -1] - p[:, -2])
    assert found.images.tolist() == np.argsort(-scores, kind="stable")[:4].tolist()
    assert found.value.numpy() == pytest.approx(np.sort(scores)[::-1][:4])


@pytest.mark.parametrize("by", ["information", "both"])
def test_by_information_takes_the_best_next_one(model, by):
    x, y = data(18)
    found = suggested(model, pool(), 5, by=by)
    images = opened(pool(), np.zeros(12, int), model.fitted_.preprocess)
    problem = reopened(model, x, y)
    u = predictive_covariance(model.fitted_, problem, problem.encode(images))
    sigma, p = u.covariance.whole, torch.tensor(model.predict_proba(pool()))
    weights = torch.ones(12).double() if by == "information" else 1 - p.square().sum(1)
    chosen: list[int] = []
    for image in found.images.tolist():
        told = {i: reduction(sigma, u.noise, weights, [*chosen, i]) for i in range(12) if i not in chosen}
        assert image == max(told, key=told.__getitem__)
        chosen.append(image)
    assert float(found.value.sum()) == pytest.approx(told[image] / float(weights @ sigma.diagonal()), abs=1e-9)
    assert found.level == "exact"


def reduction(sigma: torch.Tensor, noise: float, weights: torch.Tensor, images: list[int]) -> float:
    """Of the weighted variance, by labels of these images."""
    block = sigma[images][:, images] + noise * torch.eye(len(images)).double()
    return float(weights @ (sigma[:, images] @ torch.linalg.solve(block, sigma[images])).diagonal())


def test_rows_have_path_rank_score_and_class(tmp_path):
    folder, new = photos(tmp_path / "train"), photos(tmp_path / "new", seed=3)
    model = LQFClassifier("mobilenet_v2", weights="random", size=32, solver="head", device="cpu", verbose=0).fit(folder)
    found = model.suggest(new, 3)
    rows = found.rows()
    assert [r["rank"] for r in rows] == [1, 2, 3]
    assert all((tmp_path / "new") in (tmp_path / r["path"]).parents for r in rows)
    assert {r["predicted"] for r in rows} <= {"blue", "green"}
    assert found.to_dict()["suggestions"][0]["id"] == found.ids[0]
    assert "3 images of 8 by both" in repr(found)


def test_a_stack_predicts_and_its_largest_member_knows_what_is_uncertain(model):
    x, y = data(18)
    dense = classifier(**FIXED).fit(x, y)
    stack = classifier(solver="head")
    stack._adopt(stacked({"head": model, "LQF": dense}, (0.4, 0.6)))
    a, b = (m.suggest(pool(), 4, by="information", train=x) for m in (stack, dense))
    assert a.images.tolist() == b.images.tolist()
    assert a.predicted == tuple(map(str, stack.predict(pool())[a.images.numpy()]))


def test_a_fine_tuned_network_answers_by_a_head_on_its_features():
    x, y = pictures(24)
    model = classifier(backbone=convnet(), size=8)
    model._adopt(tuned_model(x, y))
    found = model.suggest(pictures(8, seed=9)[0], 2, by="information", train=x)
    assert (len(found), found.level) == (2, "estimated")


def test_images_of_the_training_set_are_refused(model):
    x = np.concatenate([pool(3), data(18)[0][4:5]])
    with pytest.raises(LQFError, match=r"1 image of the pool .* is among the training images, by the contents: `3`"):
        suggested(model, x, 2)


def test_copies_in_the_pool_are_taken_once(model):
    x = pool(4)
    found = suggested(model, np.concatenate([x, x[:2]]), 4)
    assert sorted(found.images.tolist()) == [0, 1, 2, 3]
    assert found.copies == ("4", "5")
    with pytest.raises(LQFError, match="5 images of 4 different images"):
        suggested(model, np.concatenate([x, x[:2]]), 5)


def test_sentences_for_bad_input(model):
    with pytest.raises(LQFError, match=r"13 images of 12 images .* cannot be chosen; give k = 12 or less"):
        suggested(model, pool(), 13)
    with pytest.raises(LQFError, match="k is 0; give a whole number"):
        suggested(model, pool(), 0)
    with pytest.raises(LQFError, match="by is 'chance'; choose one of information, uncertainty, both"):
        suggested(model, pool(), 2, by="chance")
    with pytest.raises(LQFError, match="fitted on data in memory"):
        model.suggest(pool(), 2)
