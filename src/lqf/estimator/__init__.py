"""`LQFClassifier`: the scikit-learn face of the library, and `load`, which reads a saved one."""

from lqf.estimator.classifier import LQFClassifier

load = LQFClassifier.load

__all__ = ["LQFClassifier", "load"]
