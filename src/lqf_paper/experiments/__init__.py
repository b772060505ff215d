"""The paper's tables and figures, one module each."""

from lqf_paper.experiments import (
    ablation,
    adam,
    bilinear,
    convergence,
    eigenvalues,
    influence,
    leaky,
    lowshot,
    nlft_mse,
    online,
    online_learned,
    robustness,
    stopping,
    summarization,
    table1,
    variants,
    weight_decay,
)
from lqf_paper.runner.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "table1": table1,
    "bilinear": bilinear,
    "variants": variants,
    "convergence": convergence,
    "stopping": stopping,
    "ablation": ablation,
    "leaky": leaky,
    "lowshot": lowshot,
    "online": online,
    "online-learned": online_learned,
    "summarization": summarization,
    "robustness": robustness,
    "eigenvalues": eigenvalues,
    "adam": adam,
    "nlft-mse": nlft_mse,
    "weight-decay": weight_decay,
    "influence": influence,
}
"""By the name that `lqf paper` takes, in the order of the results page."""
