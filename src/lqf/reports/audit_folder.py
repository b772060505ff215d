"""An audit as a folder: JSON, one CSV per table, contact sheets to look at, and manifests to fit again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lqf.analysis.audit import duplicates, informative, labels
from lqf.analysis.audit.audit import Audit
from lqf.analysis.audit.rows import Informative, Pair, Suspect
from lqf.data.manifests import manifest_text, whole_path, without_manifest
from lqf.data.readers.audit_table import CLEANED, RELABELLED
from lqf.errors import LQFError
from lqf.reports.pictures import Tile, contact_sheet, png, thumbnail
from lqf.utils.files import FolderKind, check_folder, new_folder, write_table

FORMAT = "lqf-audit"
Rows = Sequence[Mapping[str, Any]]
_KIND = FolderKind("audit.json", FORMAT, "was not written by `lqf audit`")
_ACROSS, _DOWN = 6, 6
"""Pictures in a row of a sheet, and rows (of classes, too)."""
_SIDE = 160


def check(out: Path, overwrite: bool) -> None:
    """Refuse, before any work is done, a folder that is there and may not be replaced."""
    check_folder(out, overwrite, _KIND)


def check_apart(out: Path, *sources: object) -> None:
    """Refuse to replace a folder that holds what the model was fitted on, such as an earlier audit's manifest."""
    for source in sources:
        if source is not None and out.resolve() in Path(str(source)).expanduser().resolve().parents:
            raise LQFError(f"`{out}` holds `{source}`, on which this model was fitted; choose another output folder")


def write(audit: Audit, out: Path, *, overwrite: bool = False) -> list[str]:
    """Write the folder in one step; returns the names of its files.

    Where the samples are no files, there are no manifests, and audit.json says so under "no_manifests".
    """
    check(out, overwrite)
    with new_folder(out, overwrite, _KIND) as folder:
        content = {"format": FORMAT, **audit.to_dict(), "no_manifests": without_manifest(audit.samples)}
        (folder / "audit.json").write_text(json.dumps(content, indent=1, allow_nan=False), encoding="utf-8")
        for name, (table, columns) in tables(audit).items():
            write_table(folder / name, table, columns)
        for name, text in manifests(audit).items():
            (folder / name).write_text(text, encoding="utf-8", newline="")
        for name, rows in sheets(audit).items():
            (folder / name).write_bytes(png(contact_sheet(rows, _SIDE)))
        return sorted(path.name for path in folder.iterdir())


def tables(audit: Audit) -> dict[str, tuple[Rows, Sequence[str]]]:
    """File name -> rows and columns; whole paths come last, where the samples are files."""
    samples, bare = audit.samples, bool(without_manifest(audit.samples))

    def placed(rows: Rows, columns: Sequence[str], **paths: str) -> tuple[Rows, Sequence[str]]:
        if bare:
            return rows, columns
        named = [{**r, **{new: whole_path(samples, r[index]) for new, index in paths.items()}} for r in rows]
        return named, [*columns, *paths]

    return {
        "labels.csv": placed(audit.suspects, labels.SUSPECT_COLUMNS, path="index"),
        "duplicates.csv": placed(audit.duplicates, duplicates.COLUMNS, path="index", other_path="other_index"),
        "information.csv": placed(audit.information, informative.COLUMNS, path="index"),
        "confusions.csv": (audit.confusions, labels.CONFUSION_COLUMNS),
    }


def manifests(audit: Audit) -> dict[str, str]:
    """File name -> a manifest that `lqf fit` reads: without the suspicious labels, and with predictions instead."""
    samples = audit.samples
    if without_manifest(samples):
        return {}
    return {
        CLEANED: manifest_text(samples, audit.cleaned()),
        RELABELLED: manifest_text(samples, audit.relabelled(), ["was"]),
    }


def sheets(audit: Audit) -> dict[str, list[tuple[str, list[Tile]]]]:
    """File name -> rows of pictures; tables that are empty have no sheet."""
    suspicious = [_suspect(audit, r) for r in audit.contradicted[: _ACROSS * _DOWN]]
    pairs = [tile for r in audit.duplicates[: _ACROSS * _DOWN // 2] for tile in _pair(audit, r)]
    found = {
        "labels.png": _rows("Labels that leave-one-out contradicts", suspicious),
        "duplicates.png": _rows("Near-duplicates, in pairs", pairs),
        "informative.png": _classes(audit),
    }
    return {name: rows for name, rows in found.items() if rows}


def _rows(title: str, tiles: Sequence[Tile]) -> list[tuple[str, list[Tile]]]:
    parts = [list(tiles[k : k + _ACROSS]) for k in range(0, len(tiles), _ACROSS)]
    return [(title if k == 0 else "", part) for k, part in enumerate(parts)]


def _classes(audit: Audit) -> list[tuple[str, list[Tile]]]:
    """The most and the least informative samples of the first classes, three each."""
    half, rows = _ACROSS // 2, []
    for name, (most, least) in list(informative.ends_of_classes(audit.information, half).items())[: 2 * _DOWN]:
        tiles = [_informative(audit, r, "most") for r in most] + [_informative(audit, r, "least") for r in least]
        rows.append((f"{name}: most and least informative", tiles))
    return rows


def _suspect(audit: Audit, row: Suspect) -> Tile:
    p = f"{row['predicted']}? ({row['predicted_probability']:.0%})"
    return thumbnail(audit.samples, row["index"], _SIDE), [p, f"labelled {row['label']}", row["id"]]


def _pair(audit: Audit, row: Pair) -> list[Tile]:
    what = "same file" if row["same_file"] else f"cosine {row['similarity']:.3f}"
    return [
        (thumbnail(audit.samples, row["index"], _SIDE), [what, row["label"], row["id"]]),
        (thumbnail(audit.samples, row["other_index"], _SIDE), ["", row["other_label"], row["other"]]),
    ]


def _informative(audit: Audit, row: Informative, end: str) -> Tile:
    return thumbnail(audit.samples, row["index"], _SIDE), [f"{end}: {row['information']:.2g}", row["id"]]
