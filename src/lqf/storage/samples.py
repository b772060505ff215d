"""The table of training samples as CSV."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lqf.fitting import Model, TrainingTable


def write_samples(model: Model, path: Path) -> None:
    """A row per training sample."""
    t = model.train
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "label", "weight", "group", "sha256", *(["source"] if t.added else [])])
        groups, origins = t.groups or [""] * len(t.ids), t.origins.tolist()
        for i, row in enumerate(zip(t.ids, t.labels.tolist(), t.weights.tolist(), groups, t.hashes, strict=True)):
            own = [row[0], model.classes[row[1]], repr(row[2]), row[3], row[4]]
            writer.writerow([*own, *([origins[i]] if t.added else [])])


def read_samples(path: Path, classes: tuple[str, ...], meta: Mapping[str, Any]) -> TrainingTable:
    """The table, as the description goes on."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    number = {c: i for i, c in enumerate(classes)}
    groups = tuple(r["group"] for r in rows)
    return TrainingTable(
        tuple(r["id"] for r in rows),
        np.array([number[r["label"]] for r in rows], dtype=np.int64),
        np.array([float(r["weight"]) for r in rows]),
        groups if any(groups) else None,
        tuple(r["sha256"] for r in rows),
        meta["train"],
        tuple(meta["shape"]) if "shape" in meta else None,
        tuple(meta.get("added", ())),
        np.array([int(r["source"]) for r in rows], dtype=np.int64) if "added" in meta else None,
    )
