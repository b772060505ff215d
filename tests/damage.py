"""Damaged files, many and always the same: bit flips, truncations, fuzzed headers, hostile names."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM")


def image(draw: random.Random, format: str) -> bytes:
    pixels = np.random.default_rng(draw.randrange(2**32)).integers(0, 256, (24, 30, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, format)
    return out.getvalue()


def flipped(content: bytes, draw: random.Random, bits: int = 1) -> bytes:
    out = bytearray(content)
    for _ in range(bits if out else 0):
        out[draw.randrange(len(out))] ^= 1 << draw.randrange(8)
    return bytes(out)


def cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def filled(content: bytes, draw: random.Random) -> bytes:
    """A stretch of zeros, as a disk leaves it."""
    at = draw.randrange(len(content))
    return content[:at] + bytes(min(64, len(content) - at)) + content[at + 64 :]


def huge(draw: random.Random) -> bytes:
    """A PNG of a few bytes that declares any size, its checksums right."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    width, height = (draw.choice([0, 1, 7, 2**16, 2**20, 10**8, 2**31 - 1]) for _ in range(2))
    depth, colour = draw.choice([1, 8, 16, 3]), draw.choice([0, 2, 3, 4, 6, 9])
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, draw.choice([0, 1])))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(2000))) + chunk(b"IEND", b"")


def images(n: int) -> Iterator[tuple[str, bytes]]:
    """Kind of damage, and the file."""
    draw = random.Random(0)
    for i in range(n):
        good = image(draw, FORMATS[i % len(FORMATS)])
        kinds: dict[str, Callable[[], bytes]] = {
            "a bit flipped": lambda good=good: flipped(good, draw),
            "many bits flipped": lambda good=good: flipped(good, draw, 40),
            "head flipped": lambda good=good: flipped(good[:60], draw, 3) + good[60:],
            "truncated": lambda good=good: cut(good, draw),
            "zeros": lambda good=good: filled(good, draw),
            "declared size": lambda: huge(draw),
            "noise": lambda: draw.randbytes(draw.randrange(200)),
            "two in one": lambda good=good: good[: len(good) // 2] + image(draw, "PNG"),
        }
        kind = list(kinds)[i % len(kinds)]
        yield kind, kinds[kind]()


# --- models -----------------------------------------------------------------------------------------------------------

Damage = Callable[[Path, random.Random], None]
ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    1e308,
    "",
    "x",
    "\u202e\x1b[31m",
    [],
    {},
    [[]],
    {"a": 1},
    2**70,
    "../../etc",
    [None],
]


def sealed(folder: Path, meta: dict[str, Any]) -> None:
    """Write model.json with its checksums made right again."""
    meta.pop("sha256", None)
    if isinstance(meta.get("files"), dict):
        for name in meta["files"]:
            file = folder / name
            if len(name) < 200 and file.is_file():
                meta["files"][name] = hashlib.sha256(file.read_bytes()).hexdigest()
    meta["sha256"] = hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(meta))


def read(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "model.json").read_text())


def some_file(folder: Path, draw: random.Random) -> Path:
    return draw.choice(sorted(p for p in folder.iterdir() if p.is_file()))


def flip(folder: Path, draw: random.Random) -> None:
    file = some_file(folder, draw)
    file.write_bytes(flipped(file.read_bytes(), draw, draw.choice([1, 1, 8])))


def truncate(folder: Path, draw: random.Random) -> None:
    file = some_file(folder, draw)
    file.write_bytes(cut(file.read_bytes(), draw))


def remove(folder: Path, draw: random.Random) -> None:
    some_file(folder, draw).unlink()


def swap(folder: Path, draw: random.Random) -> None:
    one, other = some_file(folder, draw), some_file(folder, draw)
    a, b = one.read_bytes(), other.read_bytes()
    one.write_bytes(b)
    other.write_bytes(a)


def odd_file(folder: Path, draw: random.Random) -> None:
    """A pipe, a device, a link in a circle or into nothing, a folder."""
    file = some_file(folder, draw)
    file.unlink()
    kind = draw.randrange(5)
    if kind == 0:
        os.mkfifo(file)
    elif kind == 1:
        file.mkdir()
    else:
        file.symlink_to(["/dev/zero", file, folder / "nothing"][kind - 2])


def fuzz_json(folder: Path, draw: random.Random) -> None:
    """Another value somewhere, or a key less, under right checksums."""
    meta = read(folder)
    node: Any = meta
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = draw.choice(keys)
        if isinstance(node[key], dict | list) and node[key] and draw.random() < 0.7:
            node = node[key]
            continue
        if isinstance(node, dict) and draw.random() < 0.2:
            del node[key]
        else:
            node[key] = draw.choice(ODD)
        break
    sealed(folder, meta)


def nest(folder: Path, draw: random.Random) -> None:
    deep = draw.choice([50, 900, 100_000])
    text = draw.choice([("[", "]"), ('{"a":', "}")])
    middle = "1" if text[0] != "[" else ""
    (folder / "model.json").write_text(text[0] * deep + middle + text[1] * deep)


def not_a_number(folder: Path, draw: random.Random) -> None:
    meta = read(folder)
    name = draw.choice(["alpha", "beta", "constant"])
    meta[name] = draw.choice([float("nan"), float("inf"), 10**400])
    sealed(folder, meta)


def hostile_paths(folder: Path, draw: random.Random) -> None:
    meta = read(folder)
    name = draw.choice(["/etc/passwd", "../run/model.json", "a\x00b", "member1/../../x", "x" * 5000, "."])
    if draw.random() < 0.5:
        meta["files"][name] = "0" * 64
    else:
        meta |= {"version": 2, "members": [{"folder": name, "name": "x", "weight": 1, "share": 1}]}
    sealed(folder, meta)


def fuzz_tensors(folder: Path, draw: random.Random) -> None:
    """Another header of the tensors: sizes, types, places; or numbers that are not finite; checksums right."""
    file = folder / "weights.safetensors"
    content = file.read_bytes()
    n = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + n]), content[8 + n :]
    name = draw.choice([k for k in header if k != "__metadata__"])
    kind = draw.randrange(6)
    if kind == 0:
        header[name]["shape"] = draw.choice([[], [2**40], [0], [-1], [3, 2**62], ["x"], [107_374_182_400]])
    elif kind == 1:
        header[name]["dtype"] = draw.choice(["F16", "I64", "U8", "BOOL", "XX", None])
    elif kind == 2:
        header[name]["data_offsets"] = draw.choice([[0, 2**60], [5, 3], [-1, 4], [], None])
    elif kind == 3:
        header["x" + name] = header.pop(name)
    elif kind == 4:
        data = np.full(len(data) // 8, draw.choice([np.nan, np.inf, 1e308])).tobytes() + data[len(data) // 8 * 8 :]
    else:
        content = (
            draw.choice([struct.pack("<Q", 2**63), b"\xff" * 8, struct.pack("<Q", len(content) * 2)]) + content[8:]
        )
    if kind < 5:
        text = json.dumps(header).encode()
        content = struct.pack("<Q", len(text)) + text + data
    file.write_bytes(content)
    sealed(folder, read(folder))


def fuzz_samples(folder: Path, draw: random.Random) -> None:
    file = folder / "samples.csv"
    lines = file.read_text().splitlines()
    kind = draw.randrange(5)
    if kind == 0:
        lines = lines[: len(lines) // 2]
    elif kind == 1:
        lines[1] = draw.choice(["", ",,,,", '"', "a,b,nan,d,e", "x" * 200_000, "\x00"])
    elif kind == 2:
        lines = lines[:1]
    elif kind == 3:
        lines[0] = "what,is,this"
    else:
        lines += lines[1:]
    file.write_text("\n".join(lines))
    sealed(folder, read(folder))


KINDS: tuple[Damage, ...] = (
    *(flip, truncate, remove, swap, odd_file, fuzz_json, fuzz_json, fuzz_json),
    *(nest, not_a_number, hostile_paths, fuzz_tensors, fuzz_tensors, fuzz_samples),
)


def models(n: int, good: Path, place: Path) -> Iterator[tuple[str, Path]]:
    """Kind of damage, and the folder, which goes when the next one is made."""
    draw = random.Random(0)
    for i in range(n):
        folder, damage = place / str(i), KINDS[i % len(KINDS)]
        shutil.copytree(good, folder)
        damage(folder, draw)
        yield damage.__name__.replace("_", " "), folder
        shutil.rmtree(folder)
