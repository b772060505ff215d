"""Images whose labels would tell most, together: greedy reduction of the predictive variance of a whole pool.

Let Σ be the covariance of the outputs of a pool given the training data, in units in which a label's noise is μ. Labels
of a set S of images take away

    R(S) = tr U Σ_·S (Σ_SS + μ)⁻¹ Σ_S·

of the variance tr UΣ, where U has a weight u for every image. As the outputs move by what the variance loses, that is
the functional information of labels that are not yet known: how far they are expected to move the outputs of the pool.
What an image adds to R is tr (V + μ)⁻¹M, with its covariance V with itself and M = Σ_q u_q Σ_qᵀΣ_q of all images with
it, given those already taken. It is small for images that nothing else resembles, and for those that resemble what was
taken: neither outliers nor copies.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Covariance:
    """Σ over Q images with c outputs each: the matrix itself, or left·rightᵀ by its factors; symmetric.

    Attributes:
        left: (Q·c, r), or Σ (Q·c, Q·c).
        right: (Q·c, r); None: ``left`` is Σ.
        outputs: c.
    """

    left: Tensor
    right: Tensor | None = None
    outputs: int = 1

    def __len__(self) -> int:
        return len(self.left) // self.outputs

    @property
    def whole(self) -> Tensor:
        """Σ."""
        return self.left if self.right is None else self.left @ self.right.T

    def multiplied(self) -> Covariance:
        """By the smaller of the two: the matrix where it is not larger than its factors."""
        small = self.right is not None and len(self.left) <= self.left.shape[1]
        return Covariance(self.whole, None, self.outputs) if small else self

    def blocks(self) -> Tensor:
        """V (Q, c, c) of every image with itself."""
        c = self.outputs
        if self.right is None:
            every = torch.arange(len(self))
            return self.left.view(len(self), c, len(self), c)[every, :, every]
        left, right = (t.unflatten(0, (-1, c)) for t in (self.left, self.right))
        return left @ right.mT

    def squares(self, weights: Tensor) -> Tensor:
        """M (Q, c, c) = Σ_q u_q Σ_qjᵀ Σ_qj of every image j, for weights u (Q,)."""
        c, root = self.outputs, weights.sqrt().repeat_interleave(self.outputs)[:, None]
        scaled = root * self.left
        if self.right is None:
            columns = scaled.T.unflatten(0, (-1, c))  # (Q, c, Q·c)
            return columns @ columns.mT
        right = self.right.unflatten(0, (-1, c))
        return right @ (scaled.T @ scaled) @ right.mT

    def times(self, a: Tensor) -> Tensor:
        """Σa for a (Q·c, k)."""
        return self.left @ (a if self.right is None else self.right.T @ a)

    def columns(self, image: int) -> Tensor:
        """(Q·c, c) of all images with one."""
        at = slice(image * self.outputs, (image + 1) * self.outputs)
        return self.left[:, at] if self.right is None else self.left @ self.right[at].T


@dataclass(frozen=True)
class Taken:
    """Images (k,) in the order in which they were taken, and the score (k,) of each."""

    images: Tensor
    scores: Tensor


def most_informative(covariance: Covariance, noise: float, k: int, weights: Tensor | None = None) -> Taken:
    """The k images that add most to R, one after the other, with the shares of the pool's variance that they take away.

    Args:
        covariance: Σ.
        noise: μ.
        k: how many, at most as many as there are.
        weights: (Q,) u; None: all 1.
    """
    c, covariance = covariance.outputs, covariance.multiplied()
    u = torch.ones(len(covariance)).to(covariance.left) if weights is None else weights.to(covariance.left)
    each = u.repeat_interleave(c)[:, None]
    v, m = covariance.blocks(), covariance.squares(u)
    total = float((u * v.diagonal(dim1=1, dim2=2).sum(1)).sum())
    known = v.new_zeros(len(each), k * c)  # what the images taken explain of Σ is known·knownᵀ
    left, images, scores = torch.ones(len(u), dtype=torch.bool, device=v.device), [], []
    for step in range(k):
        added = _reductions(v, m, noise).masked_fill(~left, -torch.inf)
        best = int(added.argmax())
        images.append(best)
        scores.append(float(added[best]) / total if total > 0 else 0.0)
        left[best] = False
        before, own = known[:, : step * c], slice(best * c, (best + 1) * c)
        columns = covariance.columns(best) - before @ before[own].T
        root = torch.linalg.cholesky(_symmetric(columns[own]) + noise * torch.eye(c).to(v))
        a = torch.linalg.solve_triangular(root, columns.T, upper=False).T  # Σ becomes Σ − aaᵀ
        moved = covariance.times(each * a) - before @ (before.T @ (each * a))  # ΣUa
        per_image, of_moved = a.unflatten(0, (-1, c)), moved.unflatten(0, (-1, c))
        cross = per_image @ of_moved.mT
        m = m - cross - cross.mT + per_image @ (a.T @ (each * a)) @ per_image.mT
        v = v - per_image @ per_image.mT
        known[:, step * c : (step + 1) * c] = a
    return Taken(torch.tensor(images), torch.tensor(scores, dtype=torch.float64))


def _reductions(v: Tensor, m: Tensor, noise: float) -> Tensor:
    """(Q,) tr (V + μ)⁻¹M."""
    if v.shape[-1] == 1:
        return m[:, 0, 0] / (v[:, 0, 0].clamp_min(0) + noise)
    inverse = torch.linalg.solve(_symmetric(v) + noise * torch.eye(v.shape[-1]).to(v), m)
    return inverse.diagonal(dim1=1, dim2=2).sum(1)


def _symmetric(blocks: Tensor) -> Tensor:
    return (blocks + blocks.mT) / 2
