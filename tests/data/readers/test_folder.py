"""ImageFolder trees: which files, which labels, which ids; and what is refused."""

import os
import unicodedata

import pytest

from faults import forbid_listing
from lqf.data import Preprocess, check_trainable, load_samples, open_images
from lqf.errors import LQFError
from recorder import Recorder


def test_labels_and_ids(flowers):
    samples = load_samples(flowers)
    assert samples.ids == ("rose/0.png", "rose/1.png", "rose/2.png", "tulip/0.png", "tulip/1.png", "tulip/2.png")
    assert samples.classes == ("rose", "tulip")
    assert samples.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert samples.weights.tolist() == [1.0] * 6
    assert samples.groups is None
    assert samples.counts.tolist() == [3, 3]
    check_trainable(samples)


def test_text_and_path_and_a_trailing_slash_are_the_same(flowers):
    assert load_samples(str(flowers) + os.sep).ids == load_samples(flowers).ids


def test_nested_folders_belong_to_the_topmost_one(tree):
    root = tree({"rose/red/old/1.png": 0, "rose/2.png": 1, "tulip/x/3.png": 2})
    samples = load_samples(root)
    assert dict(zip(samples.ids, (samples.classes[k] for k in samples.labels), strict=True)) == {
        "rose/red/old/1.png": "rose",
        "rose/2.png": "rose",
        "tulip/x/3.png": "tulip",
    }


@pytest.mark.parametrize(
    "extension", ["jpg", "jpeg", "png", "webp", "bmp", "tif", "tiff", "gif", "ppm", "pgm", "JPG", "Png", "TIFF"]
)
def test_extensions(tree, extension):
    assert load_samples(tree({f"a/1.{extension}": 0})).ids == (f"a/1.{extension}",)


def test_other_files_are_ignored_and_said(tree, recorder):
    root = tree({"a/1.png": 0, "a/notes.txt": b"x", "a/2.svg": b"x", "readme.md": b"x"})
    assert load_samples(root, progress=recorder).ids == ("a/1.png",)
    assert len(recorder.said) == 1
    assert all(part in recorder.said[0] for part in (".txt (1)", ".svg (1)", ".md (1)"))


def test_hidden_files_and_folders_are_ignored(tree, recorder):
    root = tree({"a/1.png": 0, "a/.2.png": 1, ".cache/3.png": 2, "a/.thumbs/4.png": 3, "__MACOSX/a/._1.png": b"x"})
    samples = load_samples(root, progress=recorder)
    assert (samples.ids, samples.classes) == (("a/1.png",), ("a",))
    assert recorder.said == []


def test_names_in_any_language(tree):
    root = tree({"роза/снимок 1.png": 0, "チューリップ/花.png": 1, "fleur d'été/é 100%.png": 2})
    samples = load_samples(root)
    assert set(samples.classes) == {"роза", "チューリップ", "fleur d'été"}
    assert len(open_images(samples, Preprocess(8))) == 3


def test_composed_and_decomposed_letters_are_one_class(tree):
    train = tree({unicodedata.normalize("NFC", "été/1.png"): 0, "a/1.png": 1}, "train")
    test = tree({unicodedata.normalize("NFD", "été/1.png"): 0}, "test")
    classes = load_samples(train).classes
    samples = load_samples(test, classes=classes)
    assert samples.classes[samples.labels[0]] == unicodedata.normalize("NFC", "été")
    assert len(open_images(samples, Preprocess(8))) == 1  # the file is still found by its own name


def test_folders_of_the_same_letters_stored_in_two_ways_are_named(tree):
    composed, decomposed = (unicodedata.normalize(form, "été") for form in ("NFC", "NFD"))
    root, said = tree({f"{composed}/1.png": 0, f"{decomposed}/2.png": 0, "a/1.png": 1}), Recorder()
    samples = load_samples(root, progress=said)
    assert samples.counts.tolist() == [1, 2]
    assert "has 2 folders `été`" in said.said[0]
    assert "read as one class" in said.said[0]
    with pytest.raises(LQFError, match="move their images into one of them"):
        load_samples(root, strict=True)
    os.rename(root / decomposed / "2.png", root / decomposed / "1.png")
    with pytest.raises(LQFError, match="move their images into one of them"):
        load_samples(root)


def test_names_that_are_no_utf8_have_printable_ids(tree):
    root = tree({"a/1.png": 0})
    try:
        os.rename(os.fsencode(root / "a" / "1.png"), os.path.join(os.fsencode(root / "a"), b"caf\xe9.png"))
    except OSError:
        pytest.skip("this file system has only Unicode names")
    samples = load_samples(root)
    assert samples.ids == ("a/caf\\xe9.png",)
    assert len(open_images(samples, Preprocess(8))) == 1


def test_symbolic_links_are_followed(tree, tmp_path):
    elsewhere = tree({"1.png": 0, "2.png": 1}, "elsewhere")
    root = tree({"a/3.png": 2})
    (root / "b").symlink_to(elsewhere, target_is_directory=True)
    (root / "a" / "4.png").symlink_to(elsewhere / "1.png")
    assert load_samples(root).ids == ("a/3.png", "a/4.png", "b/1.png", "b/2.png")


def test_loops_of_links_end(tree):
    root = tree({"a/1.png": 0})
    (root / "a" / "again").symlink_to(root, target_is_directory=True)
    (root / "a" / "self.png").symlink_to(root / "a" / "self.png")
    samples = load_samples(root)
    assert samples.ids == ("a/1.png", "a/self.png")
    assert [id for id, _ in open_images(samples, Preprocess(8)).skipped] == ["a/self.png"]


def test_a_link_to_nothing_is_listed_not_lost(tree):
    root = tree({"a/1.png": 0})
    (root / "a" / "2.png").symlink_to(root / "gone.png")
    images = open_images(load_samples(root), Preprocess(8))
    assert images.samples.ids == ("a/1.png",)
    assert images.skipped[0][0] == "a/2.png"
    assert "cannot be opened" in images.skipped[0][1]


def test_something_that_is_no_file_is_named_and_not_read(tree):
    root = tree({"a/1.png": 0, "b/1.png": 0})
    os.mkfifo(root / "a" / "pipe.png")  # reading it would wait for ever
    os.mkfifo(root / "a" / "pipe")
    opened = open_images(load_samples(root), Preprocess(8, 8))
    assert opened.samples.ids == ("a/1.png", "b/1.png")
    assert opened.skipped == (("a/pipe.png", "is a pipe, not a file"),)


def test_missing_folder(tmp_path):
    with pytest.raises(LQFError, match=r"nowhere` is not there"):
        load_samples(tmp_path / "nowhere")


def test_a_file_in_place_of_a_folder(tree):
    with pytest.raises(LQFError, match=r"1\.png` is a file; expected a folder"):
        load_samples(tree({"1.png": 0}) / "1.png")


def test_a_folder_that_cannot_be_listed(flowers, monkeypatch):
    forbid_listing(monkeypatch, "rose")
    with pytest.raises(LQFError, match=r"rose` cannot be listed: Permission denied"):
        load_samples(flowers)


def test_empty_folder(tmp_path):
    with pytest.raises(LQFError, match="no image: it is empty"):
        load_samples(tmp_path)


def test_a_folder_without_images_says_what_it_has(tree):
    with pytest.raises(LQFError, match=r"no image: found: \.svg \(2\)"):
        load_samples(tree({"a/1.svg": b"x", "a/2.svg": b"x"}))


def test_images_outside_a_class_folder_are_left_out_and_said(tree, recorder):
    root = tree({"a/1.png": 0, "b/1.png": 0, "loose.png": 0})
    assert load_samples(root, progress=recorder).ids == ("a/1.png", "b/1.png")
    assert recorder.said == [f"`{root}`: left out 1 image outside any class folder (`loose.png`)"]
    with pytest.raises(LQFError, match=r"1 image outside any class folder \(`loose.png`\); move or remove them"):
        load_samples(root, strict=True)


def test_images_without_any_class_folder_are_refused(tree):
    with pytest.raises(LQFError, match=r"2 images outside any class folder .* and none inside one"):
        load_samples(tree({"1.png": 0, "2.png": 0}, "flat"))


def test_one_class(tree):
    root = tree({"rose/1.png": 0, "rose/2.png": 1})
    with pytest.raises(LQFError, match=r"has one class \(`rose`\); classification needs two"):
        check_trainable(load_samples(root))


def test_an_empty_class_folder_is_left_out_and_said(tree, recorder):
    root = tree({"a/1.png": 0, "a/2.png": 1, "b/1.png": 2, "d/notes.txt": b"x"})
    (root / "c").mkdir()
    samples = load_samples(root, progress=recorder)
    assert samples.classes == ("a", "b")
    assert recorder.said[0] == f"`{root}`: left out 2 class folders without an image (`c`, `d`)"
    with pytest.raises(LQFError, match="2 class folders without an image"):
        load_samples(root, strict=True)


def test_a_class_with_one_image(tree):
    samples = load_samples(tree({"a/1.png": 0, "a/2.png": 1, "b/1.png": 2}))
    (sentence,) = check_trainable(samples)
    assert sentence.startswith("classes with one image, whose error on unseen images is not known: `b`")
    with pytest.raises(LQFError, match="classes with one image"):
        check_trainable(samples, strict=True)


def test_one_image_of_every_class(tree):
    (sentence,) = check_trainable(load_samples(tree({"a/1.png": 0, "b/1.png": 2})))
    assert "has one image: nothing can be left out" in sentence
    assert check_trainable(load_samples(tree({"a/1.png": 0, "a/2.png": 1, "b/1.png": 2, "b/2.png": 2}, "two"))) == []


def test_weight_zero_counts_as_absent(flowers):
    assert check_trainable(load_samples(flowers, sample_weight=[1, 1, 0, 1, 1, 1])) == []
    assert "`rose`" in check_trainable(load_samples(flowers, sample_weight=[1, 0, 0, 1, 1, 1]))[0]
    with pytest.raises(LQFError, match="without an image of positive weight: `rose`"):
        check_trainable(load_samples(flowers, sample_weight=[0, 0, 0, 1, 1, 1]))


def test_unknown_test_classes_are_left_out_and_said(flowers, tree, recorder):
    test = tree({"rose/1.png": 0, "lily/1.png": 1, "lily/2.png": 1, "oak/1.png": 2}, "test")
    classes = load_samples(flowers).classes
    samples = load_samples(test, classes=classes, progress=recorder)
    assert (samples.ids, samples.labels.tolist()) == (("rose/1.png",), [0])
    (said,) = recorder.said
    assert "test`: left out 3 images of classes the model does not know: `lily` (2 images), `oak` (1 image);" in said
    with pytest.warns(UserWarning, match="left out 3 images"):  # nothing is lost where nobody listens
        load_samples(test, classes=classes)
    with pytest.raises(
        LQFError, match=r"test` has classes .*`lily` \(2 images\), `oak` \(1 image\); it knows `rose`, `tulip`"
    ):
        load_samples(test, classes=classes, strict=True)


def test_a_test_folder_without_any_known_class_is_refused(flowers, tree):
    test = tree({"lily/1.png": 1, "oak/1.png": 2}, "test")
    with pytest.raises(LQFError, match="has classes the model does not know"):
        load_samples(test, classes=load_samples(flowers).classes)


def test_a_test_folder_may_lack_classes_and_keeps_the_models_order(tree):
    samples = load_samples(tree({"rose/1.png": 0}), classes=("tulip", "rose", "oak"))
    assert samples.classes == ("tulip", "rose", "oak")
    assert samples.labels.tolist() == [1]


def test_labels_beside_a_folder_are_refused(flowers):
    with pytest.raises(LQFError, match="labels of its own"):
        load_samples(flowers, labels=[0] * 6)
    with pytest.raises(LQFError, match="ids of its own"):
        load_samples(flowers, ids=list("abcdef"))


def test_nothing_is_written(flowers):
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in sorted(flowers.rglob("*"))}
    open_images(load_samples(flowers), Preprocess(8)).batch([0, 1])
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in sorted(flowers.rglob("*"))} == before
