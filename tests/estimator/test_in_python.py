"""What a person sees who uses `LQFClassifier` in Python: progress, short texts, errors, what saving says."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import lqf
from fits import FIXED, classifier, data, network
from lqf import LQFClassifier, LQFError, NotFitted
from lqf.utils.progress import SILENT
from recorder import Recorder

X, Y = data(18)
NEW = data(5, seed=7)[0]


def test_a_quick_fit_leaves_nothing_on_the_screen(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("lqf.utils.default_progress.LOG_SECONDS", 100.0)  # however busy this machine is
    model = classifier(**FIXED).fit(X, Y)
    model.predict(NEW)
    model.analyse(X, Y).influence(NEW)
    assert capfd.readouterr() == ("", "")


def test_progress_overrides_verbose_and_both_reach_every_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("lqf.estimator.predictor.default_progress", lambda verbose: asked.append(verbose) or SILENT)
    model, seen = classifier(**FIXED, verbose=0), Recorder()
    model.fit(X, Y, progress=seen).predict(NEW, progress=seen)
    assert asked == []
    assert {"reading images", "predicting"} <= {name for name, *_ in seen.stages}
    model.predict(NEW)
    model.set_params(verbose=1).transform(NEW)
    model.analyse(X, Y)
    assert asked == [0, 1, 1]


def test_damaged_images_are_named_without_being_asked(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    from fits import convnet, photos

    folder = photos(tmp_path / "train")
    (folder / "blue" / "cut.png").write_bytes((folder / "blue" / "0.png").read_bytes()[:200])
    options = {"solver": "head", "pooling": "avg", "size": 32, "device": "cpu"}
    LQFClassifier(convnet().float(), **options).fit(folder)
    assert "skipped `blue/cut.png`" in capfd.readouterr().err
    LQFClassifier(convnet().float(), **options, verbose=0).fit(folder)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("verbose", [-1, "loud", None])
def test_verbose_is_a_number(verbose: object) -> None:
    with pytest.raises(LQFError, match=r"verbose is .*; it must be 0"):
        classifier(verbose=verbose).fit(X, Y)


def test_not_fitted_is_scikit_learns_error_and_ours() -> None:
    for kind in (NotFitted, LQFError, NotFittedError, ValueError):
        with pytest.raises(kind, match=r"LQFClassifier is not fitted yet; call `fit` or `LQFClassifier[.]load` first"):
            classifier().predict(NEW)


def test_without_scikit_learn_not_fitted_is_ours() -> None:
    code = """
import sys
sys.modules["sklearn"] = None
import lqf
try:
    lqf.LQFClassifier().transform([])
except lqf.NotFitted as error:
    print(type(error).__mro__[:3], error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'lqf.errors.NotFitted'>, <class 'lqf.errors.LQFError'>" in done.stdout


def test_saving_says_how_a_network_of_ones_own_is_loaded(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    model, run = classifier(**FIXED).fit(X, Y), tmp_path / "run"
    model.save(run)
    said = capfd.readouterr().err
    command = f"LQFClassifier.load({str(run)!r}, backbone=network)"
    assert said == (
        f"`{run}` stands on a network of your own (Sequential), which is not saved with it; load it with {command}\n"
    )
    with pytest.raises(LQFError) as refused:
        lqf.load(run)
    assert str(refused.value).endswith(f"give it again: {command}")
    loaded = lqf.load(run, backbone=network(), device="cpu", verbose=0)
    np.testing.assert_array_equal(loaded.predict(NEW), model.predict(NEW))
    loaded.save(run, overwrite=True)
    assert capfd.readouterr().err == ""


def test_a_model_there_is_named_as_python_writes_it(tmp_path: Path) -> None:
    model = classifier(**FIXED, verbose=0).fit(X, Y)
    model.save(tmp_path / "run")
    with pytest.raises(LQFError, match="give overwrite=True to replace it"):
        model.save(tmp_path / "run")


def test_a_fitted_model_says_what_it_is() -> None:
    model = classifier(solver="head").fit(X, Y)
    first, second = repr(model).splitlines()
    assert first.startswith("LQFClassifier(backbone=Sequential(…), ")
    error = f"leave-one-out error {100 * model.leave_one_out().error:.1f}% (exact)"
    assert second == f"  fitted: closed-form head of Sequential; 18 images, 3 classes; {error}"


def test_arrays_are_read_as_the_model_says_now() -> None:
    """Models saved by earlier versions do not know what the arrays held that they were fitted on."""

    def loaded() -> LQFClassifier:
        model = classifier(**FIXED).fit(X, Y)
        model.fitted_ = replace(model.fitted_, setup=replace(model.fitted_.setup, tensors="pictures"))
        return model

    asked = loaded().information(NEW, train=X).values
    np.testing.assert_allclose(asked, classifier(**FIXED).fit(X, Y).information(NEW, train=X).values)
    for change in (lambda m: m.forget([0], train=X), lambda m: m.add(NEW, Y[: len(NEW)], train=X)):
        old, new = loaded(), classifier(**FIXED).fit(X, Y)
        change(old)
        change(new)
        np.testing.assert_allclose(old.decision_function(NEW), new.decision_function(NEW), atol=1e-10)


def test_questions_may_say_where_the_training_data_are() -> None:
    model = classifier(**FIXED).fit(X, Y)
    for ask in (model.influence, model.information, model.what_if):
        assert ask(NEW, train=X).level == "exact"
    with pytest.raises(TypeError, match="wihtout"):
        model.what_if(NEW, wihtout=[0])
