"""A saved model: the same predictions, nothing pickled, damage found, nothing lost."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.base import clone
from torch import nn

from faults import disk_full
from fits import CPU, FIXED, classifier, convnet, data, network, opened, photos, pictures
from lqf import LQFClassifier, storage
from lqf.backbones import Backbone, load_backbone
from lqf.backbones.state import moved
from lqf.backbones.tokens import find_tokens
from lqf.backbones.with_token_pool import with_token_pool
from lqf.data import Preprocess
from lqf.errors import LQFError
from lqf.fitting import Context, FittedModel, HeadFit, TrainingSet
from lqf.fitting.assemble import assemble, assemble_head
from lqf.fitting.encoder import Encoder
from lqf.fitting.pose import pose
from lqf.settings import Settings
from lqf.utils import files
from token_networks import SIDE, VIT, images, timm_model, transformer

X, Y = data(15)
NEW = data(7, seed=3)[0]
FILES = {"README.md", "model.json", "weights.safetensors", "samples.csv", "questions.safetensors"}


@pytest.fixture(scope="module")
def model() -> LQFClassifier:
    weights = np.linspace(0.1, 2, 15)
    return classifier(**FIXED).fit(X, Y, weights, groups=[f'g{i // 2}, \n"é' for i in range(15)])


@pytest.fixture
def run(model: LQFClassifier, tmp_path: Path) -> Path:
    model.save(tmp_path / "run")
    return tmp_path / "run"


def load(run: Path, backbone: nn.Module | None = None, **options: object) -> LQFClassifier:
    return LQFClassifier.load(run, backbone=backbone or network(), device="cpu", **options)


def same_predictions(a: LQFClassifier, b: LQFClassifier, x: object = NEW) -> bool:
    pairs = ((getattr(m, name)(x) for m in (a, b)) for name in ("decision_function", "predict_proba", "predict"))
    return all(np.array_equal(p, q) for p, q in pairs)


# --- round trip -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {"solver": "head"},
        {"solver": "dense", "form": "w0", "head": "random"},
        {"solver": "pcg", "tol": 1e-6, "max_passes": 200, "unconverged": "keep"},
        {"linearize": "second"},
        {"dtype": "float32"},
        {"leaky": False, "alpha": 3.0, "seed": np.int64(4)},
    ],
)
def test_predictions_are_the_same_bit_for_bit(tmp_path: Path, params: dict[str, object]) -> None:
    model = classifier(**params).fit(X, np.array(["rose", "tulip", "été"])[Y])
    model.save(tmp_path / "run")
    loaded = load(tmp_path / "run")
    assert same_predictions(model, loaded)
    assert loaded.classes_.tolist() == ["rose", "tulip", "été"]
    assert loaded.report_ == model.report_
    given = {k: v for k, v in model.get_params().items() if k != "backbone"}
    assert {k: v for k, v in loaded.get_params().items() if k != "backbone"} == given
    assert same_predictions(clone(loaded).fit(X, np.array(["rose", "tulip", "été"])[Y]), model)


def test_leave_one_out_and_samples_come_back(model: LQFClassifier, run: Path) -> None:
    loaded, a, b = load(run), model.leave_one_out(), load(run).leave_one_out()
    assert torch.equal(a.outputs, b.outputs)
    assert torch.equal(a.labels, b.labels)
    assert torch.equal(a.weights, b.weights)
    assert (a.level, a.note, a.error) == (b.level, b.note, b.error)
    train, back = model.fitted_.train, loaded.fitted_.train
    assert (train.ids, train.groups, train.hashes) == (back.ids, back.groups, back.hashes)
    assert np.array_equal(train.labels, back.labels)
    assert np.array_equal(train.weights, back.weights)  # every digit


def test_a_model_without_leave_one_out(tmp_path: Path) -> None:
    model = classifier(solver="pcg", loo="none").fit(X, Y)
    model.save(tmp_path / "run")
    loaded = load(tmp_path / "run")
    assert loaded.report_["loo_error"] is None
    with pytest.raises(LQFError, match="leave-one-out is not known"):
        loaded.leave_one_out()
    assert same_predictions(model, loaded)


def test_views_and_preprocessing_come_back(tmp_path: Path) -> None:
    x, y = pictures(12)
    model = classifier(backbone=convnet(), size=8, views="ten", squash=True, solver="head").fit(x, y)
    model.save(tmp_path / "run")
    loaded = load(tmp_path / "run", convnet())
    assert loaded.fitted_.preprocess == model.fitted_.preprocess
    assert same_predictions(model, loaded, pictures(5, seed=9)[0])


def test_a_named_backbone_needs_nothing_but_the_folder(tmp_path: Path) -> None:
    train = photos(tmp_path / "train")
    params = {"weights": "random", "size": 32, "seed": 3, "device": "cpu"}
    model = LQFClassifier("mobilenet_v2", solver="head", **params).fit(train)
    model.save(tmp_path / "run")
    loaded = LQFClassifier.load(tmp_path / "run", device="cpu")
    assert same_predictions(model, loaded, train)
    assert loaded.get_params() == model.get_params()


def token_model(net: nn.Module, kind: str, side: int, *, moves: bool, **options: object) -> FittedModel:
    """Fitted on features of the network's last tokens; with or without weights of the network moved away first."""
    backbone = load_backbone(net)
    tokens = find_tokens(backbone.body.double(), images(2, side))
    assert tokens is not None
    reduction = torch.linalg.qr(torch.randn(tokens.channels, tokens.channels, dtype=torch.float64))[0][:3]
    backbone = with_token_pool(backbone, tokens, kind, reduction, scale=0.5)
    if moves:
        backbone = shaken(backbone)
    settings, preprocess = Settings(dtype="float64", **FIXED, **options), Preprocess(size=side)
    training = TrainingSet.of(opened(*pictures(12, side=side), preprocess), preprocess, Context(settings, CPU))
    encoder = Encoder(training, backbone)
    head = HeadFit.of(encoder, kind, encoder.features())
    if settings.solver == "head":
        return assemble_head(head)
    problem = pose(head)
    return assemble(problem, problem.solve(), None)


def shaken(backbone: Backbone) -> Backbone:
    """With other weights than the network was given with."""
    with torch.no_grad():
        for w in backbone.body.parameters():
            w += 0.01 * torch.randn_like(w)
    return moved(backbone, backbone.body, {"steps": 1})


def check_token_model(model: FittedModel, net: nn.Module, side: int, folder: Path) -> None:
    """It comes back with the same pooling, features and outputs."""
    storage.save(model, folder)
    loaded = storage.load(folder, backbone=net)
    assert isinstance(loaded, FittedModel)
    assert loaded.backbone.spec == model.backbone.spec
    new = opened(*pictures(5, seed=7, side=side), model.preprocess)
    for name in ("features", "outputs"):
        a, b = (getattr(m, name)(new, device=CPU, batch_size=3) for m in (model, loaded))
        assert torch.equal(a, b)
        assert a.std() > 0


@pytest.mark.parametrize("moves", [False, True], ids=["as it is", "moved"])
@pytest.mark.parametrize("linearize", ["head alone", "all", "blocks.1"])
@pytest.mark.parametrize("kind", ["tokens_mean", "own_mean", "bilinear", "both"])
def test_features_of_tokens_come_back(tmp_path: Path, kind: str, linearize: str, moves: bool) -> None:
    solved = {"solver": "head"} if linearize == "head alone" else {"solver": "dense", "linearize": linearize}
    model = token_model(transformer(), kind, SIDE, moves=moves, **solved)
    check_token_model(model, transformer(), SIDE, tmp_path / "run")


@pytest.mark.timm
def test_features_of_tokens_of_a_timm_network_come_back(tmp_path: Path) -> None:
    net = timm_model("vit_tiny_patch16_224", **VIT)()
    model = token_model(net, "both", 32, moves=False, solver="dense", linearize="blocks.1")
    check_token_model(model, net, 32, tmp_path / "run")


def test_nothing_is_pickled(run: Path) -> None:
    assert {p.name for p in run.iterdir()} == FILES
    assert set(load_file(run / "weights.safetensors")) == {"head", "point", "delta", "loo"}
    meta = json.loads((run / "model.json").read_text())
    assert meta["format"] == "lqf-model"
    assert (run / "samples.csv").read_text(encoding="utf-8").startswith("id,label,weight,group,sha256\n")
    assert (run.stat().st_mode & 0o777) == 0o755


# --- damage -----------------------------------------------------------------------------------------------------------


def flip_a_byte(run: Path) -> None:
    raw = bytearray((run / "weights.safetensors").read_bytes())
    raw[-3] ^= 1
    (run / "weights.safetensors").write_bytes(raw)


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        text = (run / name).read_text()
        assert old in text
        (run / name).write_text(text.replace(old, new, 1))

    return change


DAMAGE = {
    "one byte of the weights": (flip_a_byte, "damaged: `weights.safetensors`"),
    "a label": (edit("samples.csv", "\n0,0,", "\n0,1,"), "damaged: `samples.csv`"),
    "a weight that is gone": (lambda run: (run / "weights.safetensors").unlink(), "damaged: `weights.safetensors`"),
    "samples that are gone": (lambda run: (run / "samples.csv").unlink(), "damaged: `samples.csv`"),
    "no model.json": (lambda run: (run / "model.json").unlink(), "there is no model.json in it"),
    "no folder": (shutil.rmtree, "is not a fitted model"),
    "foreign model.json": (lambda run: (run / "model.json").write_text('{"layers": []}'), "not written by lqf"),
    "no object": (lambda run: (run / "model.json").write_text("[1]"), "not written by lqf"),
    "half a model.json": (lambda run: os.truncate(run / "model.json", 300), "cannot be read as a fitted model"),
    "no text": (lambda run: (run / "model.json").write_bytes(b"\xff\xfe\x00"), "cannot be read as a fitted model"),
    "other version": (edit("model.json", '"version": 1', '"version": 3'), "format version 3, this lqf reads 1 and 2"),
    "another alpha": (edit("model.json", '"alpha": 15.0', '"alpha": 14.0'), "damaged: `model.json`"),
    "swapped classes": (edit("model.json", '"0",\n  "1"', '"1",\n  "0"'), "damaged: `model.json`"),
    "a hash made to fit": (edit("model.json", '"files"', '"other"'), "damaged: `model.json`"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found(run: Path, name: str) -> None:
    damage, words = DAMAGE[name]
    damage(run)
    with pytest.raises(LQFError) as error:
        load(run)
    assert words in str(error.value)
    assert str(run) in str(error.value)


def test_another_network_is_refused(run: Path) -> None:
    with pytest.raises(LQFError, match="has other weights than the saved model"):
        load(run, network(seed=1))
    with pytest.raises(LQFError, match=r"network of your own .*; give it again: .*backbone=network"):
        LQFClassifier.load(run)


def test_another_weights_file_is_refused_and_a_moved_one_named(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 1)):
        save_file(network(seed).state_dict(), tmp_path / f"{name}.safetensors")
    model = classifier(weights=tmp_path / "a.safetensors", solver="head").fit(X, Y)
    model.save(tmp_path / "run")
    with pytest.raises(LQFError, match="other weights"):
        load(tmp_path / "run", weights=tmp_path / "b.safetensors")
    moved = (tmp_path / "a.safetensors").rename(tmp_path / "c.safetensors")
    loaded = load(tmp_path / "run", weights=moved)
    assert same_predictions(model, loaded)
    assert loaded.weights == str(moved)


# --- writing ----------------------------------------------------------------------------------------------------------


def test_an_existing_folder_is_kept_unless_overwritten(model: LQFClassifier, run: Path) -> None:
    other = classifier(solver="head").fit(X, Y)
    before = (run / "model.json").read_bytes()
    with pytest.raises(LQFError, match="exists; choose another"):
        other.save(run)
    assert (run / "model.json").read_bytes() == before
    (run / "notes").touch()  # replaced as a whole
    other.save(run, overwrite=True)
    assert same_predictions(load(run), other)
    assert {p.name for p in run.iterdir()} == FILES
    assert [p.name for p in run.parent.iterdir()] == ["run"]


@pytest.mark.parametrize(
    "step",
    ["storage.write.save_file", "storage.write.write_samples", "utils.files.replace_folder", "storage.write.dump_json"],
)
def test_a_write_that_fails_leaves_the_old_model(
    model: LQFClassifier, run: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(f"lqf.{step}", disk_full)
        with pytest.raises(OSError, match="No space left"):
            classifier(solver="head").fit(X, Y).save(run, overwrite=True)
        with pytest.raises(OSError, match="No space left"):
            model.save(run.parent / "new")
    assert [p.name for p in run.parent.iterdir()] == ["run"]
    assert same_predictions(load(run), model)


def test_ctrl_c_while_writing_leaves_the_old_model(
    model: LQFClassifier, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(fitted: FittedModel, folder: Path) -> None:
        (folder / "weights.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(storage.write, "_write", write)
        with pytest.raises(KeyboardInterrupt):
            model.save(run, overwrite=True)
    assert [p.name for p in run.parent.iterdir()] == ["run"]
    assert same_predictions(load(run), model)


def test_a_move_that_fails_puts_the_old_model_back(
    model: LQFClassifier, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = os.rename

    def rename(source: Path, target: Path) -> None:
        if Path(target) == run and Path(source).name != "old":
            raise OSError("the disk is gone")
        plain(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        patch.setattr(files, "exchange", lambda *_: False)
        with pytest.raises(OSError, match="the disk is gone"):
            model.save(run, overwrite=True)
    assert [p.name for p in run.parent.iterdir()] == ["run"]
    assert same_predictions(load(run), model)


@pytest.mark.parametrize("content", [{"thesis.txt": "years"}, {"model.json": "{}"}, {"model.json": "no JSON"}])
def test_a_folder_that_is_no_model_is_never_replaced(
    model: LQFClassifier, tmp_path: Path, content: dict[str, str]
) -> None:
    (tmp_path / "mine").mkdir()
    for name, text in content.items():
        (tmp_path / "mine" / name).write_text(text)
    with pytest.raises(LQFError, match="is not a fitted model; it is not replaced"):
        model.save(tmp_path / "mine", overwrite=True)
    assert {p.name: p.read_text() for p in (tmp_path / "mine").iterdir()} == content


def test_a_file_is_never_replaced_and_an_empty_folder_may_be(model: LQFClassifier, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(LQFError, match="not replaced even with"):
        model.save(tmp_path / "file", overwrite=True)
    (tmp_path / "empty").mkdir()
    model.save(tmp_path / "empty", overwrite=True)
    assert same_predictions(load(tmp_path / "empty"), model)


def test_a_model_that_is_not_fitted_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(LQFError, match="not fitted yet"):
        classifier().save(tmp_path / "run")
    assert not any(tmp_path.iterdir())
