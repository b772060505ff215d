"""The linear model: a linearised body under a linear head.

With features z(x) of the body at w0, z̃ = (z, 1), heads W (C × p) at the linearisation point, and unknowns
δ = (V, δ_body), V of shape C × (p+1),

    J(x) δ = V z̃(x) + W J_z(x) δ_body,        f(x) = c + b·W̃ z̃(x) + J(x) δ.

b = 1 is the Taylor expansion around w0 = (W̃, body weights): the ridge pulls towards w0. b = 0 is the centred form: V is
the head itself and is pulled towards zero. c = α/C is the same for every sample and class, whatever the labels are.

Under cross-fitting there are several heads, and each training row uses the one that has not seen its label.

The head may see more features than the body's weights act through: of z = (z_body, z_rest) the heads W at the point see
the first part alone, and z_rest is read from the network as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.linear.linearize import Linearization


@dataclass(frozen=True)
class LinearModel:
    """f(x) = c + b·W̃z̃ + Jδ, linear in δ.

    Attributes:
        body: the linearised features, q of them.
        heads: (K, C, q+1) heads at the linearisation point, bias last; row i of the training set uses heads[fold[i]].
        around_w0: b, whether the expansion starts from the point's own output (True) or from zero.
        constant: c.
        reader: makes all features z of the head, of which those of the body are the first; None: there are no others.
        read: p, how many it makes.
    """

    body: Linearization
    heads: Tensor
    around_w0: bool
    constant: float
    reader: Linearization | None = None
    read: int | None = None

    @property
    def n_outputs(self) -> int:
        """C."""
        return self.heads.shape[1]

    @property
    def n_features(self) -> int:
        """p, without the bias."""
        return self.heads.shape[2] - 1 if self.read is None else self.read

    @property
    def head_size(self) -> int:
        """Number of head weights, C·(p+1): the first entries of δ."""
        return self.n_outputs * (self.n_features + 1)

    @property
    def size(self) -> int:
        """Number of unknowns."""
        return self.head_size + self.body.size

    def split(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        """δ -> V (C, p+1) and δ_body (D,)."""
        head, body = delta[: self.head_size], delta[self.head_size :]
        return head.view(self.n_outputs, -1), body

    def jvp(self, x: Tensor, delta: Tensor, fold: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Features z (B, p) and Jδ (B, C)."""
        v, body = self.split(delta)
        z, dz = self.body.jvp(x, body)
        z = z if self.reader is None else self.reader.value(x)
        return z, self._outputs(z, dz, v, fold)

    def jvp_at(self, z: Tensor, x: Tensor, delta: Tensor) -> Tensor:
        """Jδ (B, C) of rows whose features z (B, p) are known, through the mean of the heads."""
        v, body = self.split(delta)
        return self._outputs(z, self.body.jvp(x, body)[1], v, None)

    def body_jvp(self, x: Tensor, body: Tensor, fold: Tensor | None = None) -> Tensor:
        """W J_z v (B, C): the outputs' change by a change v of the body alone."""
        return self._through(self.heads[..., :-1], self.body.jvp(x, body)[1], fold)

    def body_vjp(self, x: Tensor, u: Tensor, fold: Tensor | None = None) -> Tensor:
        """The body's part of Jᵀu for u (B, C), summed over the batch: (D,)."""
        return self.body.vjp(x, self.to_features(u, fold))

    def vjp(self, x: Tensor, u: Callable[[Tensor], Tensor], fold: Tensor | None = None) -> Tensor:
        """Jᵀu for u = u(z) of shape (B, C), summed over the batch: (size,)."""
        kept: list[Tensor] = []

        def at_features(own: Tensor) -> Tensor:
            z = own if self.reader is None else self.reader.value(x)
            uz = u(z)
            kept.append(uz.T @ with_one(z))
            return self.to_features(uz, fold)

        _, grad_body = self.body.value_and_vjp(x, at_features)
        return torch.cat([kept[0].reshape(-1), grad_body])

    def fused(
        self, x: Tensor, delta: Tensor, cotangent: Callable[[Tensor, Tensor], Tensor], fold: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Jδ (B, C), then Jᵀu for u = cotangent(z, Jδ), from one forward pass."""
        v, body = self.split(delta)
        kept: list[Tensor] = []

        def at_features(own: Tensor, dz: Tensor) -> Tensor:
            z = own if self.reader is None else self.reader.value(x)
            out = self._outputs(z, dz, v, fold)
            u = cotangent(z, out)
            kept.extend([out, u.T @ with_one(z)])
            return self.to_features(u, fold)

        _, grad_body = self.body.fused(x, body, at_features)
        out, grad_head = kept
        return out, torch.cat([grad_head.reshape(-1), grad_body])

    def base(self, z: Tensor, fold: Tensor | None = None) -> Tensor:
        """The output at δ = 0: c + b·W̃z̃, (B, C)."""
        out = z.new_full((len(z), self.n_outputs), self.constant)
        own = z[:, : self.heads.shape[2] - 1]
        return out + self._through(self.heads, with_one(own), fold) if self.around_w0 else out

    def of_all_features(self, head: Tensor) -> Tensor:
        """A head (C, q+1) of the point as one of all features (C, p+1), with zeros for those that it does not see."""
        return torch.cat(
            [head[:, :-1], head.new_zeros(len(head), self.n_features + 1 - head.shape[1]), head[:, -1:]], 1
        )

    def to_features(self, u: Tensor, fold: Tensor | None = None) -> Tensor:
        """Wᵀu: cotangents at the outputs (B, C) as cotangents at the body's features (B, q)."""
        if fold is None or len(self.heads) == 1:
            return u @ self.heads.mean(0)[:, :-1]
        return _own(u @ self.heads[..., :-1], fold)

    def _outputs(self, z: Tensor, dz: Tensor, v: Tensor, fold: Tensor | None) -> Tensor:
        return with_one(z) @ v.T + self._through(self.heads[..., :-1], dz, fold)

    @staticmethod
    def _through(heads: Tensor, z: Tensor, fold: Tensor | None) -> Tensor:
        if fold is None or len(heads) == 1:
            return z @ heads.mean(0).T
        return _own(z @ heads.mT, fold)


def _own(all_heads: Tensor, fold: Tensor) -> Tensor:
    """Each row's result out of those through all heads (K, B, …); heads[fold] (B, C, p) would be far larger."""
    return all_heads[fold, torch.arange(len(fold), device=fold.device)]


def with_one(z: Tensor) -> Tensor:
    """z̃ = (z, 1): features with a constant for the bias."""
    return torch.cat([z, z.new_ones(z.shape[0], 1)], 1)
