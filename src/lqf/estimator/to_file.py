"""Predictions of folders of any size in a file: rows are written as they come, and only a few images are held."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from lqf.data import Images, Samples, check_kind
from lqf.data.images import check_skipped
from lqf.data.named import name_images
from lqf.data.sources import FileSource
from lqf.data.streaming import Part, check_readable, stream_images
from lqf.errors import LQFError
from lqf.estimator.predictor import Predictor
from lqf.evaluation.calibration import probabilities
from lqf.fitting import Model
from lqf.fitting.finite import about_convergence, check_outputs
from lqf.fitting.identity import identity
from lqf.linear.batch import usual_rows
from lqf.linear.targets import decide
from lqf.reports import row_files
from lqf.reports.predictions import Columns, Prediction, check_threshold, paths, ranked
from lqf.reports.unfinished import Unfinished, remark, stamp, unfinished_path
from lqf.runtime.device import computing, resolve_device
from lqf.runtime.memory import cores
from lqf.runtime.out_of_memory import in_smaller_batches
from lqf.utils.progress import Progress
from lqf.utils.text import counted, one_line


@dataclass(frozen=True)
class PredictedFile:
    """What was written.

    Attributes:
        path: of the file.
        n: images that are predicted.
        resumed: so many of them by the run that this one continued.
        unsure: so many of them are less probable than the threshold.
        skipped: (id, reason) of those that could not be read.
    """

    path: Path
    n: int
    resumed: int
    unsure: int
    skipped: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"PredictedFile({self.path}, {counted(self.n, 'image')}, {len(self.skipped)} skipped)"

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self) | {"path": str(self.path), "skipped": [list(pair) for pair in self.skipped]}


class ToFile(Predictor):
    """Predictions in a file."""

    @computing
    def predict_to_file(
        self,
        X: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        path: str | Path,
        *,
        top: int = 1,
        threshold: float | None = None,
        jobs: int | None = None,
        resume: bool = False,
        overwrite: bool = False,
        strict: bool = False,
        progress: Progress | None = None,
    ) -> PredictedFile:
        """Write the predictions of image files, folders and manifests, one row per image.

        Rows are kept in `FILE.partial` as they come, and take their place together. An image that cannot be read is a
        row with a note. The rows are those of all images at once, to the last digit, however many threads decode and
        wherever the run was interrupted.

        Args:
            X: a path, or several.
            path: FILE.csv, FILE.jsonl or FILE.parquet.
            top: so many classes of each image.
            threshold: less probable predictions are `unsure`.
            jobs: threads that decode; default: one per processor.
            resume: go on from `FILE.partial`. Images are recognised by path, size and time of change; those that could
                not be read are tried again. What another model or other options predicted is refused.
            overwrite: replace a file that is there, and begin again where there is a `FILE.partial`.
            strict: refuse images that cannot be read, before anything is predicted.
            progress: where to report.
        """
        model, progress, out = self._model(), self._shown(progress), Path(path).expanduser()
        row_files.check(out, overwrite)
        check_threshold(model.classes, threshold)
        samples, given = name_images([X] if isinstance(X, str | os.PathLike) else X)
        check_kind(samples.source, self.tensors)
        workers, device = cores() if jobs is None else _at_least_one(jobs), resolve_device(self.device)
        network = _Network(model, self.device, self.batch_size or usual_rows(device), len(samples), progress)
        options = {"top": top, "threshold": threshold, "batch size": network.rows, "device": device.type}
        about = {"model": identity(model), **options}
        unfinished = Unfinished(unfinished_path(out), about, network.ready.samples)
        unfinished.check(resume=resume, overwrite=overwrite)
        for sentence in about_convergence(model):
            progress.say(sentence)
        if strict:
            check_readable(samples, model.preprocess, workers, progress)
        with unfinished:
            return _Run(network, samples, given, top, threshold, workers, unfinished).write(out, resume, overwrite)


class _Network:
    """Outputs of parts, in smaller batches from where the memory does not suffice."""

    def __init__(self, model: Model, device: str, rows: int, images: int, progress: Progress):
        self.model, self.device, self.rows, self.progress = model, resolve_device(device), rows, progress
        self.images, self.ready = images, model.ready(self.device, rows, images)

    def outputs(self, images: Images) -> Tensor:
        return in_smaller_batches(lambda n: self._outputs(images, n), self.rows, self.progress.say, "predictions")

    def _outputs(self, images: Images, rows: int) -> Tensor:
        if rows != self.rows:
            self.rows, self.ready = rows, self.model.ready(self.device, rows, self.images)
        return self.ready.outputs(images)


@dataclass(eq=False)
class _Run:
    """One pass over the images."""

    network: _Network
    samples: Samples
    given: Sequence[str] | None
    top: int
    threshold: float | None
    workers: int
    unfinished: Unfinished
    reasons: dict[int, str] = field(default_factory=dict)
    unsure: int = 0

    def write(self, out: Path, resume: bool, overwrite: bool) -> PredictedFile:
        """Predict what is not predicted yet, and put the file in place; what is predicted outlives every failure."""
        names, stamps = paths(self.samples), np.array([stamp(p) for p in _files(self.samples)])
        places = self._begin(names, stamps, resume)
        before = int((places >= 0).sum())
        try:
            self._predict(places, names, stamps)
            return self._finished(out, places, names, before, overwrite)
        except BaseException as error:
            done = int((places >= 0).sum())
            if done == 0:
                self.unfinished.remove()
                raise
            kept = remark(self.unfinished.path, done, len(names))
            if isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt(f"interrupted; {kept}") from None
            self.network.progress.say(kept)
            raise

    def _finished(
        self, out: Path, places: np.ndarray, names: Sequence[str], before: int, overwrite: bool
    ) -> PredictedFile:
        samples = self.samples
        skipped = tuple((samples.ids[i], self.reasons[i]) for i in sorted(self.reasons))
        check_skipped(samples, skipped, strict=False)
        columns = Columns(
            most=min(self.top, len(self.network.model.classes)),
            threshold=self.threshold is not None,
            given=self.given is not None,
            sure=(),
            nested=row_files.is_nested(out),
        )
        rows = (columns.row(row) for row in self._rows(places, names))
        row_files.write_stream(out, rows, columns.kinds, overwrite=overwrite)
        self.unfinished.remove()
        return PredictedFile(out, len(samples) - len(skipped), before, self.unsure, skipped)

    def _begin(self, names: Sequence[str], stamps: np.ndarray, resume: bool) -> np.ndarray:
        there = self.unfinished.path.exists()
        places = self.unfinished.begin(names, stamps, resume=resume)
        if resume and there:
            done = int((places >= 0).sum())
            self.network.progress.say(f"{done:,} of {counted(len(names), 'image')} are predicted already")
        elif resume:
            self.network.progress.say(f"there is no `{self.unfinished.path}`; starting from the beginning")
        return places

    def _predict(self, places: np.ndarray, names: Sequence[str], stamps: np.ndarray) -> None:
        """All images without a place."""
        todo, progress = np.flatnonzero(places < 0), self.network.progress
        preprocess, per_part = self.network.model.preprocess, self.unfinished.per_part
        with progress.stage("predicting", total=len(todo), unit="images") as stage:
            for part in stream_images(self.samples, preprocess, todo, per_part, self.workers):
                for i, reason in part.skipped:
                    self.reasons[i] = reason
                    progress.say(f"skipped `{one_line(self.samples.ids[i])}`: {reason}")
                found = zip(part.rows.tolist(), self._ranked(part), strict=True)
                places[part.rows] = self.unfinished.add((names[i], stamps[i], own) for i, own in found)
                stage.advance(len(part.rows) + len(part.skipped))

    def _ranked(self, part: Part) -> list[tuple[tuple[str, float], ...]]:
        if part.images is None:
            return []
        model, outputs = self.network.model, self.network.outputs(part.images)
        check_outputs(outputs, part.images.samples.ids)
        p = probabilities(outputs, model.beta).numpy()
        return [ranked(model.classes, k, own, self.top) for k, own in zip(decide(outputs).tolist(), p, strict=True)]

    def _rows(self, places: np.ndarray, names: Sequence[str]) -> Iterator[Prediction]:
        """Of all images, in order."""
        for i, (name, place) in enumerate(zip(names, places.tolist(), strict=True)):
            label = (self.given[i] or None) if self.given is not None else None
            if i in self.reasons:
                yield Prediction(name, note=self.reasons[i], given=label)
                continue
            best = self.unfinished.read(place, name)
            unsure = None if self.threshold is None else best[0][1] < self.threshold
            self.unsure += unsure is True
            yield Prediction(name, best, unsure, given=label)


def _files(samples: Samples) -> tuple[Path, ...]:
    assert isinstance(samples.source, FileSource)
    return samples.source.paths


def _at_least_one(jobs: int) -> int:
    if jobs < 1:
        raise LQFError(f"jobs={jobs} was given; at least one thread decodes, so give 1 or more")
    return jobs
