"""Arrays, tensors, data sets."""

import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from lqf.data import Preprocess, check_trainable, load_samples, open_images
from lqf.data.readers import arrays as arrays_module
from lqf.errors import LQFError

SMALL = Preprocess(8, 8)


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (6, 8, 9, 3), dtype=np.uint8)


class Pairs(Dataset):
    """A data set that counts how often each item is read."""

    def __init__(self, images, labels):
        self.images, self.labels, self.reads = images, labels, [0] * len(images)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        self.reads[i] += 1
        return self.images[i], self.labels[i]


def reference(pixels: np.ndarray) -> torch.Tensor:
    return open_images(load_samples(pixels), SMALL).batch(range(len(pixels)))


class TestArrays:
    def test_ids_and_labels(self, pixels):
        samples = load_samples(pixels, [3, 10, 3, 10, 3, 2], sample_weight=[1, 2, 3, 4, 5, 6], groups=list("aabbcc"))
        assert samples.ids == ("0", "1", "2", "3", "4", "5")
        assert samples.classes == ("2", "3", "10")  # by value, not by letters
        assert samples.labels.tolist() == [1, 2, 1, 2, 1, 0]
        assert samples.weights.tolist() == [1, 2, 3, 4, 5, 6]
        assert samples.groups == tuple("aabbcc")

    def test_without_labels(self, pixels):
        samples = load_samples(pixels)
        assert samples.classes == ()
        assert samples.labels.tolist() == [-1] * 6
        with pytest.raises(LQFError, match="no label for `0`, `1`"):
            check_trainable(samples)

    def test_given_ids(self, pixels):
        assert load_samples(pixels, ids=list("uvwxyz")).ids == tuple("uvwxyz")
        with pytest.raises(LQFError, match="`u` more than once"):
            load_samples(pixels, ids=list("uuwxyz"))
        with pytest.raises(LQFError, match="give one per image"):
            load_samples(pixels, ids=["a"])

    def test_layouts_give_the_same_pixels(self, pixels):
        first = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
        expected = reference(pixels)
        for other in (first, torch.from_numpy(first), torch.from_numpy(pixels), pixels[:, ::1]):
            images = open_images(load_samples(other), SMALL)
            assert torch.equal(images.batch(range(6)), expected)
            assert images.hashes == open_images(load_samples(pixels), SMALL).hashes

    def test_where_both_readings_are_possible_the_library_decides(self):
        array = np.random.default_rng(1).integers(0, 256, (2, 3, 5, 3), dtype=np.uint8)
        last = open_images(load_samples(array), Preprocess(8, 8)).samples.source.read(0)
        first = open_images(load_samples(torch.from_numpy(array)), Preprocess(8, 8)).samples.source.read(0)
        assert last.size == (5, 3)
        assert first.size == (3, 5)

    @pytest.mark.parametrize("shape", [(4, 8, 9), (4, 8, 9, 1), (4, 1, 8, 9)])
    def test_greyscale(self, shape):
        array = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
        out = open_images(load_samples(array), SMALL).batch([2])[0]
        assert torch.equal(out[0], out[1])
        image = Image.fromarray(array[2].reshape(8, 9)).resize((8, 8), Image.Resampling.BILINEAR)
        np.testing.assert_array_equal(out[0], np.asarray(image))

    def test_alpha_over_white(self):
        clear = np.zeros((2, 8, 8, 4), np.uint8)
        assert (open_images(load_samples(clear), SMALL).batch([0, 1]) == 255).all()

    @pytest.mark.parametrize(
        "array",
        [np.zeros((2, 8, 8, 2), np.uint8), np.zeros((2, 0, 8), np.uint8), np.zeros((2, 3), np.uint8)],
    )
    def test_shapes_that_are_no_images(self, array):
        with pytest.raises(LQFError, match="expected"):
            load_samples(array)

    @pytest.mark.parametrize("array", [np.zeros((0, 8, 8, 3), np.uint8), np.zeros(3), torch.tensor(1.0)])
    def test_empty_or_no_rows(self, array):
        with pytest.raises(LQFError, match="one or more images along the first axis"):
            load_samples(array)

    @pytest.mark.parametrize("dtype", [np.int64, np.uint16, np.bool_, np.complex64])
    def test_other_types_are_refused(self, dtype):
        with pytest.raises(LQFError, match="give uint8 images"):
            load_samples(np.zeros((2, 8, 8, 3), dtype))

    def test_the_array_is_not_copied_or_changed(self, pixels):
        pixels.setflags(write=False)
        samples = load_samples(pixels)
        assert np.shares_memory(samples.source.items, pixels)
        open_images(samples, SMALL).whole([0, 1])


class TestTensors:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
    def test_go_through_unchanged(self, dtype):
        x = torch.randn(5, 2, 3, dtype=dtype, requires_grad=True)
        images = open_images(load_samples(x, [0, 1, 0, 1, 0], tensors="normalized"), SMALL)
        out = images.batch([4, 0])
        assert out.dtype == dtype
        assert not out.requires_grad
        assert torch.equal(out, x.detach()[[4, 0]])
        assert images.n_views == 1
        assert len(set(images.hashes)) == 5

    @pytest.mark.parametrize("dtype", ["<f4", ">f4", ">f8", "<f2", "g"])
    def test_numpy_floats(self, dtype):
        array = np.random.default_rng(0).standard_normal((4, 3)).astype(dtype)
        out = open_images(load_samples(array, tensors="normalized"), SMALL).batch([1, 3])
        np.testing.assert_array_equal(out.numpy(), array[[1, 3]].astype(out.numpy().dtype))

    def test_read_only_and_reversed_arrays_without_a_warning(self):
        array = np.arange(12.0).reshape(4, 3)
        array.setflags(write=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for a in (array, array[::-1]):
                out = open_images(load_samples(a, tensors="normalized"), SMALL).batch([0])
                np.testing.assert_array_equal(out, a[:1])

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_nan_and_infinity_are_refused(self, bad):
        array = np.zeros((700, 3))
        array[5, 1] = array[650, 2] = bad
        for x in (array, torch.from_numpy(array), list(torch.from_numpy(array))):
            with pytest.raises(LQFError, match="NaN or infinite values in the samples `5`, `650`"):
                load_samples(x, tensors="normalized")

    def test_have_one_view_and_no_random_crops(self):
        samples = load_samples(torch.randn(4, 3), tensors="normalized")
        images = open_images(samples, SMALL)
        with pytest.raises(LQFError, match="one view"):
            images.batch([0], 1)
        with pytest.raises(LQFError, match="unchanged"):
            images.whole([0])
        with pytest.raises(LQFError, match="need pictures"):
            open_images(samples, Preprocess(8, views="flip"))

    def test_select(self):
        x = torch.randn(5, 2)
        for source in (x, list(x)):
            samples = load_samples(source, tensors="normalized").select([4, 2, 0]).select([2, 0])
            images = open_images(samples, SMALL)
            assert torch.equal(images.batch([0, 1]), x[[0, 4]])
            assert images.samples.ids == ("0", "4")
            assert images.batch([]).shape == (0, 2)


class TestDatasets:
    def test_of_pil_images(self, pixels):
        data = Pairs([Image.fromarray(p) for p in pixels], ["b", "a"] * 3)
        images = open_images(load_samples(data), SMALL)
        assert images.samples.classes == ("a", "b")
        assert images.samples.labels.tolist() == [1, 0] * 3
        assert torch.equal(images.batch(range(6)), reference(pixels))
        assert data.reads == [1] * 6

    def test_of_arrays_of_different_sizes(self, picture):
        pictures = [picture(i, (10 + i, 20 - i)) for i in range(4)]
        images = open_images(load_samples(Pairs([np.asarray(p) for p in pictures], [0, 1] * 2)), SMALL)
        expected = [np.asarray(p.resize((8, 8), Image.Resampling.BILINEAR)).transpose(2, 0, 1) for p in pictures]
        np.testing.assert_array_equal(images.batch(range(4)), np.stack(expected))

    def test_of_uint8_tensors(self, pixels):
        tensors = [torch.from_numpy(p).permute(2, 0, 1) for p in pixels]
        images = open_images(load_samples(Pairs(tensors, [0, 1] * 3)), SMALL)
        assert torch.equal(images.batch(range(6)), reference(pixels))

    def test_of_float_tensors(self):
        x, y = torch.randn(6, 3, 4, 4), torch.tensor([0, 1, 2, 0, 1, 2])
        data = Pairs(x, y)
        images = open_images(load_samples(data, tensors="normalized"), SMALL)
        assert torch.equal(images.batch([5, 1]), x[[5, 1]])
        assert images.samples.labels.tolist() == y.tolist()
        assert data.reads == [1] * 6
        assert load_samples(TensorDataset(x, y), tensors="normalized").classes == ("0", "1", "2")

    def test_class_names_of_the_data_set_are_used(self, pixels):
        data = Pairs(pixels, [2, 0, 1, 2, 0, 1])
        data.classes = ["zebra", "ant", "cat"]
        samples = load_samples(Subset(data, [0, 1, 3]))
        assert samples.classes == ("cat", "zebra")
        assert samples.labels.tolist() == [0, 1, 0]

    def test_pairs_in_a_list(self, pixels):
        samples = load_samples([(p, i % 2) for i, p in enumerate(pixels)])
        assert samples.labels.tolist() == [0, 1] * 3

    def test_labels_given_beside_a_data_set(self, pixels):
        assert load_samples(Pairs(pixels, [None] * 6), list("ababab")).classes == ("a", "b")

    def test_what_does_not_fit_in_memory_is_read_again(self, pixels, monkeypatch):
        monkeypatch.setattr(arrays_module, "available_ram", lambda: 2 * 3 * pixels[0].nbytes)
        data = Pairs(pixels, [0, 1] * 3)
        images = open_images(load_samples(data), SMALL)
        assert data.reads == [1, 1, 1, 2, 2, 2]
        assert torch.equal(images.batch(range(6)), reference(pixels))

    def test_random_transforms_are_noticed_when_read_again(self, pixels, monkeypatch):
        class Noisy(Pairs):
            def __getitem__(self, i):
                self.reads[i] += 1
                return self.images[i] // 2 + self.reads[i], self.labels[i]

        monkeypatch.setattr(arrays_module, "available_ram", lambda: 0)
        images = open_images(load_samples(Noisy(pixels, [0, 1] * 3)), SMALL, memory_bytes=0)
        with pytest.raises(LQFError, match="random transforms"):
            images.batch([0])

    def test_progress(self, pixels, recorder):
        load_samples(Pairs(pixels, [0, 1] * 3), progress=recorder)
        assert recorder.stages == [("reading the data set", 6, 6)]

    def test_a_damaged_lazy_image_is_skipped(self, pixels, tree):
        raw = (tree({"a.bmp": 0}) / "a.bmp").read_bytes()
        path = tree({"cut.bmp": raw[:500]}) / "cut.bmp"
        images = open_images(load_samples(Pairs([Image.open(path), *pixels[:3]], [0, 1, 0, 1])), SMALL)
        assert [id for id, _ in images.skipped] == ["0"]
        assert images.samples.ids == ("1", "2", "3")

    @pytest.mark.parametrize(
        ("images", "labels", "sentence"),
        [
            (
                [torch.randn(3, 8, 8), np.zeros((8, 8, 3), np.uint8)],
                [0, 1],
                "values from -.*; pixels are 0 to 1",
            ),
            ([torch.randn(2)] * 2, [0, 1], r"item 0 of the data set has images of shape \(2,\)"),
            (["a.jpg", "b.jpg"], [0, 1], "item 0 of the data set is a str"),
            ([torch.zeros(3, 8, 8).long()] * 2, [0, 1], "item 0 of the data set holds int64"),
            ([torch.rand(8, 8, 3)] * 2, [0, None], "label number 1 is None"),
            ([torch.rand(8, 8, 3)] * 2, [0, [1, 2]], r"label number 1 is \[1, 2\].* one label an image only"),
            ([], [], "is empty"),
        ],
    )
    def test_errors(self, images, labels, sentence):
        with pytest.raises(LQFError, match=sentence):
            load_samples(Pairs(images, labels))

    @pytest.mark.parametrize(
        ("images", "sentence"),
        [
            ([torch.randn(2), torch.randn(3)], r"item 0 is \(2,\) torch.float32, item 1 is \(3,\)"),
            ([torch.randn(3, 8, 8), np.zeros((8, 8, 3), np.uint8)], "item 1 of the data set holds uint8; tensors="),
            ([torch.randn(3, 8, 8), Image.new("RGB", (8, 8))], "item 1 of the data set is a Image; tensors="),
        ],
    )
    def test_errors_of_normalized_tensors(self, images, sentence):
        with pytest.raises(LQFError, match=sentence):
            load_samples(Pairs(images, [0, 1]), tensors="normalized")

    def test_an_item_that_raises_is_named(self):
        class Broken(Pairs):
            def __getitem__(self, i):
                return {0: (torch.rand(3, 4, 4), 0)}[i]

        with pytest.raises(LQFError, match="item 1 of the data set cannot be read: KeyError"):
            load_samples(Broken([1, 2], [0, 1]))

    def test_images_without_labels(self, pixels):
        class Bare(Pairs):
            def __getitem__(self, i):
                return self.images[i]

        with pytest.raises(LQFError, match=r"expected \(image, label\)"):
            load_samples(Bare(pixels, []))
        assert len(load_samples(Bare(pixels, []), [0, 1] * 3)) == 6

    def test_other_kinds_say_what_to_give(self, pixels):
        class Stream(IterableDataset):
            def __iter__(self):
                return iter(())

        class Endless(Dataset):
            def __getitem__(self, i):
                return 0, 0

        for source, sentence in (
            (DataLoader(Pairs(pixels, [0] * 6)), r"loader\.dataset"),
            (Stream(), "map-style"),
            (Endless(), "no length"),
        ):
            with pytest.raises(LQFError, match=sentence):
                load_samples(source)
