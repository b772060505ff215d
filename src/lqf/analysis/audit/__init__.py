"""What a fitted model says about its own training data: wrong labels, copies, what is informative, what is confused."""

from lqf.analysis.audit.audit import Audit, audit

__all__ = ["Audit", "audit"]
