"""What a report is made of, collected from a model, its training data and a test set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lqf.analysis import Analysis, Queries
from lqf.analysis.audit.audit import Audit, audit
from lqf.data import with_views
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import Model
from lqf.fitting.class_weights import as_they_come
from lqf.linear.inputs import average_views
from lqf.reports.classifier import Classifier
from lqf.reports.evaluation import Tested, tested
from lqf.reports.explanation import Explanation, explanations
from lqf.reports.html import words
from lqf.reports.html.report import report_page
from lqf.reports.shift import Shift, measure_shift
from lqf.utils.progress import SILENT, Progress


@dataclass(frozen=True)
class Parts:
    """All of a report's numbers.

    Attributes:
        fitted: the model.
        loo: its leave-one-out.
        audit: of the training data.
        test: predictions of the test set.
        shift: between training and test set.
        cases: explanations of some test images, with their level.
    """

    fitted: Model
    loo: LeaveOneOut
    audit: Audit
    test: Tested | None = None
    shift: Shift | None = None
    cases: tuple[list[Explanation], str] | None = None

    def page(self, name: str) -> str:
        """The HTML page under this title."""
        return report_page(
            self.fitted, self.loo, self.audit, name=name, test=self.test, shift=self.shift, cases=self.cases
        )

    def to_dict(self) -> dict[str, Any]:
        """The main figures as JSON values."""
        result = None if self.test is None else self.test.result
        expected = as_they_come(self.fitted, self.loo).error
        warning = words.warning(self.fitted.report, expected, result, self.shift)
        shift = self.shift
        return {
            "n": self.fitted.report.n,
            "error": self.fitted.report.error,
            "error_standard_error": self.fitted.report.error_standard_error,
            "error_note": self.fitted.report.error_note,
            "loo_error": self.loo.error,
            "loo_level": self.loo.level,
            "weighted": self.fitted.report.weighted,
            "contradicted": len(self.audit.contradicted),
            "duplicate_pairs": len(self.audit.duplicates),
            "test_n": None if result is None else result["n"],
            "test_error": None if result is None else result["error"],
            "test": result,
            "shift": None if shift is None else {"auc": shift.auc, "standard_error": shift.standard_error},
            "warning": None if warning is None else f"{warning['title']} {warning['text']}",
        }


def collect(
    model: Classifier, *, train: Any = None, test: Any = None, strict: bool = False, progress: Progress = SILENT
) -> Parts:
    """Everything that a report shows.

    Args:
        model: fitted.
        train: its training data, where they have moved.
        test: labelled test images, or None.
        strict: refuse test images that cannot be read.
        progress: where to report.
    """
    seen = (
        None if test is None else tested(model, test, strict=strict, progress=progress)
    )  # bad input is reported first
    analysis = model.analyse(train, progress=progress)
    loo = analysis.known_leave_one_out()
    parts = Parts(model.fitted_, loo, audit(analysis))
    if seen is None:
        return parts
    shift = _shift(analysis, seen)
    return replace(parts, test=seen, shift=shift, cases=_cases(model, analysis, seen))


def _shift(analysis: Analysis, test: Tested) -> Shift | None:
    """By features of one network in the same views, those of the training problem: predictions may be made by others,
    in others.
    """
    problem = analysis.problem
    seen = problem.encode(with_views(test.images, problem.data.preprocess))
    known, new = (average_views(z, problem.data.n_views).cpu() for z in (problem.features, seen.features))
    return measure_shift(known, new, analysis.model.train.labels, test.labels)


def _cases(model: Classifier, analysis: Analysis, test: Tested) -> tuple[list[Explanation], str]:
    """Explanations of a few test images; their `query` is the row in the test set."""
    rows = test.cases()
    contrast = analysis.contrast(Queries.of(model.open(test.images.samples.select(rows))))
    explained = explanations(contrast, analysis.labels)
    return [replace(e, query=row) for e, row in zip(explained, rows, strict=True)], contrast.level
