"""`LQFClassifier`: the scikit-learn face of the library."""

from lqf.estimator.classifier import LQFClassifier

__all__ = ["LQFClassifier"]
