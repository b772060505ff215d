"""The same pictures give the same pixels, in whatever form they come, to fit and to predict."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset

from lqf.data import Preprocess, has_labels, load_samples, load_unlabelled, open_images
from lqf.errors import LQFError

SMALL = Preprocess(8, 10, keep_aspect=True)
N = 6
PIXELS = np.random.default_rng(0).integers(0, 256, (N, 12, 9, 3), dtype=np.uint8)
Y = ["rose", "rose", "rose", "tulip", "tulip", "tulip"]


class Items(Dataset):
    def __init__(self, make: Callable[[int], Any]):
        self.make = make

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> Any:
        return self.make(i)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    for i, (pixels, name) in enumerate(zip(PIXELS, Y, strict=True)):
        (root / name).mkdir(exist_ok=True)
        Image.fromarray(pixels).save(root / name / f"{i}.png")
    return root


def _manifest(root: Path) -> Path:
    with (root / "list.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        writer.writerows([f"{name}/{i}.png", name] for i, name in enumerate(Y))
    return root / "list.csv"


def _frame(root: Path) -> Any:
    pd = pytest.importorskip("pandas")
    return pd.DataFrame({"path": [str(root / name / f"{i}.png") for i, name in enumerate(Y)], "label": Y})


def _frame_of_images(root: Path) -> Any:
    return pytest.importorskip("pandas").DataFrame({"image": PIL, "label": Y})


PIL = [Image.fromarray(p) for p in PIXELS]
CHW = torch.from_numpy(PIXELS).permute(0, 3, 1, 2)
LABELLED: dict[str, Callable[[Path], Any]] = {
    "folder": lambda root: root,
    "text": str,
    "manifest": _manifest,
    "data frame": _frame,
    "data frame of images": _frame_of_images,
    "data set of pairs": lambda _: Items(lambda i: (PIL[i], Y[i])),
    "data set of dicts": lambda _: Items(lambda i: {"image": PIL[i], "label": Y[i]}),
    "data set of tensors in [0, 1]": lambda _: Items(lambda i: (CHW[i] / 255, Y[i])),
    "pairs": lambda _: list(zip(PIXELS, Y, strict=True)),
}
WITH_LABELS: dict[str, Callable[[Path], Any]] = {
    "paths": lambda root: [root / name / f"{i}.png" for i, name in enumerate(Y)],
    "array of paths": lambda root: np.array([str(root / name / f"{i}.png") for i, name in enumerate(Y)]),
    "PIL images": lambda _: PIL,
    "arrays": lambda _: list(PIXELS),
    "uint8 (N, H, W, 3)": lambda _: PIXELS,
    "uint8 (N, 3, H, W)": lambda _: PIXELS.transpose(0, 3, 1, 2),
    "uint8 tensor": lambda _: CHW,
    "floats in [0, 1]": lambda _: PIXELS / 255,
    "floats to 255": lambda _: PIXELS.astype(np.float32),
    "float tensor in [0, 1]": lambda _: CHW / 255,
    "list of float tensors": lambda _: list(CHW.float()),
}


def pixels_of(samples: Any) -> torch.Tensor:
    return open_images(samples, SMALL, strict=True).whole(range(N))


EXPECTED = pixels_of(load_samples(PIXELS))


@pytest.mark.parametrize("form", LABELLED)
def test_with_labels_of_their_own(folder, form):
    samples = load_samples(LABELLED[form](folder))
    assert torch.equal(pixels_of(samples), EXPECTED)
    assert [samples.classes[k] for k in samples.labels] == Y


@pytest.mark.parametrize("form", WITH_LABELS)
def test_with_labels_given(folder, form):
    samples = load_samples(WITH_LABELS[form](folder), Y)
    assert torch.equal(pixels_of(samples), EXPECTED)
    assert [samples.classes[k] for k in samples.labels] == Y


@pytest.mark.parametrize("form", [*LABELLED, *WITH_LABELS])
@pytest.mark.parametrize("each", [True, False])
def test_to_predict(folder, form, each):
    source = (LABELLED | WITH_LABELS)[form](folder)
    samples = load_unlabelled(source, fitted=PIXELS.shape[1:], each=each)
    assert torch.equal(pixels_of(samples), EXPECTED)
    assert samples.labels.tolist() == [-1] * N


ONE: dict[str, Callable[[Path], Any]] = {
    "path": lambda root: root / "rose" / "0.png",
    "text": lambda root: str(root / "rose" / "0.png"),
    "PIL image": lambda _: PIL[0],
    "uint8 (H, W, 3)": lambda _: PIXELS[0],
    "uint8 (3, H, W)": lambda _: CHW[0],
    "floats in [0, 1]": lambda _: PIXELS[0] / 255,
    "float tensor": lambda _: CHW[0] / 255,
    "list of one": lambda _: [PIL[0]],
}


@pytest.mark.parametrize("form", ONE)
@pytest.mark.parametrize("fitted", [None, PIXELS.shape[1:]])
def test_one_image(folder, form, fitted):
    samples = load_unlabelled(ONE[form](folder), fitted=fitted)
    assert len(samples) == 1
    assert torch.equal(open_images(samples, SMALL).whole([0]), EXPECTED[:1])


@pytest.mark.parametrize("form", [name for name in ONE if "path" not in name and name != "text"])
def test_one_image_with_its_label(folder, form):
    samples = load_samples(ONE[form](folder), ["rose"], classes=("rose", "tulip"))
    assert samples.labels.tolist() == [0]
    assert torch.equal(open_images(samples, SMALL).whole([0]), EXPECTED[:1])


@pytest.mark.parametrize("form", ["folder", "manifest", "data frame", "samples"])
def test_labels_beside_those_of_the_source_are_refused(folder, form):
    source = load_samples(PIXELS, Y) if form == "samples" else LABELLED[form](folder)
    with pytest.raises(LQFError, match="has labels of its own; leave out the labels given with it"):
        load_samples(source, Y)


@pytest.mark.parametrize("form", [*LABELLED, *WITH_LABELS])
def test_whether_there_are_labels(folder, form):
    assert has_labels((LABELLED | WITH_LABELS)[form](folder), ("rose", "tulip")) == (form in LABELLED)


def test_a_path_that_is_named_twice(folder):
    path = str(folder / "rose" / "0.png")
    assert load_unlabelled([path, path]).ids == (path,)
    assert load_unlabelled([path, path], each=True).ids == (path, f"{path} (2)")


def test_a_manifest_without_labels_among_paths(folder):
    (folder / "new.csv").write_text("path\nrose/0.png\ntulip/3.png\n")
    samples = load_unlabelled([folder / "new.csv", folder / "rose" / "1.png", folder / "rose"])
    assert [Path(i).name for i in samples.ids] == ["0.png", "3.png", "1.png", "2.png"]
    (folder / "new.csv").unlink()
