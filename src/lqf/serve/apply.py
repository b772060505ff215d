"""The corrections made real: the model of the corrected data, by an exact change of the old one where that is possible
(`exactly`), and else by a fit with its settings.

OUT                  the model folder
OUT.csv              the training data it is a model of, as a manifest
OUT-corrections.csv  what was corrected: id, action, the label that was given, the one in its place
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lqf.data.manifests import manifest_text, sample_row, without_manifest
from lqf.errors import LQFError
from lqf.fitting.class_weights import own_weights
from lqf.serve.corrections import Correction
from lqf.serve.exactly import changed_exactly
from lqf.serve.refused import Refused
from lqf.serve.session import Session
from lqf.serve.watched import Watched
from lqf.utils.files import atomic_file, write_file, write_table

COLUMNS = ("id", "action", "was", "label")


@dataclass
class Applying:
    """A change of the model in the background, at most one at a time.

    Attributes:
        state: "idle", "running", "done" or "failed".
        sentence: how it ended.
        written: names of what was written by the last one.
    """

    session: Session
    state: str = "idle"
    sentence: str = ""
    written: list[str] = field(default_factory=list)
    error: float | None = None
    progress: Watched = field(default_factory=Watched)
    _thread: threading.Thread | None = None
    _out: Path = Path()

    def start(self) -> None:
        """Begin with the corrections as they are now."""
        self.session.check_changes()
        if self.state == "running":
            raise Refused(409, "the corrected model is being made already")
        if not len(self.session.corrections):
            raise Refused(409, "there is nothing to apply yet; relabel or exclude an image first")
        if reason := without_manifest(self.session.analysis.images.samples):
            raise Refused(409, reason)
        self.state, self.sentence, self.written = "running", "", []
        corrected, self._out = dict(self.session.corrections.now), free(self.session.out)
        self._thread = threading.Thread(target=self._run, args=(corrected,), name="apply", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until it has ended."""
        if self._thread is not None:
            self._thread.join()

    def give_up(self) -> None:
        """Leave nothing of one that will not end: its manifest was written for it to read."""
        if self.state == "running" and not self._out.exists():
            manifest_of(self._out).unlink(missing_ok=True)

    def now(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "state": self.state,
            "sentence": self.sentence,
            "written": self.written,
            "error": self.error,
            **self.progress.now(),
        }

    def _run(self, corrected: dict[int, Correction]) -> None:
        try:
            with self.session.turns:
                out = apply(self.session, corrected, self._out, self.progress)
        except Exception as e:  # whatever it was, the page says it
            self.sentence = str(e) if isinstance(e, LQFError) else f"stopped by {type(e).__name__}: {e}"
            self.state = "failed"
            return
        self.written = [out.path.name, *(file.name for file in out.files)]
        self.error = out.error
        self.sentence = f"{'changed exactly' if out.exact else 'fitted again'}, and written to {out.path}"
        self.state = "done"


@dataclass(frozen=True)
class Applied:
    """What was written."""

    path: Path
    files: tuple[Path, Path]
    error: float | None
    exact: bool


def apply(session: Session, corrected: dict[int, Correction], out: Path, progress: Watched) -> Applied:
    """Make the model of the corrected data and write it; nothing stays where that does not end well."""
    manifest, table = manifest_of(out), out.with_name(f"{out.name}-corrections.csv")
    model, fitted = session.model, session.analysis.model
    samples = replace(session.analysis.images.samples, weights=own_weights(fitted))
    rows = [
        sample_row(samples, i, corrected[i].label if i in corrected else None)
        for i in range(len(samples))
        if i not in corrected or corrected[i].label is not None
    ]
    changes = [
        {"id": samples.ids[i], "action": c.action, "was": samples.classes[samples.labels[i]], "label": c.label or ""}
        for i, c in sorted(corrected.items())
    ]
    write_file(manifest, manifest_text(samples, rows))
    try:
        exact = changed_exactly(session, samples, corrected, manifest, progress)
        new = exact or type(model)(**model.get_params(deep=False)).fit(str(manifest), progress=progress)
        new.save(out)
        with atomic_file(table) as temporary:
            write_table(temporary, changes, COLUMNS)
    except BaseException:
        if not out.exists():
            manifest.unlink(missing_ok=True)
        raise
    return Applied(out, (manifest, table), new.fitted_.report.error, exact is not None)


def manifest_of(out: Path) -> Path:
    """Of the data that the model in ``out`` was fitted on."""
    return out.with_name(f"{out.name}.csv")


def free(path: Path) -> Path:
    """A name that nothing has: ``path``, or with the next number behind it."""
    number, found = 1, path
    while any(found.with_name(found.name + end).exists() for end in ("", ".csv", "-corrections.csv")):
        number += 1
        found = path.with_name(f"{path.name}-{number}")
    return found
