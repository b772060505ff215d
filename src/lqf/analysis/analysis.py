"""`Analysis`: a fitted problem opened again, and the questions it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from lqf.analysis.curve import Curve
from lqf.analysis.influence import Influence
from lqf.analysis.information import Information
from lqf.analysis.queries import Queries
from lqf.analysis.similarity import Similarity
from lqf.analysis.units import Units
from lqf.analysis.what_if import WhatIf
from lqf.loo import LeaveOneOut
from lqf.solution import Level


class Analysis:
    """A fitted model's training problem, opened again; made by `LQFClassifier.analyse`.

    Attributes:
        units: who leaves together (groups where there are any, else samples).
        ids, labels, weights, classes: of the training samples.
        level: of the answers: "exact", "solved" or "estimated".
        note: what stands behind the level.
    """

    units: Units
    ids: tuple[str, ...]
    labels: Tensor
    weights: Tensor
    classes: tuple[str, ...]
    level: Level
    note: str

    def queries(self, images: Any, y: Any = None) -> Queries:
        """Open images once for several questions; labels come from a folder of classes, a manifest, or ``y``."""
        raise NotImplementedError

    def leave_one_out(self, samples: Iterable[str | int] | None = None) -> LeaveOneOut:
        """Out-of-sample outputs of all training samples, or of some (beside PCG those are solved)."""
        raise NotImplementedError

    def influence(self, images: Any, y: Any = None, *, units: Iterable[str | int] | None = None) -> Influence:
        """Signed effect of leaving out every unit (or some) on every output of every image."""
        raise NotImplementedError

    def information(self, validation: Any = None, y: Any = None) -> Information:
        """Functional sample information of every unit on validation images; None: on the training samples."""
        raise NotImplementedError

    def what_if(
        self,
        images: Any,
        *,
        without: Iterable[str | int] = (),
        relabel: Mapping[Any, Any] | None = None,
        weights: Mapping[Any, float] | None = None,
    ) -> WhatIf:
        """Predictions had some samples been absent, labelled otherwise, or counted ``weights`` times."""
        raise NotImplementedError

    def curve(
        self,
        test: Any,
        y: Any = None,
        *,
        information: Information,
        shares: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
        repeats: int = 5,
        seed: int = 0,
    ) -> Curve:
        """Test error after dropping the least, the most informative and random samples, by exact refits."""
        raise NotImplementedError

    def similarity(self) -> Similarity:
        """Cosine similarity of all pairs of training samples under the model's kernel."""
        raise NotImplementedError
