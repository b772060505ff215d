"""Solvers of the quadratic problem; all return a `lqf.solvers.solution.Solution` with its certificate."""

from lqf.solvers.dense import Dense
from lqf.solvers.head import Head
from lqf.solvers.pcg import PCG
from lqf.solvers.stochastic import SGD, Adam

__all__ = ["PCG", "SGD", "Adam", "Dense", "Head"]
