"""Reports of fine-tuned networks, of stacks with them, and of climbs that choose a weight decay for every stage."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from finetuned_models import CROPPED, training, tuned_model
from fits import classifier, convnet, photos, pictures
from html_reader import Reader, assert_needs_nothing_else
from lqf import LQFClassifier
from lqf.backbones import load_backbone
from lqf.fitting import FittedModel, Model, ladder
from lqf.fitting.assemble import assemble_head
from lqf.fitting.rungs.finetuned import FineTunedRung
from lqf.fitting.rungs.rung import NotNow
from lqf.fitting.select_pooling import candidate_heads
from lqf.fitting.select_views import in_views
from lqf.reports import report
from lqf.reports.report import collect
from refitted_stacks import stack_of
from stacks import rung

pytest.importorskip("jinja2")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("photos")
    return photos(folder / "train", 8), photos(folder / "test", 5, seed=1)


def adopted(model: Model) -> LQFClassifier:
    found = classifier(backbone=convnet(), size=8)
    found._adopt(model)
    return found


def head_of(train: Path, pooling: str, views: str, shown: str) -> FittedModel:
    """A closed-form head in some views."""
    given = training(str(train), pooling=pooling, pool_channels=3, solver="head")
    (head,) = candidate_heads(given, load_backbone(convnet()), pooling)
    return assemble_head(head if views == "none" else in_views(head, views), shown)


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", Reader(html).text.replace("\u202f", " "))


def test_a_fine_tuned_network_has_a_whole_report(data: tuple[Path, Path]) -> None:
    train, test = data
    model = tuned_model(str(train), shown="flip")
    html = collect(adopted(model), train=str(train), test=str(test)).page("a network")
    assert_needs_nothing_else(html)
    text = text_of(html)
    for said in (
        "by fine-tuning all weights from its closed-form head on",
        "by networks that were made up",
        "a closed-form head on the features of the fine-tuned network, which is held fixed",
        "Fine-tuned in 3 epochs, at a learning rate of",
        "(of the head that it began with)",
        "Why it predicts",
    ):
        assert said in text
    assert "linearisation point" not in text.lower()


def test_a_stack_with_a_fine_tuned_member_says_what_that_does_not_answer(data: tuple[Path, Path]) -> None:
    train, test = data
    stack = stack_of([head_of(train, "both", "none", "none"), tuned_model(str(train), shown="crops4")], (0.4, 0.6))
    members = {"rung 0": 0.4, "fine-tuned": 0.6}
    climb = (rung("head", 0.2, 0.5), rung("stack", 0.1, 0.4, 0.1, solver="stack", members=members))
    object.__setattr__(stack.report, "rungs", climb)
    object.__setattr__(stack.report, "solver", "stack")
    html = collect(adopted(stack), train=str(train), test=str(test)).page("a stack")
    text = text_of(html)
    for said in ("or by fine-tuning all weights", "without an answer of rung 1 (60%), which stays as it is"):
        assert said in text


@pytest.mark.parametrize("kind", ["a stack", "fine-tuned", "fewer views"])
def test_training_and_test_images_are_compared_by_the_same_features(
    data: tuple[Path, Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = data[0]
    made: dict[str, Any] = {
        "a stack": lambda: stack_of([head_of(train, "both", "none", "none"), model("crops4")], (0.4, 0.6)),
        "fine-tuned": lambda: model("crops4"),
        "fewer views": lambda: head_of(train, "avg", "crops8", "flip"),
    }
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    monkeypatch.setattr(report, "measure_shift", lambda known, new, *_: seen.append((known, new)))

    def model(shown: str) -> FittedModel:
        return tuned_model(str(train), shown=shown)

    collect(adopted(made[kind]()), train=str(train), test=str(train))  # the same images
    ((known, new),) = seen
    assert len(known) == 16
    assert float(known.std()) > 0
    torch.testing.assert_close(new, known, rtol=1e-9, atol=1e-9)


# --- weight decays of stages ------------------------------------------------------------------------------------------


def test_a_climb_with_a_weight_decay_for_every_stage_draws_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lqf.evaluation.paired.LEAST_GAIN", -10.0)  # all are kept
    monkeypatch.setattr(FineTunedRung, "attempt", lambda *_: (_ for _ in ()).throw(NotNow("")))
    kept: dict[str, Model] = {}
    x, y = pictures(24)
    auto = classifier(backbone=convnet(), size=8, views="none", solver="auto", effort="standard", pooling="avg")
    auto.fit(x, y, keep=lambda m: kept.__setitem__(ladder.rung_of(m), m))
    lqf = kept["LQF"]
    (choice,) = [c for c in lqf.report.choices if c["what"] == "weight decay (stages)"]
    assert list(choice["strengths"]) == ["conv", "bn", "deep"]
    assert choice["kept"] == "one per stage"
    for k, stage in enumerate(choice["strengths"]):
        total = lqf.report.ridge.stages[k][1] / choice["strengths"][stage]
        assert total == pytest.approx(24)
    html = collect(adopted(lqf), train=x).page("a climb")
    drawn = html.split('aria-label="weight decay (stages)"')[1].split("</svg>")[0]
    for stage, decay in {**choice["strengths"], "head": choice["head"]}.items():
        assert f"<title>{stage}: weight decay {decay:.3g}</title>" in drawn
        assert re.search(rf">{stage}</text>", drawn)
    text = text_of(html)
    assert "Weight decay (stages)." in text
    for name, found in choice["tried"].items():
        assert f"{name} {found['loss']:.3f}" in text
    assert lqf.preprocess == CROPPED
