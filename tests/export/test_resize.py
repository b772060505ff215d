"""Pictures of any size become the squares that Pillow makes of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from lqf.data import Preprocess
from lqf.export.resize import square

SIZES = [(32, 32), (20, 45), (91, 33), (300, 40), (5, 7), (64, 129), (33, 32), (150, 34)]


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("keep_aspect", [True, False])
def test_as_pillow(interpolation: str, keep_aspect: bool) -> None:
    preprocess = Preprocess(28, 32, keep_aspect, interpolation)  # type: ignore[arg-type]
    for k, (height, width) in enumerate(SIZES):
        picture = np.random.default_rng(k).integers(0, 256, (height, width, 3), dtype=np.uint8)
        own = square(torch.from_numpy(picture).permute(2, 0, 1)[None], preprocess)[0]
        assert (own.numpy() == preprocess.resized(Image.fromarray(picture))).all(), (height, width)
