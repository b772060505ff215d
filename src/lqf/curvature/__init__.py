"""Curvature of the objective: K-FAC blocks that can be inverted for any ridge strength."""

from lqf.curvature.kfac import KFAC, Piece, kfac
from lqf.curvature.preconditioner import Preconditioner, body_curvature, precondition

__all__ = ["KFAC", "Piece", "Preconditioner", "body_curvature", "kfac", "precondition"]
