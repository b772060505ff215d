"""What a report asks of a fitted classifier: `LQFClassifier`, which stands above the reports, is one."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from lqf.analysis import Analysis
from lqf.data import Images, Samples
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import Model
from lqf.utils.progress import Progress


class Classifier(Protocol):
    """A fitted model, and how it is used."""

    @property
    def fitted_(self) -> Model:
        """The model itself."""
        ...

    @property
    def tensors(self) -> str:
        """What floating-point arrays hold, as the setting says."""
        ...

    def open(self, samples: Samples, *, strict: bool = ..., progress: Progress = ...) -> Images:
        """Decode images the way the model was fitted."""
        ...

    def scores(self, images: Images, *, progress: Progress = ...) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Predicted index (N,), score and probability of every class (N, n_classes)."""
        ...

    def leave_one_out(self) -> LeaveOneOut:
        """Out-of-sample outputs of the training samples."""
        ...

    def analyse(self, train: Any = ..., *, progress: Progress = ...) -> Analysis:
        """The training problem, opened again."""
        ...
