"""Lists and columns of labels in all forms; the choice per class; the table itself."""

import numpy as np
import pytest
import torch
from PIL import Image

from lqf.data import Preprocess, Samples, load_samples, load_unlabelled, open_images
from lqf.errors import LQFError

SMALL = Preprocess(8, 8)


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (6, 8, 9, 3), dtype=np.uint8)


def reference(pixels: np.ndarray) -> torch.Tensor:
    return open_images(load_samples(pixels), SMALL).batch(range(len(pixels)))


class TestLists:
    def test_of_paths(self, flowers):
        paths = sorted(flowers.rglob("*.png"))
        samples = load_samples(paths)
        assert samples.ids == tuple(p.as_posix() for p in paths)
        assert samples.labels.tolist() == [-1] * 6
        for labelled in (
            load_samples(np.array([str(p) for p in paths]), list("xxxyyy")),
            load_samples(paths, list("xxxyyy")),
        ):
            assert labelled.labels.tolist() == [0, 0, 0, 1, 1, 1]
            assert len(open_images(labelled, SMALL)) == 6

    def test_of_missing_paths(self, tmp_path):
        with pytest.raises(LQFError, match=r"of 2 paths these are not files: .*gone"):
            load_samples([tmp_path / "gone.png", tmp_path])

    def test_of_pictures(self, pixels):
        expected = reference(pixels)
        for items in (list(pixels), [Image.fromarray(p) for p in pixels], tuple(torch.from_numpy(p) for p in pixels)):
            assert torch.equal(open_images(load_samples(items, [0, 1] * 3), SMALL).batch(range(6)), expected)

    @pytest.mark.parametrize("source", [[], [1, 2], ["a", 1], None, 7, {"a": 1}, Image.new("RGB", (4, 4))])
    def test_of_something_else(self, source):
        with pytest.raises(LQFError, match="was given; expected"):
            load_samples(source)


class TestColumns:
    @pytest.mark.parametrize(
        ("labels", "classes"),
        [
            ([10, 9, 9, 10, 9, 10], ("9", "10")),
            (np.array([1.0, 0, 0, 1, 1, 0]), ("0", "1")),
            (torch.tensor([1, 0, 0, 1, 1, 0]), ("0", "1")),
            ([np.int64(1), np.int32(-1), 1, -1, 1, -1], ("-1", "1")),
            ([True, False] * 3, ("False", "True")),
            (np.array(["ü", "a"] * 3), ("a", "ü")),
            (np.array(["x", "y"] * 3, dtype=object), ("x", "y")),
        ],
    )
    def test_labels(self, pixels, labels, classes):
        samples = load_samples(pixels, labels)
        assert samples.classes == classes
        assert [samples.classes[k] for k in samples.labels] == [
            str(int(y)) if isinstance(y, float) else str(y)
            for y in (labels.tolist() if hasattr(labels, "tolist") else labels)
        ]

    @pytest.mark.parametrize("bad", [None, float("nan"), 0.5, [1, 0], b"x"])
    def test_bad_labels(self, pixels, bad):
        with pytest.raises(LQFError, match="label number 2"):
            load_samples(pixels, [0, 1, bad, 0, 1, 0])

    def test_text_is_not_a_list_of_labels(self, pixels):
        with pytest.raises(LQFError, match="not the text"):
            load_samples(pixels, "ababab")

    def test_wrong_lengths(self, pixels):
        for columns in ({"labels": [0, 1]}, {"sample_weight": [1, 1]}, {"groups": [1, 1]}):
            with pytest.raises(LQFError, match=r"6 images but 2"):
                load_samples(pixels, **columns)

    @pytest.mark.parametrize("bad", [-1, float("nan"), float("inf")])
    def test_bad_weights_are_named(self, pixels, bad):
        with pytest.raises(LQFError, match="those of `4` are not"):
            load_samples(pixels, sample_weight=[1, 1, 0, 1, bad, 1])

    def test_weights_that_are_no_numbers(self, pixels):
        with pytest.raises(LQFError, match="must be numbers"):
            load_samples(pixels, sample_weight=["a"] * 6)
        with pytest.raises(LQFError, match="one number per image"):
            load_samples(pixels, sample_weight=np.ones((6, 2)))

    def test_known_classes(self, pixels):
        samples = load_samples(pixels, [2, 0, 2, 0, 2, 0], classes=("2", "1", "0"))
        assert samples.classes == ("2", "1", "0")
        assert samples.labels.tolist() == [0, 2] * 3
        with pytest.raises(LQFError, match=r"`0` \(3 images\)"):
            load_samples(pixels, [2, 0] * 3, classes=[1, 2])
        with pytest.raises(LQFError, match="twice"):
            load_samples(pixels, [2, 0] * 3, classes=[2, 2])


class TestLimit:
    @pytest.fixture
    def many(self) -> Samples:
        return load_samples(torch.zeros(60, 1, 1), [0] * 40 + [1] * 20)

    def test_the_seed_decides_and_nothing_else(self, many):
        def chosen(seed, order=None, limit=5):
            source = many if order is None else many.select(order)
            return load_samples(source, limit_per_class=limit, seed=seed).ids

        assert chosen(0) == chosen(0)
        assert chosen(0) != chosen(1)
        assert set(chosen(0, np.random.default_rng(0).permutation(60))) == set(chosen(0))
        assert set(chosen(0)) < set(chosen(0, limit=9))

    def test_counts_and_order(self, many):
        few = load_samples(many, limit_per_class=30)
        assert few.counts.tolist() == [30, 20]
        assert list(few.ids) == sorted(few.ids, key=int)

    def test_the_choice_is_random(self, many):
        hits = np.zeros(60)
        for seed in range(200):
            hits[[int(i) for i in load_samples(many, limit_per_class=10, seed=seed).ids]] += 1
        assert 20 < hits[:40].min()  # 50 expected, standard deviation 6
        assert hits[:40].max() < 80

    def test_a_seed_chooses_the_same_files_again(self, flowers):
        ids = load_samples(flowers, limit_per_class=2, seed=3).ids
        assert len(ids) == 4
        assert load_samples(flowers, limit_per_class=2, seed=3).ids == ids

    def test_weights_follow(self, many):
        heavy = load_samples(
            torch.zeros(60, 1, 1), [0] * 40 + [1] * 20, sample_weight=np.arange(60.0), limit_per_class=3
        )
        assert heavy.weights.tolist() == [float(i) for i in heavy.ids]

    @pytest.mark.parametrize("limit", [0, -1, 2.5, True])
    def test_bad_limits(self, many, limit):
        with pytest.raises(LQFError, match="limit_per_class is"):
            load_samples(many, limit_per_class=limit)

    def test_needs_labels(self):
        with pytest.raises(LQFError, match="needs a label"):
            load_samples(torch.zeros(4, 1, 1), limit_per_class=1)


class TestTable:
    def test_select(self, flowers):
        samples = load_samples(flowers, sample_weight=range(6), groups=list("abcdef"))
        mask = np.array([False, True, False, False, True, True])
        for index in (
            [1, 4, 5],
            np.array([1, 4, 5]),
            torch.tensor([1, 4, 5]),
            mask,
            torch.from_numpy(mask),
            [1, -2, -1],
        ):
            some = samples.select(index)
            assert some.ids == ("rose/1.png", "tulip/1.png", "tulip/2.png")
            assert some.labels.tolist() == [0, 1, 1]
            assert some.weights.tolist() == [1, 4, 5]
            assert some.groups == ("b", "e", "f")
            assert some.classes == samples.classes
            assert [p.name for p in some.source.paths] == ["1.png", "1.png", "2.png"]
        assert len(samples.select([])) == 0
        assert np.array_equal(some.source.read(0), samples.source.read(1))

    @pytest.mark.parametrize("index", [[6], [-7], [0.5], [[0]], np.array([True])])
    def test_bad_index(self, flowers, index):
        with pytest.raises(LQFError):
            load_samples(flowers).select(index)

    def test_nobody_can_change_a_table(self, pixels):
        y = np.array([0, 1] * 3)
        samples = load_samples(pixels, y)
        y[:] = 0
        assert samples.labels.tolist() == [0, 1] * 3
        for column in (samples.labels, samples.weights):
            with pytest.raises(ValueError, match="read-only"):
                column[0] = 1

    def test_samples_can_be_loaded_again(self, pixels):
        samples = load_samples(pixels, [10, 9, 10, 9, 10, 9])
        again = load_samples(samples)
        assert (again.ids, again.classes, again.labels.tolist()) == (
            samples.ids,
            samples.classes,
            samples.labels.tolist(),
        )
        assert load_samples(samples, classes=("10", "9")).labels.tolist() == [0, 1] * 3

    def test_repr_is_short(self, flowers):
        assert repr(load_samples(flowers)) == f"Samples(`{flowers}`: 6 images, 2 classes)"


class TestUnlabelled:
    def test_files_and_folders(self, tree, monkeypatch, tmp_path):
        tree({"a/1.png": 0, "2.jpg": 1, "notes.txt": b"x", ".hidden.png": b"x"}, "new")
        tree({"x.tmp": b""}, "other")
        monkeypatch.chdir(tmp_path)
        samples = load_unlabelled(["new", "new/2.jpg", "new/../new/a/1.png"])
        assert samples.ids == ("new/2.jpg", "new/a/1.png")
        assert samples.labels.tolist() == [-1, -1]
        assert load_unlabelled("new/2.jpg", classes=("a", "b")).classes == ("a", "b")
        assert len(open_images(samples, SMALL, strict=True)) == 2

    def test_a_file_with_any_name_may_be_an_image(self, tree, picture):
        raw = (tree({"1.png": 0}) / "1.png").read_bytes()
        assert len(load_unlabelled(tree({"upload": raw}) / "upload")) == 1

    def test_no_image(self, tree):
        root = tree({"a.jpg": b"this is text, whatever it is called"})
        with pytest.raises(LQFError, match=r"a\.jpg` is not an image"):
            load_unlabelled([root / "a.jpg"])

    def test_missing_and_empty(self, tmp_path):
        with pytest.raises(LQFError, match=r"gone\.png` cannot be read: No such file"):
            load_unlabelled([tmp_path / "gone.png"])
        with pytest.raises(LQFError, match="has no image"):
            load_unlabelled(tmp_path)
        with pytest.raises(LQFError, match="no image was given"):
            load_unlabelled([])
