"""What to label next, by a fitted model."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lqf.data import Images, with_views
from lqf.estimator.predictor import Predictor
from lqf.evaluation.calibration import probabilities
from lqf.fitting.reopen import reopen
from lqf.fitting.training_data import open_training
from lqf.runtime.device import computing
from lqf.selection.covariance import Uncertain, predictive_covariance
from lqf.selection.suggestions import (
    BOTH,
    UNCERTAINTY,
    Suggestions,
    by_information,
    by_margin,
    check_apart,
    check_enough,
    check_way,
    without_copies,
)
from lqf.utils.exactness import Level
from lqf.utils.progress import Progress


class Suggesting(Predictor):
    """Which images of a pool to label next."""

    @computing
    def suggest(
        self,
        X: Any,
        k: int = 20,
        *,
        by: str = BOTH,
        train: Any = None,
        progress: Progress | None = None,
    ) -> Suggestions:
        """The images whose labels would tell the model most, the most useful first.

        Args:
            X: the pool: images without labels, what `predict` takes; labels, if it has any, are ignored.
            k: how many to choose.
            by: "information": what makes the outputs of the whole pool most certain, jointly, so that neither outliers
                nor copies are chosen; "uncertainty": the smallest margin between two classes, one by one; "both":
                information about images whose class is not clear.
            train: the training data, where they have moved or were arrays; see `analyse`.
            progress: where to report.
        """
        check_way(by, k)
        fitted, progress = self._model(), self._shown(progress)
        opened = self.open(self._unlabelled(X, progress), progress=progress)
        check_apart(opened, fitted.train)
        pool, copies = without_copies(opened)
        check_enough(pool, k, copies)
        exact: Level = "exact"
        if by == UNCERTAINTY:
            p = probabilities(self._outputs(pool, progress), fitted.beta)
            taken, level, note = by_margin(p, k), exact, ""
        else:
            uncertain, p = self._uncertain(pool, train, progress)
            taken = by_information(uncertain, k, p if by == BOTH else None)
            level, note = uncertain.level, uncertain.note
        best = p[taken.images].max(1)
        return Suggestions(
            taken.scores,
            level,
            note,
            by=by,
            images=taken.images,
            samples=pool.samples,
            predicted=tuple(fitted.classes[c] for c in best.indices.tolist()),
            probabilities=tuple(best.values.tolist()),
            copies=copies,
            skipped=opened.skipped,
        )

    def _uncertain(self, pool: Images, train: Any, progress: Progress) -> tuple[Uncertain, Tensor]:
        """By the training problem of the model, or of a stack's largest member that has one; and probabilities (Q, C).

        Where a head is all that was fitted, both come from one pass over the pool.
        """
        fitted = self._reading(self._model(), train)
        member = fitted.answering
        images = with_views(open_training(fitted, train, None, progress), member.trained_on)
        problem = reopen(member, images, self._context(member, progress))
        asked = problem.encode(with_views(pool, member.preprocess))
        one_pass = member is fitted and member.head_alone
        outputs = member.outputs_of(asked.features, pool.n_views) if one_pass else self._outputs(pool, progress)
        return predictive_covariance(member, problem, asked), probabilities(outputs, fitted.beta)
