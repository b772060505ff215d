"""One list of formats: what it names is read, and what would need a package says so."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lqf.data import Preprocess, formats, load_samples, load_unlabelled, open_images
from lqf.errors import LQFError

SMALL = Preprocess(8)
DOCS = Path(__file__).resolve().parents[2] / "docs" / "fitting.md"
HEIC = b"\0\0\0\x18ftypheic" + bytes(40)


def picture() -> Image.Image:
    x, y = np.meshgrid(np.arange(64), np.arange(48))
    return Image.fromarray(np.stack([4 * x, 4 * y, 2 * x + 2 * y], axis=2).astype(np.uint8))


@pytest.mark.parametrize("known", formats.ALL, ids=lambda f: f.name)
def test_every_format_is_read_from_a_folder(known, tmp_path):
    if not known.readable:
        pytest.skip(f"needs {known.package}")
    (tmp_path / "a").mkdir()
    for extension in known.extensions:
        image = picture() if extension not in (".pgm", ".pbm") else picture().convert("L")
        image.save(tmp_path / "a" / f"1{extension}", known.name)
    images = open_images(load_samples(tmp_path), SMALL, strict=True)
    assert len(images) == len(known.extensions)
    reference = open_images(load_samples([picture()]), SMALL).batch([0])
    first = list(images.samples.ids).index(f"a/1{known.extensions[0]}")
    assert (images.batch([first]).float() - reference).abs().mean() < 6  # lossy formats, 16 colours of a palette


def test_the_list_is_that_of_the_messages_and_of_the_docs(tmp_path):
    assert set(formats.in_words().split(", ")) == {f.extensions[0][1:] for f in formats.ALL if f.readable}
    with pytest.raises(LQFError, match=" ".join(e[1:] for e in formats.extensions())):
        load_samples(tmp_path)
    text = DOCS.read_text(encoding="utf-8")
    assert all(f"`{f.extensions[0]}`" in text for f in formats.ALL)


@pytest.fixture
def without_heif(monkeypatch):
    assert "JPEG" in formats.decoders()  # all are registered
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)


@pytest.mark.usefixtures("without_heif")
class TestWithoutThePackage:
    def test_a_folder_names_it(self, tree, recorder):
        root = tree({"a/1.png": 0, "a/2.HEIC": HEIC, "b/1.png": 0})
        assert len(load_samples(root, progress=recorder)) == 2
        (said,) = recorder.said
        assert said.endswith("by extension: .heic (1); to have .heic read, run `pip install pillow-heif`")

    def test_a_folder_of_nothing_else_names_it(self, tree):
        for load in (load_samples, load_unlabelled):
            with pytest.raises(LQFError, match="run `pip install pillow-heif`"):
                load(tree({"a/1.heic": HEIC, "b/2.heic": HEIC}))

    def test_a_file_that_is_named_names_it(self, tree):
        root = tree({"photo.heic": HEIC, "photo.jpg": HEIC})
        for path in root.iterdir():
            with pytest.raises(LQFError, match="is a HEIC image; to have these read, run `pip install pillow-heif`"):
                load_unlabelled(path)

    def test_it_is_skipped_by_its_contents(self, tree):
        root = tree({"a/1.png": 0, "b/1.png": 0, "b/2.jpg": HEIC})
        ((name, reason),) = open_images(load_samples(root), SMALL).skipped
        assert (name, reason[:15]) == ("b/2.jpg", "is a HEIC image")


def test_a_photo_of_a_phone_is_upright(tmp_path):
    pytest.importorskip("pillow_heif")
    exif = Image.Exif()
    exif[0x0112] = 6
    picture().save(tmp_path / "photo.heic", exif=exif.tobytes(), quality=95)
    upright = load_unlabelled(tmp_path / "photo.heic").source.read(0)
    expected = picture().transpose(Image.Transpose.ROTATE_270)
    assert upright.size == expected.size
    assert np.abs(np.asarray(upright, float) - np.asarray(expected, float)).mean() < 4
