"""Pictures and folders for the data tests."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recorder import Recorder


def smooth_picture(seed: int = 0, size: tuple[int, int] = (40, 30)) -> Image.Image:
    """An RGB picture (width, height) without sharp edges, so that JPEG keeps it nearly exactly."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


@pytest.fixture
def picture() -> Callable[..., Image.Image]:
    return smooth_picture


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., Path]:
    """Make a folder of pictures: ``tree({"rose/1.png": 0, …})`` with a seed, a PIL image or bytes for each file."""

    def make(files: dict[str, int | bytes | Image.Image], name: str = "photos") -> Path:
        root = tmp_path / name
        root.mkdir(exist_ok=True)
        for inside, content in files.items():
            path = root / inside
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                (smooth_picture(content) if isinstance(content, int) else content).save(path)
        return root

    return make


@pytest.fixture
def flowers(tree: Callable[..., Path]) -> Path:
    """Two classes of three pictures."""
    return tree({f"{c}/{i}.png": 10 * k + i for k, c in enumerate(("rose", "tulip")) for i in range(3)})


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()
