"""Opened images: skipped files, memory or disk, random crops, progress."""

import hashlib
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from lqf.data import Preprocess, check_trainable, load_samples, open_images
from lqf.data import images as images_module
from lqf.data.crops import random_crops, random_rectangles, windows_by_contents
from lqf.data.parallel import in_order
from lqf.errors import LQFError
from lqf.runtime.memory import _cgroup, _meminfo, available_ram, cores


@pytest.fixture
def mixed(tree, picture):
    """JPEGs, large and lying down, PNGs of several kinds; two classes."""
    exif = Image.Exif()
    exif[0x0112] = 6
    root = tree(
        {
            "a/1.png": 1,
            "a/2.png": picture(2).convert("L"),
            "b/3.tif": picture(3).convert("CMYK"),
            "b/4.png": picture(4, (30, 50)).convert("P"),
        }
    )
    picture(5, (900, 700)).save(root / "a" / "5.jpg", exif=exif)
    picture(6, (64, 200)).save(root / "b" / "6.jpg")
    return root


@pytest.fixture
def damaged(tree, picture):
    """Five good images and three that are not, one of them first and one last."""
    root = tree(
        {f"{c}/{i}.png": i for c in "ab" for i in range(2, 4)} | {"b/4.png": 9, "a/0text.jpg": b"no image at all"}
    )
    whole = root / "whole.jpg"
    picture(0, (300, 200)).save(whole)
    (root / "a" / "2cut.jpg").write_bytes(whole.read_bytes()[:2000])
    (root / "b" / "z.png").write_bytes(b"")
    whole.unlink()
    return root


class TestSkipping:
    def test_bad_files_are_listed_and_the_rest_kept(self, damaged):
        images = open_images(load_samples(damaged), Preprocess(16))
        reasons = dict(images.skipped)
        assert list(reasons) == ["a/0text.jpg", "a/2cut.jpg", "b/z.png"]
        assert "not an image" in reasons["a/0text.jpg"]
        assert reasons["a/2cut.jpg"] == "is truncated"
        assert "empty" in reasons["b/z.png"]
        assert images.samples.ids == ("a/2.png", "a/3.png", "b/2.png", "b/3.png", "b/4.png")
        assert images.samples.labels.tolist() == [0, 0, 1, 1, 1]
        assert len(images) == len(images.hashes) == 5

    @pytest.mark.parametrize("memory", [None, 0])
    def test_the_pixels_move_with_their_samples(self, damaged, memory):
        images = open_images(load_samples(damaged), Preprocess(16), memory_bytes=memory)
        for i, id in enumerate(images.samples.ids):
            alone = open_images(load_samples([damaged / id]), Preprocess(16))
            assert torch.equal(images.batch([i]), alone.batch([0]))
            assert images.hashes[i] == alone.hashes[0] == hashlib.sha256((damaged / id).read_bytes()).hexdigest()

    def test_strict_refuses(self, damaged):
        with pytest.raises(
            LQFError, match=r"3 of 8 images in .*`a/0text.jpg` is not an image.*`a/2cut.jpg` is truncated"
        ):
            open_images(load_samples(damaged), Preprocess(16), strict=True)

    def test_strict_lists_ten(self, tree):
        root = tree({f"a/{i:02}.jpg": b"text" for i in range(12)} | {"b/1.png": 0})
        with pytest.raises(LQFError, match=r"a/09\.jpg.*and 2 more") as raised:
            open_images(load_samples(root), Preprocess(16), strict=True)
        assert "a/10.jpg" not in str(raised.value)

    def test_nothing_readable_is_refused_always(self, tree):
        root = tree({"a/1.jpg": b"text", "b/2.jpg": b"text"})
        with pytest.raises(LQFError, match="2 of 2 images"):
            open_images(load_samples(root), Preprocess(16))

    def test_a_class_can_become_too_small(self, tree):
        root = tree({"a/1.png": 0, "a/2.png": 1, "b/1.png": 2, "b/2.jpg": b"text"})
        samples = load_samples(root)
        assert check_trainable(samples) == []
        assert "`b`" in check_trainable(open_images(samples, Preprocess(16)).samples)[0]


class TestMemoryOrDisk:
    @pytest.mark.parametrize(
        "preprocess", [Preprocess(24, 32, views="ten"), Preprocess(24, 32, True, "bicubic", views="ten")]
    )
    def test_same_pixels(self, mixed, preprocess):
        samples = load_samples(mixed)
        needed = len(samples) * 3 * 32 * 32
        memory = open_images(samples, preprocess, memory_bytes=needed)
        disk = open_images(samples, preprocess, memory_bytes=needed - 1)
        assert memory.store is not None
        assert disk.store is None
        assert memory.hashes == disk.hashes
        for view in range(10):
            assert torch.equal(memory.batch([5, 0, 3, 1, 2, 4], view), disk.batch([5, 0, 3, 1, 2, 4], view))
        for scheme in ("crop", "resized"):
            a, b = (
                random_crops(im.whole([0, 1, 5]), scheme, 24, torch.Generator().manual_seed(1)) for im in (memory, disk)
            )
            assert torch.equal(a, b)

    @pytest.mark.parametrize("memory", [None, 0])
    def test_threads_do_not_matter(self, mixed, memory):
        one, many = (open_images(load_samples(mixed), Preprocess(24), workers=w, memory_bytes=memory) for w in (1, 7))
        assert torch.equal(one.batch(range(6)), many.batch(range(6)))
        assert one.hashes == many.hashes

    def test_half_of_what_is_free_by_default(self, mixed, monkeypatch):
        needed = 6 * 3 * 32 * 32
        for free, kept in ((2 * needed, True), (2 * needed - 2, False)):
            monkeypatch.setattr(images_module, "available_ram", lambda free=free: free)
            images = open_images(load_samples(mixed), Preprocess(24, 32))
            assert (images.store is not None) == kept

    def test_a_file_that_changes_or_goes_during_a_run(self, flowers, picture):
        images = open_images(load_samples(flowers), Preprocess(16), memory_bytes=0)
        picture(99).save(flowers / "rose" / "0.png")
        with pytest.raises(LQFError, match=r"`rose/0.png` is not the image it was"):
            images.batch([0])
        (flowers / "rose" / "1.png").unlink()
        with pytest.raises(LQFError, match=r"`rose/1.png` could be read before, and now it cannot be opened"):
            images.batch([1])
        assert images.batch([2]).shape == (1, 3, 16, 16)

    def test_a_batch_is_the_callers_own(self, flowers):
        images = open_images(load_samples(flowers), Preprocess(16, 16))
        before = images.batch([0, 1]).clone()
        images.batch([0, 1]).zero_()
        random_crops(images.whole([0, 1]), "crop", 16, torch.Generator()).zero_()
        assert torch.equal(images.batch([0, 1]), before)

    def test_forms_of_an_index(self, flowers):
        images = open_images(load_samples(flowers), Preprocess(16))
        expected = images.batch([1, 3])
        mask = torch.tensor([False, True, False, True, False, False])
        for index in (torch.tensor([1, 3]), np.array([1, 3]), (1, 3), mask, range(1, 4, 2)):
            assert torch.equal(images.batch(index), expected)
        assert images.batch([]).shape == (0, 3, 16, 16)
        with pytest.raises(LQFError, match="does not fit 6 samples"):
            images.batch([6])


class TestRandomCrops:
    @pytest.fixture
    def images(self):
        pixels = np.random.default_rng(0).integers(0, 256, (4, 12, 12, 3), dtype=np.uint8)
        return open_images(load_samples(pixels), Preprocess(8, 12)), torch.from_numpy(pixels).permute(0, 3, 1, 2)

    @pytest.mark.parametrize("scheme", ["crop", "resized"])
    def test_the_generator_decides(self, images, scheme):
        im, _ = images

        def draw(seed, n=1):
            g = torch.Generator().manual_seed(seed)
            return [random_crops(im.whole([0, 1, 2, 3] * 4), scheme, 8, g) for _ in range(n)]

        first, second = draw(0, 2)
        again = draw(0, 2)
        assert first.shape == (16, 3, 8, 8)
        assert first.dtype == torch.uint8
        assert torch.equal(first, again[0])
        assert torch.equal(second, again[1])
        assert not torch.equal(first, second)
        assert not torch.equal(first, draw(1)[0])

    def test_crops_are_windows_of_the_image_everywhere_and_mirrored_half_the_time(self, images):
        im, whole = images
        windows = {
            whole[1, :, t : t + 8, l : l + 8].numpy().tobytes(): (t, l, False) for t in range(5) for l in range(5)
        } | {
            whole[1, :, t : t + 8, l : l + 8].flip(-1).numpy().tobytes(): (t, l, True)
            for t in range(5)
            for l in range(5)
        }
        out = random_crops(im.whole([1] * 600), "crop", 8, torch.Generator().manual_seed(0))
        found = [windows[x.numpy().tobytes()] for x in out]
        assert {(t, l) for t, l, _ in found} == {(t, l) for t in range(5) for l in range(5)}
        assert 240 < sum(m for _, _, m in found) < 360  # 300 expected, standard deviation 12

    def test_without_room_there_are_only_mirror_images(self, images):
        whole = images[1][:, :, :8, :8]
        im = open_images(load_samples(whole), Preprocess(8, 8))
        for x in random_crops(im.whole([2] * 20), "crop", 8, torch.Generator().manual_seed(0)):
            assert torch.equal(x, whole[2]) or torch.equal(x, whole[2].flip(-1))

    @pytest.mark.parametrize("by", ["generator", "contents"])
    def test_rectangles_have_the_area_and_ratio_they_should(self, by):
        windows = windows_by_contents([hashlib.sha256(str(i).encode()).hexdigest() for i in range(4000)], 2, 256)
        drawn = random_rectangles(4000, 256, torch.Generator().manual_seed(0)).boxes
        boxes = (drawn if by == "generator" else windows.boxes).double().numpy()
        assert 1900 < windows.mirrored.sum() < 2100
        top, left, h, w = boxes.T
        assert (top >= 0).all()
        assert (left >= 0).all()
        assert (top + h <= 256).all()
        assert (left + w <= 256).all()
        area, ratio = h * w / 256**2, w / h
        assert area.min() < 0.1
        assert area.min() > 0.075
        assert area.max() > 0.9
        assert ratio.min() > 0.73
        assert ratio.max() < 1.37
        assert abs(np.log(ratio).mean()) < 0.02
        assert top.max() > 150
        assert top.min() == 0

    def test_an_image_has_its_own_resized_crops_wherever_it_stands(self, images):
        whole = images[1]
        p = Preprocess(8, 12, views="resized")
        together, alone = open_images(load_samples(whole), p), open_images(load_samples(whole[1:2]), p, memory_bytes=0)
        flip = open_images(load_samples(whole), Preprocess(8, 12, views="flip"))
        assert together.n_views == 4
        for view in range(4):
            batch = together.batch([2, 1], view)
            assert batch.is_contiguous()
            assert torch.equal(batch[1], alone.batch([0], view)[0])
            assert torch.equal(batch[0], together.batch([2], view)[0])
        for view in range(2):  # the centre and its mirror image
            assert torch.equal(together.batch([0, 1, 2], view), flip.batch([0, 1, 2], view))
        assert not torch.equal(together.batch([1], 2), together.batch([1], 3))
        boxes = [windows_by_contents(together.hashes, view, 12).boxes for view in (2, 3)]
        assert len({tuple(b) for both in boxes for b in both.tolist()}) > 3
        top, left, h, w = boxes[0][1]
        piece = Image.fromarray(whole[1, :, top : top + h, left : left + w].permute(1, 2, 0).contiguous().numpy())
        expected = torch.from_numpy(np.array(piece.resize((8, 8), Image.Resampling.BILINEAR))).permute(2, 0, 1)
        out = together.batch([1], 2)[0]
        assert torch.equal(out, expected) or torch.equal(out, expected.flip(-1))
        with pytest.raises(LQFError, match="there are 4"):
            together.batch([0], 4)

    @pytest.mark.parametrize(("views", "least"), [("resized", 0.08), ("crops8", 0.25), ("crops20", 0.25)])
    def test_drawn_crops_have_the_area_of_their_kind(self, views, least):
        p, side = Preprocess(48, 64, views=views), 64
        hashes = [f"{i:064x}" for i in range(500)]
        areas = []
        for view in range(2, p.n_views):
            assert p.drawn(view)
            boxes = windows_by_contents(hashes, view, side, p.drawn_area, p.drawn_ratio).boxes
            areas += (boxes[:, 2] * boxes[:, 3] / side**2).tolist()
        assert not p.drawn(0)
        assert not p.drawn(1)
        assert least - 0.02 < min(areas) < least + 0.05
        assert max(areas) > 0.95

    def test_resized_crops_are_pieces_of_the_image(self, images):
        im, whole = images
        seed = torch.Generator().manual_seed(3)
        box = random_rectangles(1, 12, torch.Generator().manual_seed(3)).boxes[0]
        top, left, h, w = box
        piece = Image.fromarray(whole[0, :, top : top + h, left : left + w].permute(1, 2, 0).contiguous().numpy())
        expected = torch.from_numpy(np.array(piece.resize((8, 8), Image.Resampling.BILINEAR))).permute(2, 0, 1)
        out = random_crops(im.whole([0]), "resized", 8, seed)[0]
        assert max(h, w) < 8  # enlarged, Pillow's bilinear filter is this one but for the edges, where it knows no more
        inner = [(out.int() - e.int())[:, 1:-1, 1:-1].abs() for e in (expected, expected.flip(-1))]
        assert min(int(gap.max()) for gap in inner) <= 1

    def test_empty_and_unknown(self, images):
        im, _ = images
        for scheme in ("crop", "resized"):
            assert random_crops(im.whole([]), scheme, 8, torch.Generator()).shape == (0, 3, 8, 8)
        with pytest.raises(LQFError, match="choose crop or resized"):
            random_crops(im.whole([0]), "cutmix", 8, torch.Generator())


class TestProgressAndThreads:
    def test_progress_is_told_of_every_image(self, damaged, recorder):
        open_images(load_samples(damaged), Preprocess(16), progress=recorder)
        assert recorder.stages == [("reading images", 8, 8)]

    def test_progress_for_tensors(self, recorder):
        open_images(load_samples(torch.randn(5, 2), tensors="normalized"), Preprocess(16), progress=recorder)
        assert recorder.stages == [("reading images", 5, 5)]

    def test_order_and_number_of_threads(self):
        barrier = threading.Barrier(3, timeout=10)  # passes only if three threads are there together

        def work(i):
            barrier.wait()
            return i * i

        assert list(in_order(work, range(9), 3)) == [i * i for i in range(9)]

    def test_more_tasks_than_wait_at_once(self, monkeypatch):
        monkeypatch.setattr("lqf.data.parallel._AT_ONCE", 4)
        assert list(in_order(lambda i: -i, range(11), 2)) == [-i for i in range(11)]

    def test_an_exception_drops_what_has_not_started(self):
        started = []

        def work(i):
            started.append(i)
            if i == 0:
                raise KeyboardInterrupt
            threading.Event().wait(0.001)

        with pytest.raises(KeyboardInterrupt):
            list(in_order(work, range(1000), 2))
        assert len(started) < 1000


class TestMemory:
    def test_this_machine_has_memory_and_cores(self):
        assert 1 << 20 < available_ram() < 1 << 50
        assert cores() >= 1

    def test_meminfo(self, tmp_path):
        (tmp_path / "m").write_text("MemTotal: 9 kB\nMemAvailable:   2000 kB\n")
        assert _meminfo(str(tmp_path / "m")) == 2000 * 1024
        assert _meminfo(str(tmp_path / "gone")) is None

    def test_the_tightest_cgroup_counts(self, tmp_path):
        own = tmp_path / "self"
        own.write_text("0::/job/step\n")
        for folder, limit, used in ((".", "max", 10), ("job", "1000", 700), ("job/step", "5000", 100)):
            here = tmp_path / "cg" / folder
            here.mkdir(parents=True, exist_ok=True)
            (here / "memory.max").write_text(f"{limit}\n")
            (here / "memory.current").write_text(f"{used}\n")
            (here / "memory.stat").write_text("anon 5\ninactive_file 50\n")
        assert _cgroup(str(tmp_path / "cg"), str(own)) == 350
        assert _cgroup(str(tmp_path / "none"), str(own)) is None

    def test_the_container_bounds_the_machine(self, monkeypatch):
        monkeypatch.setattr("lqf.runtime.memory._meminfo", lambda: 1000)
        for container, free in ((300, 300), (5000, 1000), (None, 1000)):
            monkeypatch.setattr("lqf.runtime.memory._cgroup", lambda container=container: container)
            assert available_ram() == free

    def test_limits_of_cgroups_of_version_1_count(self, tmp_path):
        own = tmp_path / "self"
        own.write_text("3:cpu:/x\n5:memory:/job\n")
        here = tmp_path / "memory" / "job"
        here.mkdir(parents=True)
        (here / "memory.limit_in_bytes").write_text("900\n")
        (here / "memory.usage_in_bytes").write_text("400\n")
        assert _cgroup(str(tmp_path), str(own)) == 500


@pytest.mark.shared_data
def test_real_photographs(shared_datasets):
    samples = load_samples(shared_datasets / "oxford_flowers102" / "train", limit_per_class=1)
    assert len(samples) == len(samples.classes) == 102
    images = open_images(samples, Preprocess(64))
    assert images.skipped == ()
    assert images.batch(range(102)).float().std() > 30


def test_the_protocol_is_kept(flowers):
    for source, tensors in ((flowers, "pictures"), (torch.randn(4, 2), "normalized")):
        images = open_images(load_samples(source, tensors=tensors), Preprocess(16))
        wanted = SimpleNamespace(samples=0, n_views=0, skipped=0, hashes=0, batch=0, whole=0)
        assert all(hasattr(images, name) for name in vars(wanted))
        assert len(images) == len(images.samples)
