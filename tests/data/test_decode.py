"""Every kind of image becomes upright 8-bit RGB, and what is not an image gets a reason."""

import hashlib
import io
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from lqf.data import Preprocess, load_samples, open_images
from lqf.data.decode import Unreadable, is_image, sha256, to_image
from lqf.errors import LQFError

W, H = 7, 5


def encoded(image: Image.Image, format: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def rgb(raw) -> np.ndarray:
    image = to_image(raw)
    assert image.mode == "RGB"
    return np.asarray(image)


@pytest.fixture
def noise() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (H, W, 3), dtype=np.uint8)


@pytest.fixture
def grey() -> np.ndarray:
    return np.random.default_rng(4).integers(0, 256, (H, W), dtype=np.uint8)


# what a camera that was held in each of the eight ways has stored, for a picture that should look like `upright`
STORED = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, 1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a, -1),
}


@pytest.mark.parametrize("format", ["PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(noise, orientation, format):
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(np.ascontiguousarray(STORED[orientation](noise)))
    options = {"lossless": True} if format == "WEBP" else {}
    np.testing.assert_array_equal(rgb(encoded(stored, format, exif=exif, **options)), noise)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_of_a_jpeg(picture, orientation):
    upright = np.asarray(picture(1, (48, 32)))
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(np.ascontiguousarray(STORED[orientation](upright)))
    out = rgb(encoded(stored, "JPEG", quality=100, subsampling=0, exif=exif))
    assert out.shape == upright.shape
    assert np.abs(out.astype(int) - upright).max() <= 6


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_what_pillow_makes_of_it(noise, orientation):
    stored = Image.fromarray(np.ascontiguousarray(STORED[orientation](noise)))
    stored.getexif()[0x0112] = orientation
    upright = np.asarray(ImageOps.exif_transpose(stored))
    np.testing.assert_array_equal(rgb(encoded(stored, "PNG", exif=stored.getexif())), upright)
    np.testing.assert_array_equal(upright, noise)


def test_orientation_survives_a_change_of_mode(grey):
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = Image.fromarray(np.ascontiguousarray(np.rot90(grey, 1)).astype(np.uint16) * 257)
    np.testing.assert_array_equal(rgb(encoded(stored, "PNG", exif=exif))[..., 0], grey)


def test_damaged_or_absurd_metadata_does_not_lose_the_pixels(noise):
    for bad in (b"Exif\0\0garbage", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff"):
        np.testing.assert_array_equal(rgb(encoded(Image.fromarray(noise), "PNG", exif=bad)), noise)
    exif = Image.Exif()
    exif[0x0112] = 42
    np.testing.assert_array_equal(rgb(encoded(Image.fromarray(noise), "PNG", exif=exif)), noise)


@pytest.mark.parametrize("format", ["PNG", "BMP", "TIFF", "PPM", "GIF", "JPEG"])
def test_greyscale(grey, format):
    options = {"quality": 100} if format == "JPEG" else {}
    out = rgb(encoded(Image.fromarray(grey), format, **options))
    assert np.abs(out.astype(int) - grey[..., None]).max() <= (2 if format == "JPEG" else 0)


def test_black_and_white(grey):
    out = rgb(encoded(Image.fromarray(grey > 128), "PNG"))
    np.testing.assert_array_equal(out, np.where(grey > 128, 255, 0)[..., None].repeat(3, 2))


def test_palette():
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putdata([0, 1])
    np.testing.assert_array_equal(rgb(encoded(image, "PNG")), [[[10, 20, 30], [200, 100, 50]]])


@pytest.mark.parametrize("transparency", [1, bytes([255, 0])])
def test_transparent_palette_entries_become_white(transparency):
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putdata([0, 1])
    raw = encoded(image, "PNG", transparency=transparency)
    np.testing.assert_array_equal(rgb(raw), [[[10, 20, 30], [255, 255, 255]]])


def test_transparency_is_laid_over_white(noise):
    alpha = np.arange(H * W, dtype=np.uint8).reshape(H, W) * 7
    out = rgb(encoded(Image.fromarray(np.dstack([noise, alpha])), "PNG"))
    share = alpha[..., None] / 255
    assert np.abs(out - (noise * share + 255 * (1 - share))).max() <= 1
    assert (out[0, 0] == 255).all()


def test_opaque_rgba_keeps_its_pixels(noise):
    raw = encoded(Image.fromarray(np.dstack([noise, np.full((H, W), 255, np.uint8)])), "PNG")
    np.testing.assert_array_equal(rgb(raw), noise)


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_grey_with_alpha(grey, format):
    alpha = np.where(grey > 128, 255, 0).astype(np.uint8)
    image = Image.merge("LA", (Image.fromarray(grey), Image.fromarray(alpha)))
    expected = np.where(alpha == 255, grey, 255)[..., None].repeat(3, 2)
    np.testing.assert_array_equal(rgb(encoded(image, format)), expected)


@pytest.mark.parametrize(("mode", "key"), [("L", 7), ("RGB", (7, 8, 9))])
def test_png_colour_key_becomes_white(mode, key):
    image = Image.new(mode, (2, 1), key)
    image.putpixel((1, 0), 100 if mode == "L" else (100, 100, 100))
    np.testing.assert_array_equal(rgb(encoded(image, "PNG", transparency=key)), [[[255, 255, 255], [100, 100, 100]]])


@pytest.mark.parametrize("format", ["TIFF", "JPEG"])
def test_cmyk(format):
    image = Image.new("CMYK", (16, 16), (0, 255, 255, 0))  # full magenta and yellow: red
    out = rgb(encoded(image, format, **({"quality": 100} if format == "JPEG" else {})))
    assert np.abs(out.astype(int) - [255, 0, 0]).max() <= 2


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_16_bit_grey_is_scaled_not_clipped(format):
    deep = np.array([[0, 128, 257, 32768, 65535]], np.uint16)
    out = rgb(encoded(Image.fromarray(deep), format))
    np.testing.assert_array_equal(out, np.array([0, 0, 1, 128, 255])[None, :, None].repeat(3, 2))


def test_a_dark_16_bit_image_stays_dark():
    out = rgb(encoded(Image.fromarray(np.full((4, 4), 255, np.uint16)), "PNG"))
    assert (out == 1).all()


def test_big_endian_16_bit_tiff():
    image = Image.frombytes("I;16B", (2, 1), struct.pack(">2H", 0, 65535))
    np.testing.assert_array_equal(rgb(encoded(image, "TIFF"))[0, :, 0], [0, 255])


def test_16_bit_rgb_png():
    pixels = struct.pack(">6H", 0, 32768, 65535, 65535, 257, 0)
    raw = png(2, 1, depth=16, colour=2, rows=b"\0" + pixels)
    assert np.abs(rgb(raw)[0].astype(int) - [[0, 128, 255], [255, 1, 0]]).max() <= 1


def png(w: int, h: int, depth: int, colour: int, rows: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", w, h, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 100, 255], [0, 100, 255]),
        ([0, 32768, 65535], [0, 128, 255]),
        ([0, 1_000_000, 2_000_000], [0, 128, 255]),  # rint(127.5) = 128
        ([-100, 0, 100], [0, 128, 255]),
        ([-5, -5, -5], [0, 0, 0]),
    ],
)
def test_32_bit_integer_tiff(values, expected):
    raw = encoded(Image.fromarray(np.array([values], np.int32)), "TIFF")
    np.testing.assert_array_equal(rgb(raw)[0, :, 0], expected)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.2, 1.0], [0, 51, 255]),
        ([0.0, 100.4, 255.0], [0, 100, 255]),
        ([0.0, 257.0, 65535.0], [0, 1, 255]),
        ([-1.0, 0.0, 3.0], [0, 64, 255]),
    ],
)
def test_float_tiff(values, expected):
    raw = encoded(Image.fromarray(np.array([values], np.float32)), "TIFF")
    np.testing.assert_array_equal(rgb(raw)[0, :, 0], expected)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_float_tiff_with_nan_or_infinity(bad):
    raw = encoded(Image.fromarray(np.array([[0.5, bad]], np.float32)), "TIFF")
    with pytest.raises(Unreadable, match="NaN or infinite"):
        to_image(raw)


def test_the_extension_is_no_proof(noise, tree):
    formats = ("PNG", "BMP", "TIFF", "GIF")
    raw = {f: encoded(Image.fromarray(noise), f) for f in formats}
    for f in formats:
        np.testing.assert_array_equal(rgb(raw[f]), noise)
    images = open_images(load_samples(tree({f"a/{f}.jpg": raw[f] for f in formats})), Preprocess(8))
    assert not images.skipped
    expected = open_images(load_samples(noise[None]), Preprocess(8)).batch([0])
    assert torch.equal(images.batch(range(4)), expected.expand(4, -1, -1, -1))


def test_first_frame_of_an_animation():
    frames = [Image.new("RGB", (4, 4), c) for c in ((200, 0, 0), (0, 200, 0))]
    out = rgb(encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True))
    np.testing.assert_array_equal(out[0, 0], [200, 0, 0])


@pytest.mark.parametrize("format", ["JPEG", "PNG", "TIFF", "BMP", "WEBP"])
def test_truncated(picture, format):
    raw = encoded(picture(2, (200, 150)), format)
    with pytest.raises(Unreadable):
        to_image(raw[: len(raw) // 2])


def test_truncated_jpeg_says_so(picture):
    raw = encoded(picture(2, (200, 150)), "JPEG")
    with pytest.raises(Unreadable, match="is truncated"):
        to_image(raw[: len(raw) // 2], at_least=16)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [(b"", "empty"), (b"hello, this is text\n" * 9, "not an image"), (b"\xff\xd8\xff\xe0", "image|trunc")],
)
def test_no_image(raw, reason):
    with pytest.raises(Unreadable, match=reason):
        to_image(raw)
    assert not is_image(io.BytesIO(raw))


def test_programs_are_not_started_for_postscript():
    with pytest.raises(Unreadable, match="not an image"):
        to_image(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n")


def test_too_many_pixels_is_a_reason_not_a_crash(monkeypatch, noise):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 8)
    with pytest.raises(Unreadable, match="too many pixels"):
        to_image(encoded(Image.fromarray(noise), "PNG"))


@pytest.mark.parametrize("error", [MemoryError, RecursionError, SystemError, OverflowError, ZeroDivisionError])
def test_whatever_a_decoder_raises_is_a_reason(monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(Unreadable, match="memory" if error is MemoryError else "cannot be decoded"):
        to_image(b"anything")


def declaring(width: int, height: int) -> bytes:
    """A PNG that says it is so large, with hardly any pixels in it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(100_000_000, 1), (1, 100_000_000), (2**31 - 1, 2**31 - 1), (40_000, 40_000), (0, 5)])
def test_a_small_file_that_declares_a_huge_image_is_skipped_and_named(noise, tree, size):
    good = encoded(Image.fromarray(noise), "PNG")
    images = {"a/bomb.png": declaring(*size), "a/good.png": good, "b/good.png": good}
    opened = open_images(load_samples(tree(images)), Preprocess(8, 8))
    assert [name for name, _ in opened.skipped] == ["a/bomb.png"]
    assert opened.samples.ids == ("a/good.png", "b/good.png")


def test_the_limit_on_pixels_can_be_changed(noise, monkeypatch):
    raw = encoded(Image.fromarray(noise), "PNG")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)
    monkeypatch.setenv("LQF_MAX_PIXELS", str(W * H - 1))
    with pytest.raises(Unreadable, match=r"too many pixels \(more than 34; set LQF_MAX_PIXELS"):
        to_image(raw)
    monkeypatch.setenv("LQF_MAX_PIXELS", str(W * H))
    assert to_image(raw).size == (W, H)
    monkeypatch.setenv("LQF_MAX_PIXELS", "many")
    with pytest.raises(LQFError, match="LQF_MAX_PIXELS is `many`; give a number"):
        to_image(raw)


@pytest.mark.parametrize("mode", ["RGB", "L", "1", "P", "RGBA", "LA", "CMYK", "I;16", "I", "F"])
def test_a_large_image_becomes_the_same_band_by_band(monkeypatch, mode):
    pixels = np.random.default_rng(0).integers(0, 256, (50, 70), dtype=np.uint8)
    image = Image.fromarray(pixels)
    if mode in ("I;16", "I", "F"):
        kinds = {"I;16": np.uint16, "I": np.int32, "F": np.float32}
        image = Image.fromarray(pixels.astype(kinds[mode]) * (1 if mode == "F" else 257))
    elif mode != "L":
        image = image.convert(mode)
    assert image.mode == mode
    plain = np.asarray(to_image(image))
    monkeypatch.setattr("lqf.data.decode.LARGE", 100)
    monkeypatch.setattr("lqf.data.decode._BAND", 300)
    np.testing.assert_array_equal(np.asarray(to_image(image)), plain)
    reduced = to_image(image, at_least=8)
    assert reduced.size == (24, 17)
    np.testing.assert_array_equal(np.asarray(reduced), np.asarray(Image.fromarray(plain).reduce(3)))


def test_16_bit_is_rounded_as_real_numbers_are():
    every = np.arange(2**16, dtype=np.uint16).reshape(256, 256)
    expected = np.rint(every.astype(np.float64) * 255 / 65535).astype(np.uint8)
    np.testing.assert_array_equal(rgb(Image.fromarray(every))[..., 0], expected)


@pytest.mark.parametrize(
    ("size", "expected"), [((128, 128), (128, 128)), ((255, 400), (255, 400)), ((256, 600), (128, 300))]
)
def test_a_jpeg_is_decoded_smaller_only_when_twice_the_target_remains(picture, size, expected):
    raw = encoded(picture(5, size), "JPEG")
    assert to_image(raw, at_least=64).size == expected
    assert to_image(raw).size == size


def test_decoding_smaller_does_not_change_the_result_visibly(picture):
    detail = np.random.default_rng(0).integers(-30, 31, (1200, 1600, 1))
    photo = np.clip(np.asarray(picture(6, (1600, 1200))).astype(int) + detail, 0, 255).astype(np.uint8)
    raw = encoded(Image.fromarray(photo), "JPEG", quality=92)
    small = to_image(raw, at_least=128)
    assert small.size == (400, 300)
    a, b = (np.asarray(i.resize((128, 128), Image.Resampling.BILINEAR)).astype(int) for i in (small, to_image(raw)))
    assert np.abs(a - b).mean() < 1
    assert np.abs(a - b).max() <= 6


def test_arrays(noise, grey):
    np.testing.assert_array_equal(rgb(noise), noise)
    np.testing.assert_array_equal(rgb(noise.transpose(1, 0, 2)), noise.transpose(1, 0, 2))  # not contiguous
    for array in (grey, grey[..., None]):
        np.testing.assert_array_equal(rgb(array), grey[..., None].repeat(3, 2))
    clear = np.dstack([noise, np.zeros((H, W), np.uint8)])
    assert (rgb(clear) == 255).all()


def test_pil_images_are_not_changed(noise):
    image = Image.fromarray(np.dstack([noise, np.full((H, W), 9, np.uint8)]))
    before = image.tobytes()
    to_image(image)
    assert (image.mode, image.tobytes()) == ("RGBA", before)


def test_hashes(noise):
    assert sha256(b"abc") == hashlib.sha256(b"abc").hexdigest()
    assert sha256(noise) == hashlib.sha256(noise.tobytes()).hexdigest()
    assert sha256(np.asfortranarray(noise)) == sha256(noise)
    assert sha256(Image.fromarray(noise)) == sha256(noise)
    x = torch.randn(3, 4)
    assert sha256(x) == hashlib.sha256(x.numpy().tobytes()).hexdigest()
    assert sha256(x.T.contiguous().T) == sha256(x)
    assert sha256(x.bfloat16()) != sha256(x)
