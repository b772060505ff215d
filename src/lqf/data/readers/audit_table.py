"""Tables of `lqf audit`, told from manifests: some have paths and labels, but they are for reading."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from lqf.errors import LQFError

TABLES = {
    "labels": {"rank", "label", "predicted", "margin", "label_probability"},
    "duplicates": {"similarity", "other", "other_label", "same_file"},
    "information": {"rank", "label", "information", "rank_in_class", "of_class"},
    "confusions": {"label", "predicted", "n", "share"},
}
"""What each is about -> columns that together only it has."""
CLEANED, RELABELLED = "cleaned.csv", "relabelled.csv"
MANIFESTS = {CLEANED: "without the suspicious labels", RELABELLED: "with the predicted ones in their place"}
"""What an audit writes beside them to be fitted: name -> what it is."""


def refuse_audit_table(file: Path, columns: Collection[str]) -> None:
    """Say what a table of an audit is, and which manifests stand beside it."""
    what = next((name for name, own in TABLES.items() if own <= set(columns)), None)
    if what is None:
        return
    there = [f"`{file.with_name(name)}` ({how})" for name, how in MANIFESTS.items() if file.with_name(name).is_file()]
    instead = " or ".join(there) or "the training folder, or the cleaned.csv that `lqf audit RUN -o OUT` writes"
    raise LQFError(f"`{file}` is the table of {what} of an audit, not a manifest; give {instead}")
