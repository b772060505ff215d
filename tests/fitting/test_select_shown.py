"""Which views speak for an image: those with the lowest out-of-sample loss, or those that were asked for."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lqf.data import Preprocess
from lqf.errors import LQFError
from lqf.fitting.select_shown import Shown, given_shown, select_shown
from lqf.settings import Settings, begins_with, view_count

N, C = 6, 3
TARGETS = torch.eye(C, dtype=torch.float64)[torch.arange(N) % C]


def losses(outputs: Tensor) -> Tensor:
    """Squared distance to the targets."""
    return (outputs - TARGETS).square().sum(1)


def rows(*errors: float) -> Tensor:
    """(N, V, C): every view is so far from the target, all in the same direction."""
    return TARGETS[:, None] + torch.tensor(errors, dtype=torch.float64)[:, None]


def shown(rows: Tensor, views: str, predict_views: str = "auto") -> Shown:
    return select_shown(rows, views, Settings(predict_views=predict_views), losses)


def assert_shows(found: Shown, views: str, outputs: Tensor) -> None:
    assert found.views == views
    torch.testing.assert_close(found.outputs, outputs, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("errors", "best", "count"),
    [
        ((3.0, 3.0, -3.0, -3.0), "crops4", 4),
        ((2.0, -2.0, 1.0, 5.0), "flip", 2),
        ((0.0, 2.0, 1.0, 5.0), "none", 1),
        ((1.0, -1.0, 2.0, -2.0), "crops4", 4),
        ((0.0, 0.0, 1.0, 1.0), "flip", 2),
    ],
    ids=["all", "mirrored", "centre", "all of equals", "two of equals"],
)
def test_the_views_with_the_lowest_loss_speak(errors: tuple[float, ...], best: str, count: int) -> None:
    made = rows(*errors)
    assert_shows(shown(made, "crops4"), best, made[:, :count].mean(1))
    assert_shows(shown(made, "resized"), "resized" if best == "crops4" else best, made[:, :count].mean(1))


def test_the_mean_over_the_samples_decides() -> None:
    """Most samples prefer the centre, one all views, by far."""
    made = rows(1.0, 1.1, 1.1)
    made[0, 0], made[0, 1:] = TARGETS[0] + 6.0, TARGETS[0] - 3.0
    assert shown(made, "crops3").views == "crops3"
    made[0] = made[1] - TARGETS[1] + TARGETS[0]
    assert shown(made, "crops3").views == "none"


@pytest.mark.parametrize(("asked", "count"), [("none", 1), ("flip", 2), ("same", 4)])
def test_views_that_are_asked_for_speak_whatever_their_loss(asked: str, count: int) -> None:
    for errors in ((0.0, 5.0, 5.0, 5.0), (5.0, -5.0, 5.0, 5.0), (5.0, 5.0, -5.0, -5.0)):
        made = rows(*errors)
        assert_shows(shown(made, "crops4", asked), "crops4" if asked == "same" else asked, made[:, :count].mean(1))


@pytest.mark.parametrize("views", ["none", "flip", "five", "ten"])
@pytest.mark.parametrize("asked", ["auto", "same"])
def test_few_views_and_corners_speak_for_themselves(views: str, asked: str) -> None:
    made = rows(0.0, *[1.0] * (view_count(views) - 1))  # the centre alone would be the best
    assert_shows(shown(made, views, asked), views, made.mean(1))


@pytest.mark.parametrize("views", ["none", "five", "ten"])
def test_mirror_images_do_not_speak_where_the_first_views_are_others(views: str) -> None:
    """The second of five crops is a corner; a climb begins with the centre alone, whatever is asked for."""
    made = rows(*range(view_count(views)))
    assert_shows(shown(made, views, "flip"), views, made.mean(1))
    assert_shows(shown(made, views, "none"), "none", made[:, 0])


def test_samples_whose_loss_is_not_known_have_no_say() -> None:
    made = rows(1.0, -1.0, 4.0)
    made[:2] = TARGETS[:2, None] + torch.tensor([50.0, 50.0, -100.0]).double()[:, None]  # all views would be the best
    unknown = made.clone()
    unknown[:2] = torch.nan

    def some(outputs: Tensor) -> Tensor:
        return torch.where(torch.arange(N) < 2, torch.nan, losses(outputs))

    assert shown(made, "crops3").views == "crops3"
    assert select_shown(made, "crops3", Settings(), some).views == "flip"
    found = shown(unknown, "crops3")
    assert found.views == "flip"
    assert torch.equal(found.outputs.isnan().any(1), torch.arange(N) < 2)


def test_samples_count_by_their_weights() -> None:
    made = rows(1.0, -1.0, 0.3)
    made[:2] = TARGETS[:2, None] + torch.tensor([2.0, 2.0, -4.0]).double()[:, None]  # these want all three
    weights = torch.ones(N)
    assert select_shown(made, "crops3", Settings(), losses, weights).views == "crops3"
    weights[:2] = 1e-4
    assert select_shown(made, "crops3", Settings(), losses, weights).views == "flip"


def test_where_no_loss_is_known_all_views_speak() -> None:
    made = rows(0.0, 1.0, 2.0)
    found = select_shown(made, "crops3", Settings(), lambda outputs: torch.full((N,), torch.nan))
    assert_shows(found, "crops3", made.mean(1))


# --- of a model that is named -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("views", ["none", "flip", "five", "ten", "resized", "crops8"])
def test_of_a_named_model_all_views_speak_unless_others_are_asked_for(views: str) -> None:
    given: dict[str, Any] = {"solver": "dense"}
    assert given_shown(views, Settings(**given)) is None
    assert given_shown(views, Settings(**given, predict_views="same")) is None
    assert given_shown(views, Settings(**given, predict_views="none")) == "none"
    if views in ("flip", "resized", "crops8"):
        assert given_shown(views, Settings(**given, predict_views="flip", views=views)) == "flip"


@pytest.mark.parametrize("views", ["none", "five", "ten"])
def test_views_that_were_not_trained_on_are_refused(views: str) -> None:
    sentence = (
        "predict_views 'flip' averages over the centre of an image and its mirror image, with which views "
        f"'{views}' do not begin; choose views flip, resized or crops8, or predict_views none or same"
    )
    with pytest.raises(LQFError) as error:
        given_shown(views, Settings(solver="dense", predict_views="flip"))
    assert str(error.value) == sentence
    with pytest.raises(LQFError) as error:
        Settings(views=views, predict_views="flip")
    assert str(error.value) == sentence


def test_views_begin_with_others_where_they_are_cut_out_at_the_same_place() -> None:
    every = ("none", "flip", "five", "ten", "resized", "crops3", "crops8")
    for views in every:
        for first in ("none", "flip"):
            cut = [
                [Preprocess(size=8, views=v).window(i) for i in range(min(2, view_count(v)))] for v in (views, first)
            ]
            assert begins_with(views, first) == (cut[0][: view_count(first)] == cut[1])
    assert [v for v in every if begins_with(v, "flip")] == ["flip", "resized", "crops3", "crops8"]
