"""What a fitted model says about its own training data: wrong labels, copies, what is informative, what is confused."""

from lqf.audit.audit import Audit, audit
from lqf.audit.bridge import for_cleanlab
from lqf.audit.write import write

__all__ = ["Audit", "audit", "for_cleanlab", "write"]
