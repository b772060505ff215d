"""What to take: the backbone to fit, the images to label next."""

from lqf.selection.backbones import select
from lqf.selection.ranking import Candidate, Failed, Selection
from lqf.selection.suggestions import Suggestions

__all__ = ["Candidate", "Failed", "Selection", "Suggestions", "select"]
