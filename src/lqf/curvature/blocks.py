"""Blocks of a block-diagonal curvature matrix, each invertible with any ridge strength after one eigendecomposition.

Every block stands for a positive semidefinite matrix B over some of the weights and answers `solve(v, mu)`, that is
(B + μI)⁻¹ v. Eigenvalues and bases are computed once; μ enters only as a shift of the eigenvalues.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.runtime.distributed import World


def eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (not negative) and eigenvectors of (a batch of) symmetric matrices; float64 where float32 fails."""
    matrix = (matrix + matrix.mT) / 2
    try:
        lam, u = torch.linalg.eigh(matrix)
        if bool(torch.isfinite(u).all()):
            return lam.clamp_min(0), u
    except torch.linalg.LinAlgError:  # rank-deficient float32 factors sometimes do not converge
        pass
    lam, u = torch.linalg.eigh(matrix.double())
    return lam.clamp_min(0).to(matrix.dtype), u.to(matrix.dtype)


class Gram:
    """Σ (rows)(rows)ᵀ for (groups, p, m) columns arriving in pieces; its eigenpairs stay thin while there are few
    columns.

    As long as fewer columns than p have arrived they are kept as they are, and the eigenvectors come from the small
    m × m matrix: a factor of 32,896 features and 1,000 samples never becomes a 32,896² matrix.
    """

    def __init__(self) -> None:
        self._pieces: list[Tensor] = []
        self._count = 0
        self._sum: Tensor | None = None

    def add(self, columns: Tensor) -> None:
        """Add (groups, p, m) columns."""
        if self._sum is None:
            self._pieces.append(columns)
            self._count += columns.shape[-1]
            if self._count >= columns.shape[-2]:
                self._sum = sum(c @ c.mT for c in self._pieces)  # type: ignore[assignment]
                self._pieces = []
        else:
            self._sum.baddbmm_(columns, columns.mT)

    def combine(self, world: World) -> None:
        """The columns of all processes, on every one of them."""
        if world.size == 1:
            return
        counts = world.all_gather(self._count)
        if sum(counts) < self.shape[1]:  # they stay columns, as they would in one process
            own, first = torch.cat(self._pieces, -1), sum(counts[: world.rank])
            every = own.new_zeros(*self.shape[:2], sum(counts))
            every[..., first : first + self._count] = own
            self._pieces, self._count = [world.all_reduce_(every)], sum(counts)
            return
        total = sum(c @ c.mT for c in self._pieces) if self._sum is None else self._sum
        assert isinstance(total, Tensor)
        self._sum, self._pieces = world.all_reduce_(total), []

    @property
    def shape(self) -> tuple[int, int, int]:
        """(groups, p, r) of the eigenvectors."""
        groups, p = (self._pieces[0] if self._sum is None else self._sum).shape[:2]
        return groups, p, p if self._sum is not None else self._count

    def nothing(self) -> tuple[Tensor, Tensor]:
        """Zeros in the shape of `eigenpairs`, for a process that does not compute them."""
        like = self._pieces[0] if self._sum is None else self._sum
        groups, p, r = self.shape
        return like.new_zeros(groups, r), like.new_zeros(groups, p, r)

    def eigenpairs(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues (groups, r) and orthonormal eigenvectors (groups, p, r) with r = min(p, number of columns)."""
        if self._sum is not None:
            return eigh(self._sum)
        columns = torch.cat(self._pieces, -1).double()
        lam, v = torch.linalg.eigh(columns.mT @ columns)
        floor = lam.amax(-1, keepdim=True) * 1e-12 + 1e-300
        u = columns @ v / lam.clamp_min(floor).sqrt()[..., None, :]
        u = torch.where((lam > floor)[..., None, :], u, torch.zeros_like(u))
        dtype = self._pieces[0].dtype
        return lam.clamp_min(0).to(dtype), u.to(dtype)

    @property
    def trace(self) -> Tensor:
        """Trace of the sum over all groups."""
        if self._sum is not None:
            return self._sum.diagonal(dim1=-2, dim2=-1).sum()
        return torch.stack([c.square().sum() for c in self._pieces]).sum()


@dataclass(frozen=True)
class Kronecker:
    """A block with Kronecker eigenvectors, for weights V of shape (groups, o, p).

    B = (U_G ⊗ U_A) diag(D) (U_G ⊗ U_A)ᵀ with D = scale·λ_G λ_Aᵀ (plain K-FAC) or with measured second moments, and

    (B + μI)⁻¹ V = V/μ + U_G [ (U_Gᵀ V U_A) ∘ (1/(D + μ) − 1/μ) ] U_Aᵀ

    holds for full and for thin bases alike: outside a thin basis the block is zero and only μ acts.

    Attributes:
        u_a: (groups, p, r_a).
        u_g: (groups, o, r_g), or None for G = I.
        d: (groups, r_g, r_a) eigenvalues.
    """

    u_a: Tensor
    u_g: Tensor | None
    d: Tensor

    @property
    def thin(self) -> bool:
        """Whether a part of the space lies outside the basis."""
        full_g = self.u_g is None or self.u_g.shape[-1] == self.u_g.shape[-2]
        return not (full_g and self.u_a.shape[-1] == self.u_a.shape[-2])

    @property
    def size(self) -> int:
        """Number of weights."""
        groups, p, o = len(self.u_a), self.u_a.shape[1], self.d.shape[1] if self.u_g is None else self.u_g.shape[1]
        return groups * p * o

    def to_basis(self, v: Tensor) -> Tensor:
        """U_Gᵀ V U_A for V (…, groups, o, p)."""
        return v @ self.u_a if self.u_g is None else self.u_g.mT @ v @ self.u_a

    def from_basis(self, c: Tensor) -> Tensor:
        """U_G C U_Aᵀ."""
        return c @ self.u_a.mT if self.u_g is None else self.u_g @ c @ self.u_a.mT

    def solve(self, v: Tensor, mu: float) -> Tensor:
        """(B + μI)⁻¹ v for v (groups, o, p)."""
        c = self.to_basis(v)
        if not self.thin:
            return self.from_basis(c / (self.d + mu))
        return v / mu - self.from_basis(c * self.d / (mu * (self.d + mu)))  # 1/(D+μ) − 1/μ without cancellation

    def inverse_root(self, v: Tensor, mu: float) -> Tensor:
        """(B + μI)^(−1/2) v, in the same way."""
        c = self.to_basis(v)
        if not self.thin:
            return self.from_basis(c * (self.d + mu).rsqrt())
        return v * mu**-0.5 + self.from_basis(c * ((self.d + mu).rsqrt() - mu**-0.5))

    def dense(self) -> Tensor:
        """The block as a matrix over V flattened in C order; for tests."""
        groups, o, p = len(self.u_a), self.d.shape[1] if self.u_g is None else self.u_g.shape[1], self.u_a.shape[1]
        eye = torch.eye(groups * o * p).to(self.u_a).view(-1, groups, o, p)
        return self.from_basis(self.d * self.to_basis(eye)).flatten(1)


@dataclass(frozen=True)
class Channelwise:
    """A small k × k matrix per channel (k = 2: scale and shift of a normalisation layer, k = 1: a diagonal).

    Attributes:
        lam, u: (channels, k), (channels, k, k).
    """

    lam: Tensor
    u: Tensor

    @classmethod
    def of(cls, blocks: Tensor) -> Channelwise:
        """From the matrices (channels, k, k)."""
        if blocks.shape[-1] == 1:
            return cls(blocks[..., 0].clamp_min(0), torch.ones_like(blocks))
        return cls(*eigh(blocks))

    def solve(self, v: Tensor, mu: float) -> Tensor:
        """(B + μI)⁻¹ v for v (channels, k)."""
        return self._scaled(v, 1 / (self.lam + mu))

    def inverse_root(self, v: Tensor, mu: float) -> Tensor:
        """(B + μI)^(−1/2) v."""
        return self._scaled(v, (self.lam + mu).rsqrt())

    def _scaled(self, v: Tensor, factors: Tensor) -> Tensor:
        c = (self.u.mT @ v[..., None])[..., 0] * factors
        return (self.u @ c[..., None])[..., 0]
