"""The training data are opened again and must be those of the fit; otherwise a sentence names the files."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fits import FIXED, classifier, convnet, data, photos, pictures
from lqf import LQFClassifier, LQFError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return photos(tmp_path / "train")


def fitted(folder: Path) -> LQFClassifier:
    return classifier(backbone=convnet(), solver="head", size=32).fit(folder)


def test_a_saved_model_finds_its_data(folder: Path, tmp_path: Path) -> None:
    model = fitted(folder)
    before = model.influence(folder / "blue" / "0.png").effects
    model.save(tmp_path / "run")
    loaded = LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu")
    assert loaded.fitted_.train.source == str(folder)
    torch.testing.assert_close(loaded.influence(folder / "blue" / "0.png").effects, before)
    moved = folder.rename(tmp_path / "moved")
    again = LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu")
    with pytest.raises(LQFError, match=r"no longer at `.*train`; say where they are now with train="):
        again.analyse()
    torch.testing.assert_close(again.analyse(moved).influence(moved / "blue" / "0.png").effects, before)


def test_other_data_are_told_what_to_give(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = photos(tmp_path / "other", classes=("cat", "dog"))
    with pytest.raises(
        LQFError, match=r"other` has none of the 8 images .*`blue/0.png`.* of that fit, which was `.*train`"
    ):
        fitted(folder).analyse(other)
    x, y = pictures(6)
    with pytest.raises(LQFError, match=r"has none of the 6 images .* or the arrays: in Python, with train="):
        classifier(backbone=convnet(), solver="head", size=8).fit(x, y).analyse(other)
    monkeypatch.chdir(tmp_path)
    model = fitted(Path("train"))
    monkeypatch.chdir(other)
    with pytest.raises(
        LQFError, match=rf"no longer at `train` \(seen from `{other}`\); say where they are now with train="
    ):
        model.analyse()


def test_new_files_do_not_matter(folder: Path) -> None:
    model = fitted(folder)
    before = model.leave_one_out().outputs
    Image.new("RGB", (40, 40)).save(folder / "blue" / "new.png")
    torch.testing.assert_close(model.analyse().leave_one_out().outputs, before.double())


def test_changed_and_missing_files_are_named(folder: Path) -> None:
    model = fitted(folder)
    Image.new("RGB", (36, 36)).save(folder / "blue" / "1.png")
    with pytest.raises(LQFError, match=r"1 image of .*train.* changed since the model was fitted: `blue/1.png`"):
        model.analyse()
    (folder / "green" / "2.png").unlink()
    with pytest.raises(LQFError, match=r"cannot be found in .*: `green/2.png`; restore them, or fit again"):
        model.analyse()


def test_arrays_are_given_again() -> None:
    x, y = data()
    model = classifier(**FIXED).fit(x, y)
    with pytest.raises(LQFError, match=r"fitted on data in memory, .* give them again with train="):
        model.influence(x[:1])
    other = y.copy()
    other[4] = 2
    with pytest.raises(LQFError, match=r"labels of `4` in the array are not those the model was fitted with"):
        model.analyse(x, other)
    z = x.copy()
    z[3] += 1
    with pytest.raises(LQFError, match=r"1 image of the array changed since the model was fitted: `3`"):
        model.analyse(z)
    assert model.analyse(x, y) is model.analysis_
    assert model.influence(x[:2]).query_ids == ("0", "1")


@pytest.mark.parametrize(
    ("keep", "sentence"), [("all", "features of the training images"), ("none", "linearisation point")]
)
@pytest.mark.parametrize("solver", ["dense", "pcg"])
def test_another_network_is_noticed(solver: str, keep: str, sentence: str) -> None:
    x, y = data()
    model = classifier(solver=solver, loo="none", keep_for_questions=keep, **FIXED).fit(x, y)
    with torch.no_grad():
        for weight in model.fitted_.backbone.body.parameters():
            weight += 0.3
    with pytest.raises(LQFError, match=f"the {sentence} cannot be made again"):
        model.analyse(x)


def test_a_sample_may_be_a_number_of_numpy() -> None:
    x, y = data()
    analysis = classifier(**FIXED).fit(x, y).analyse(x)
    assert (analysis.what_if(x[:1], without=np.int64(3)).outputs == analysis.what_if(x[:1], without=[3]).outputs).all()


def test_wrong_questions_get_a_sentence() -> None:
    x, y = data()
    analysis = classifier(**FIXED).fit(x, y).analyse(x)
    with pytest.raises(LQFError, match="`99` is not a training sample"):
        analysis.what_if(x[:1], without=["99"])
    with pytest.raises(LQFError, match="no training sample number 18; they go from 0 to 17"):
        analysis.leave_one_out([18])
    with pytest.raises(LQFError, match="there is no class `rose`; the model knows 0, 1, 2"):
        analysis.what_if(x[:1], relabel={0: "rose"})
    with pytest.raises(LQFError, match=r"the weight of `0` is -1; give a number from 0 on"):
        analysis.what_if(x[:1], weights={0: -1})
    with pytest.raises(LQFError, match="the loss needs a label for every query"):
        analysis.influence(x[:1]).of_loss()
    with pytest.raises(LQFError, match="`7` is not among the queries"):
        analysis.influence(x[:1]).top(query="7")
    with pytest.raises(LQFError, match="no query number -1; they go from 0 to 0"):
        analysis.influence(x[:1]).top(query=-1)
    with pytest.raises(LQFError, match="no class number 3; they go from 0 to 2"):
        analysis.influence(x[:1]).of_class(3)
    with pytest.raises(LQFError, match="method is 'magic'; choose one of auto, dense, pcg, kfac"):
        classifier(**FIXED).fit(x, y).analyse(x, method="magic")


def test_random_views_cannot_be_analysed() -> None:
    x = np.random.default_rng(0).integers(0, 255, (8, 40, 40, 3)).astype(np.uint8)
    model = classifier(backbone=convnet(), solver="sgd", augment="crop", size=32, epochs=1, **FIXED)
    model.fit(x, np.arange(8) % 2)
    with pytest.raises(LQFError, match="was fitted on random views"):
        model.analyse(x)


@pytest.mark.parametrize(
    "params", [{"head": h} for h in ("probe", "heavy", "means", "several")] + [{"relinearize": 1}], ids=str
)
def test_the_problem_of_every_point_is_built_again(params: dict[str, object]) -> None:
    """Predictions from the rebuilt dual are those of the model, with automatic weight decay too."""
    x, y = data(18)
    model = classifier(**params).fit(x, y)
    test = data(4, seed=7)[0]
    np.testing.assert_allclose(model.analyse(x).influence(test).outputs, model.decision_function(test), rtol=1e-7)
