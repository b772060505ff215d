"""What the paper compares with: ordinary non-linear fine-tuning (`nlft`)."""

from lqf.paper.nlft import NLFT
from lqf.paper.tuned import Tuned

__all__ = ["NLFT", "Tuned"]
