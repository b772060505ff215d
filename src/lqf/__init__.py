"""Linear Quadratic Fine-Tuning: fine-tune a pretrained network by solving one convex quadratic problem exactly."""

from lqf.errors import LQFError
from lqf.estimator import LQFClassifier

__version__ = "0.1.0"

__all__ = ["LQFClassifier", "LQFError", "__version__"]
