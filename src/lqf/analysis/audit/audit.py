"""`Audit`: what a fitted model has to say about the data it was fitted on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from lqf.analysis.analysis import Analysis
from lqf.analysis.audit import corrected, duplicates, informative, labels
from lqf.analysis.audit.corrected import Rows
from lqf.analysis.audit.rows import Confused, Informative, Pair, Suspect
from lqf.data import Samples
from lqf.fitting.class_weights import as_they_come, own_weights
from lqf.utils.notebook import Shown
from lqf.utils.text import counted, percent


@dataclass(frozen=True)
class Audit(Shown):
    """Tables about the training samples; a row is a dict, its columns are those of the CSV files.

    Attributes:
        suspects: every sample, the least credible label first.
        duplicates: pairs of samples that are nearly the same to the model, the most similar first.
        information: every sample, the most informative first.
        confusions: which class is taken for which in leave-one-out.
        classes: names.
        samples: the training samples, for their pictures.
        loo_error: share of wrong leave-one-out predictions.
        levels: how exact leave-one-out, information and similarity are, and what stands behind it.
    """

    suspects: list[Suspect]
    duplicates: list[Pair]
    information: list[Informative]
    confusions: list[Confused]
    classes: tuple[str, ...]
    samples: Samples
    loo_error: float
    levels: dict[str, dict[str, str]]

    def __repr__(self) -> str:
        return (
            f"Audit({counted(len(self.suspects), 'image')}: {counted(len(self.contradicted), 'label')} contradicted, "
            f"{counted(len(self.duplicates), 'pair')} of near-duplicates; leave-one-out error "
            f"{percent(self.loo_error)})"
        )

    @property
    def contradicted(self) -> list[Suspect]:
        """The suspects whose label is not what leave-one-out predicts."""
        return [row for row in self.suspects if row["predicted"] != row["label"]]

    @property
    def suspicious(self) -> list[Suspect]:
        """The contradicted ones of whose predicted class a model without the sample is sure (`labels.SURE`)."""
        return [row for row in self.suspects if row["suspicious"]]

    def cleaned(self) -> Rows:
        """The training samples without the suspicious ones, as rows of a manifest; every class keeps two."""
        return corrected.cleaned(self.samples, self.suspects)

    def relabelled(self) -> Rows:
        """All training samples, the suspicious ones with the predicted label; "was" is the label that was given."""
        return corrected.relabelled(self.samples, self.suspects)

    def to_dict(self, most: int = 100) -> dict[str, Any]:
        """As JSON values, the longest tables cut to their first ``most`` rows; the counts are of all."""
        return {
            "n": len(self.suspects),
            "classes": list(self.classes),
            "loo_error": self.loo_error,
            "levels": self.levels,
            "contradicted": len(self.contradicted),
            "suspicious": len(self.suspicious),
            "suspicious_from": labels.SURE,
            "left_out": len(corrected.doubted(self.suspects)),
            "suspects": _shown(self.suspects[:most]),
            "duplicate_pairs": len(self.duplicates),
            "duplicates_with_other_label": sum(r["label"] != r["other_label"] for r in self.duplicates),
            "duplicates": _shown(self.duplicates[:most]),
            "informative": {
                name: {"most": _shown(most_), "least": _shown(least)}
                for name, (most_, least) in informative.ends_of_classes(self.information, 5).items()
            },
            "confused_pairs": len(self.confusions),
            "confusions": self.confusions[:most],
        }


def audit(analysis: Analysis, *, similar: float = duplicates.LEAST) -> Audit:
    """Everything at once.

    Args:
        analysis: a model's training problem, opened again.
        similar: least cosine of near-duplicates.
    """
    model, loo = analysis.model, analysis.known_leave_one_out()
    information, similarity = analysis.information(), analysis.similarity()
    pairs = similarity.pairs(least=similar, most=duplicates.MOST)
    answers = {"leave_one_out": loo, "information": information, "similarity": similarity}
    return Audit(
        suspects=labels.suspects(model, loo),
        duplicates=duplicates.near_duplicates(model, pairs),
        information=informative.by_information(model, information.samples()),
        confusions=labels.confused_classes(model, loo),
        classes=model.classes,
        samples=replace(analysis.images.samples, weights=own_weights(model)),
        loo_error=as_they_come(model, loo).error,
        levels={name: {"level": a.level, "note": a.note} for name, a in answers.items()},
    )


def _shown(rows: Iterable[Suspect | Pair | Informative]) -> list[dict[str, Any]]:
    """Without positions, which mean nothing outside this process."""
    return [{k: v for k, v in row.items() if not k.endswith("index")} for row in rows]
