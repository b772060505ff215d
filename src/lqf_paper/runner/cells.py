"""Cells: the units of work of an experiment, each computed once and kept as one JSON file.

A cell is a description (what to do, on which data, with which settings) and its result is a function of it alone. The
file's name is a hash of the description with all defaults (`lqf_paper.runner.registry`), of the data's and the
network's fingerprints and of the kind of device, so a stopped experiment goes on where it was, and two experiments that
need the same cell share it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lqf.errors import LQFError
from lqf.utils.files import write_file
from lqf.utils.json_values import json_values


@dataclass(frozen=True)
class Cell:
    """One unit of work.

    Attributes:
        work: name of what to do (`lqf_paper.runner.registry`).
        data: name of the data set.
        params: arguments of the work, JSON values.
    """

    work: str
    data: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """JSON values."""
        return {"work": self.work, "data": self.data, "params": dict(self.params)}

    def __str__(self) -> str:
        """One line for a person."""
        shown = (f"{k} {_short(v)}" for k, v in self.params.items() if k != "method" and v is not None)
        return f"{self.data}: {self.params.get('method', self.work)}, {', '.join(shown)}".rstrip(", ")


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{k}={_short(v)}" for k, v in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def key(identity: Mapping[str, Any]) -> str:
    """24 hexadecimal digits of the sha256 of JSON values, whatever the order of their names."""
    text = json.dumps(identity, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


class Store:
    """Finished cells in a folder, one file each."""

    def __init__(self, folder: Path):
        self.folder = folder

    def get(self, identity: Mapping[str, Any]) -> dict[str, Any] | None:
        """What was kept under this identity; None: nothing yet."""
        path = self.path(identity)
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise LQFError(f"`{path}` is damaged ({error}); delete it, and its cell is computed again") from error
        if not isinstance(record, dict) or record.get("identity") != json.loads(json.dumps(identity)):
            raise LQFError(f"`{path}` does not hold the cell it is named after; delete it, and it is computed again")
        return record

    def put(self, identity: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
        """Keep a record of JSON values under its identity, in one step; it is returned as it will be read."""
        whole = {"identity": dict(identity), **json_values(record)}
        text = json.dumps(whole, indent=1, allow_nan=False)
        write_file(self.path(identity), text + "\n")
        self._failed(identity).unlink(missing_ok=True)
        return json.loads(text)

    def fail(self, identity: Mapping[str, Any], why: str) -> None:
        """Note that a cell could not be computed, for processes that run at the same time."""
        write_file(self._failed(identity), json.dumps({"identity": dict(identity), "failed": why}, indent=1) + "\n")

    def failure(self, identity: Mapping[str, Any], since: float = 0.0) -> str | None:
        """Why the cell failed after this moment (seconds of the clock); None: it did not."""
        path = self._failed(identity)
        try:
            return json.loads(path.read_text(encoding="utf-8"))["failed"] if path.stat().st_mtime > since else None
        except FileNotFoundError:
            return None

    def path(self, identity: Mapping[str, Any]) -> Path:
        """Where the cell's file lies."""
        return self.folder / f"{key(identity)}.json"

    def _failed(self, identity: Mapping[str, Any]) -> Path:
        return self.path(identity).with_suffix(".failed")
