"""The paper's tables and figures, one module each."""

from lqf_paper.experiments import (
    ablation,
    adam,
    bilinear,
    eigenvalues,
    influence,
    lowshot,
    nlft_mse,
    online,
    robustness,
    summarization,
    table1,
    weight_decay,
)
from lqf_paper.runner.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "table1": table1,
    "bilinear": bilinear,
    "ablation": ablation,
    "lowshot": lowshot,
    "online": online,
    "summarization": summarization,
    "robustness": robustness,
    "eigenvalues": eigenvalues,
    "adam": adam,
    "nlft-mse": nlft_mse,
    "weight-decay": weight_decay,
    "influence": influence,
}
"""By the name that `lqf paper` takes, in the order of the results page."""
