"""The paper's tables and figures, one module each."""

from lqf.paper.experiment import Experiment
from lqf.paper.experiments import ablation, adam, bilinear, nlft_mse, robustness, table1

EXPERIMENTS: dict[str, Experiment] = {
    "table1": table1,
    "bilinear": bilinear,
    "ablation": ablation,
    "robustness": robustness,
    "adam": adam,
    "nlft-mse": nlft_mse,
}
"""By the name that `lqf paper` takes, in the order of the results page."""
