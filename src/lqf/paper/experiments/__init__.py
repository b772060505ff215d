"""The paper's tables and figures, one module each."""

from lqf.paper.experiment import Experiment
from lqf.paper.experiments import table1

EXPERIMENTS: dict[str, Experiment] = {
    "table1": table1,
}
"""By the name that `lqf paper` takes, in the order of the results page."""
