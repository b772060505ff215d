"""Every setting has a default and, where it is wrong, a sentence."""

import inspect
import json
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pytest

from lqf import LQFClassifier
from lqf.errors import LQFError
from lqf.settings import Settings, Setup

CHOICES = {f.name: f.metadata["choices"] for f in fields(Settings) if f.metadata["choices"]}
NAN, INF = float("nan"), float("inf")
WRONG: dict[str, list[Any]] = {
    **{name: ["nonsense", None, 3, ""] for name in CHOICES},
    "weight_decay": [0, -1.0, NAN, INF, "auot", None, True, [1.0]],
    "body_weight_decay": [0.0, -3, "none", None],
    "alpha": [0, -15.0, NAN, INF, "15", None],
    "tol": [0.0, -1e-2, NAN, "1e-2", None],
    "learning_rate": [0, -0.1, INF, "0.1"],
    "epochs": [0, -1, 2.5, None, "3", True],
    "minibatch": [0, 2.5, None],
    "max_passes": [0, -1, 1.5],
    "draws": [0, -2, 2.5, "all"],
    "batch_size": [0, -16, 1.5],
    "seed": [1.5, None, "a"],
    "class_weight": [
        "balance",
        2,
        True,
        ["a"],
        {"a": 0},
        {"a": -1.0},
        {"a": NAN},
        {"a": "2"},
        {"a": None},
        {"a": True},
    ],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in WRONG.items() for v in values])
def test_a_wrong_setting_is_named_with_what_it_may_be(name: str, value: Any) -> None:
    with pytest.raises(LQFError) as error:
        Settings(**{name: value})
    sentence = str(error.value)
    assert sentence.startswith(f"{name} is {value!r}; ")
    for choice in CHOICES.get(name, ()):
        assert choice in sentence


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in CHOICES.items() for v in values])
def test_every_choice_can_be_made(name: str, value: str) -> None:
    solver = "auto" if name == "effort" else "sgd"
    settings = Settings(**{"solver": solver, name: value})
    assert getattr(settings, name) == value


def test_augmentation_needs_a_solver_that_sees_new_images() -> None:
    for solver in ("auto", "head", "dense", "pcg"):
        with pytest.raises(LQFError, match="needs solver `sgd` or `adam`"):
            Settings(augment="crop", solver=solver)
    assert Settings(augment="crop", solver="adam").augment == "crop"


def test_settings_are_json_also_from_numpy() -> None:
    settings = Settings(alpha=np.float32(2.0), seed=np.int64(3), epochs=np.int32(4), draws=None)
    back = Settings(**json.loads(json.dumps(settings.to_dict())))
    assert back == Settings(alpha=2.0, seed=3, epochs=4, draws=None)
    assert Settings().to_dict() == asdict(Settings())


def test_class_weights_are_json_by_the_names_of_the_classes() -> None:
    settings = Settings(class_weight={1: np.float32(2), np.int64(7): 3, 8.0: 1.5, "07": 1, False: 0.5, "e\u0301": 4})
    expected = {"1": 2.0, "7": 3.0, "8": 1.5, "07": 1.0, "False": 0.5, "é": 4.0}
    assert settings.class_weight == expected
    assert Settings(**json.loads(json.dumps(settings.to_dict()))) == settings
    with pytest.raises(LQFError, match=r"^class_weight is \{1: 2, '1': 3\}; it names a class twice"):
        Settings(class_weight={1: 2, "1": 3})


@pytest.mark.parametrize("value", [0, -0.1, 1.01, NAN, "0.5", None, True])
def test_a_crop_shows_a_share_of_the_image(value: Any) -> None:
    with pytest.raises(LQFError, match=rf"^crop_area is {value!r}; it must be a number above 0 and at most 1"):
        Setup(crop_area=value)
    assert Setup(crop_area=1).crop_area == 1


@pytest.mark.parametrize("value", [0.99, 0, -2, INF, NAN, "4/3", None, True])
def test_a_crop_has_a_longer_side(value: Any) -> None:
    with pytest.raises(LQFError, match=rf"^crop_ratio is {value!r}; it must be a number, 1 or more"):
        Setup(crop_ratio=value)
    assert json.loads(json.dumps(Setup().to_dict()))["crop_ratio"] == Setup.crop_ratio == 4 / 3


def test_the_classifier_takes_every_setting_with_the_same_default() -> None:
    arguments = inspect.signature(LQFClassifier.__init__).parameters
    known = {f.name: f.default for of in (Setup, Settings) for f in fields(of)}
    own = {"constraints": None, "epsilon": None, "delta": None}  # of one fit, which a saved model has in its report
    assert {name: p.default for name, p in arguments.items() if name != "self"} == known | own


def test_every_setting_is_explained() -> None:
    text = inspect.getdoc(LQFClassifier) or ""
    for f in (f for of in (Setup, Settings) for f in fields(of)):
        assert f"\n    {f.name}: {f.metadata['help'].split()[0]}" in text
    assert max(map(len, (LQFClassifier.__doc__ or "").splitlines())) <= 120
