"""How sure a fitted model is: sets of classes, standard deviations, unusual images."""

from __future__ import annotations

from typing import Any

from lqf.analysis import Queries
from lqf.estimator.asking import Asking
from lqf.runtime.device import computing
from lqf.uncertainty import Asked, Novelty, PredictionSets, Spread, by_leaving_out, by_model, novelty, spread, way_for
from lqf.utils.progress import Progress


class Unsure(Asking):
    """Answers about new images that say how sure they are."""

    @computing
    def predict_set(
        self,
        X: Any,
        coverage: float = 0.9,
        *,
        way: str = "auto",
        score: str = "probability",
        by_class: bool = False,
        train: Any = None,
        progress: Progress | None = None,
    ) -> PredictionSets:
        """Sets of classes that hold the right one with a chosen probability; no validation set is needed.

        Args:
            X: what `predict` takes, or `Queries`.
            coverage: share of sets that are to hold the right class.
            way: "jackknife+": against the model without each training sample (or group), by exact leave-one-out;
                "minmax": against the worst of these, more careful; "jackknife": against the model itself, by what the
                fit knows out of sample, without the training images; "auto": jackknife+ where it is exact.
            score: "probability": the smallest sets; "margin"; "adaptive": large sets for hard images alone.
            by_class: the coverage is to hold within every class.
            train: the training data, where they have moved or were arrays; see `analyse`.
            progress: where to report.
        """
        asked, model, progress = Asked(coverage, way, score, by_class), self._model(), self._shown(progress)
        way, queries = way_for(model) if way == "auto" else way, self._queries(X, progress)
        if way == "jackknife":
            outputs = self._outputs(queries.images, progress)
            sets = by_model(model, self.leave_one_out(), outputs, queries.ids, asked)
        else:
            sets = by_leaving_out(self._analysis(train, progress=progress), queries, asked, way)
        if sets.limit is not None:
            progress.say(sets.limit)
        return sets

    @computing
    def predict_std(self, X: Any, *, train: Any = None, progress: Progress | None = None) -> Spread:
        """Standard deviations of the outputs that `decision_function` gives; `numpy.asarray` makes them an array.

        Args:
            X: what `predict` takes, or `Queries`.
            train: the training data, where they have moved or were arrays; see `analyse`.
            progress: where to report.
        """
        queries = self._queries(X, self._shown(progress))
        return spread(self._analysis(train, progress=progress), queries)

    @computing
    def novelty(self, X: Any, *, train: Any = None, progress: Progress | None = None) -> Novelty:
        """Whether images are unlike all training images, as p-values: small where they are.

        Args:
            X: what `predict` takes, or `Queries`.
            train: the training data, where they have moved or were arrays; see `analyse`.
            progress: where to report.
        """
        queries = self._queries(X, self._shown(progress))
        return novelty(self._analysis(train, progress=progress), queries)

    def _queries(self, X: Any, progress: Progress) -> Queries:
        """Opened once for several questions."""
        return X if isinstance(X, Queries) else Queries.of(self._open(X, progress))
