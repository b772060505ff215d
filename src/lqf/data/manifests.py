"""Samples as the lines of a CSV manifest, as `readers/manifest.py` reads them."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lqf.data.samples import Samples
from lqf.data.sources import FileSource
from lqf.errors import LQFError

Row = dict[str, Any]


def sample_row(samples: Samples, i: int, label: str | None = None) -> Row:
    """Sample i as a line: its path, whole, so that the manifest may lie anywhere; label, weight and group.

    Args:
        samples: where it is from. What has no file has a row without a path.
        i: its number, which is in the row, too, with its id; a manifest does not have them.
        label: in place of its own.
    """
    row: Row = {"index": i, "id": samples.ids[i]}
    if isinstance(samples.source, FileSource):
        row["path"] = whole_path(samples, i)
    row["label"] = samples.classes[samples.labels[i]] if label is None else label
    row["weight"] = float(samples.weights[i])
    if samples.groups is not None:
        row["group"] = samples.groups[i]
    return row


def whole_path(samples: Samples, i: int) -> str:
    """Where the file of sample i is, whatever the working directory."""
    assert isinstance(samples.source, FileSource)
    return os.path.abspath(samples.source.paths[i])


def without_manifest(samples: Samples) -> str:
    """Why no manifest can list these samples, in a sentence; empty where one can."""
    if not isinstance(samples.source, FileSource):
        return f"{samples.name} has no image files, which a manifest names; select samples by their numbers"
    odd = next((i for i in range(len(samples)) if _odd(whole_path(samples, i))), None)
    return "" if odd is None else f"the name of `{samples.ids[odd]}` is not UTF-8, which a manifest is; rename the file"


def manifest_text(samples: Samples, rows: Iterable[Mapping[str, Any]], further: Sequence[str] = ()) -> str:
    """Rows made by `sample_row` as a CSV; ``further``: columns after those that a fit reads, which it ignores."""
    if reason := without_manifest(samples):
        raise LQFError(reason)
    text = io.StringIO(newline="")
    group = ["group"] if samples.groups is not None else []
    writer = csv.DictWriter(text, ["path", "label", "weight", *group, *further], extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _odd(path: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in path)
