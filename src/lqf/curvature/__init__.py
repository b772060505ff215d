"""Curvature of the objective: K-FAC blocks that can be inverted for any ridge strength."""

from lqf.curvature.kfac import KFAC, Piece, kfac
from lqf.curvature.preconditioner import Preconditioner, precondition

__all__ = ["KFAC", "Piece", "Preconditioner", "kfac", "precondition"]
