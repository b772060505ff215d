"""Which training samples look alike to the model."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lqf.linear import head_products
from lqf.linear.inputs import average_views
from lqf.utils.exactness import Answer
from lqf.utils.text import counted

_ROWS = 1024


@dataclass(frozen=True, kw_only=True, repr=False)
class Similarity(Answer):
    """Cosines (N, N) between samples under the model's own kernel, centred over the training set; 1 for two copies of
    one image. The note says which kernel it is.

    Attributes:
        ids: (N,).
    """

    ids: tuple[str, ...]

    def _about(self) -> str:
        return f"all pairs of {counted(len(self.ids), 'sample')}"

    @property
    def matrix(self) -> Tensor:
        """(N, N)."""
        return self.value

    def pairs(self, least: float = 0.95, most: int = 100) -> list[tuple[int, int, float]]:
        """(i, j, cosine) of the most similar pairs i < j, the most similar first."""
        found: list[
            tuple[float, int, int]
        ] = []  # by blocks of rows: the indices of all pairs take more than the matrix
        for first, rows in enumerate(self.matrix.split(_ROWS)):
            start = first * _ROWS
            i, j = (rows >= least).triu(start + 1).nonzero(as_tuple=True)
            found += zip((-rows[i, j]).tolist(), (i + start).tolist(), j.tolist(), strict=True)
            found = sorted(found)[:most]
        return [(i, j, -value) for value, i, j in found]


def centred_cosines(features: Tensor, n_views: int) -> Tensor:
    """(N, N) cosines between the samples' features (averaged over views) after their mean is taken away."""
    k = head_products.gram(average_views(features, n_views)).cpu()  # the constant feature drops out with the mean
    k = k - k.mean(0) - k.mean(1, keepdim=True) + k.mean()
    size = k.diagonal().clamp_min(1e-300).sqrt()
    return (k / size[:, None] / size).clamp(-1, 1)
