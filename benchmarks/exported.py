"""What an exported model costs beside its backbone's own forward pass, and how exactly it repeats the model.

    python benchmarks/exported.py DATA --size 224 --limit-per-class 2 --linearize all stage5

DATA is a folder with train/ and test/. For every stage a dense fit in one view, with the network linearised from there
on, is written as ONNX and compared with the model on test images. Milliseconds per image are medians of runs in turn,
in ONNX Runtime on as many threads as torch has: of the exported files, which also resize their pictures and give
probabilities, and of the backbone alone.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from common.hardware import hardware, write
from common.options import Options

from lqf import LQFClassifier
from lqf.fitting import FittedModel
from lqf.linear.linearize import linearized_body

NAMES = ("backbone", "weights", "size", "limit_per_class", "seed", "pooling")
"""Settings."""
Run = Callable[[], Any]


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32 --limit-per-class 2 --checked 6 --runs 2")
    out.add_data()
    out.add_settings(*NAMES)
    out.add_argument("--linearize", nargs="+", default=["all"], help="stages from which on the network is linearised")
    out.add_argument("--batches", nargs="+", type=int, default=[1, 8], help="pictures per call")
    out.add_argument("--checked", type=int, default=100, help="test images that are compared")
    out.add_argument("--runs", type=int, default=20, help="timed calls of each")
    return out


def session(path: Path) -> onnxruntime.InferenceSession:
    """An opened file, on torch's number of threads."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = torch.get_num_threads(), 3
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


def backbone_alone(model: FittedModel, path: Path) -> onnxruntime.InferenceSession:
    """The network without head and derivative, as PyTorch writes it."""
    _, body = linearized_body(model.backbone.body)
    x = torch.zeros(2, 3, model.preprocess.size, model.preprocess.size)
    batch = torch.export.Dim("batch", min=1, max=65_535)
    written = torch.onnx.export(body.module, (x,), dynamic_shapes=({0: batch},), dynamo=True, verbose=False)
    assert written is not None
    written.save(path)
    return session(path)


def milliseconds(calls: dict[str, Run], runs: int) -> dict[str, float]:
    """Median of each, called in turn after one call that is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for k in range(runs + 1):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            if k:
                taken[name].append(1000 * (time.perf_counter() - began))
    return {name: statistics.median(all_) for name, all_ in taken.items()}


def calls(sessions: dict[str, onnxruntime.InferenceSession], size: int, batch: int) -> dict[str, Run]:
    """One batch through each: pictures larger than the network's input, or its input."""
    draw = np.random.default_rng(0)
    pictures = draw.integers(0, 256, (batch, 3, size + size // 4, size + size // 2), dtype=np.uint8)
    inputs = draw.standard_normal((batch, 3, size, size)).astype(np.float32)

    def call(one: onnxruntime.InferenceSession) -> Run:
        (name,) = (i.name for i in one.get_inputs())
        return lambda: one.run(None, {name: pictures if name == "pictures" else inputs})

    return {name: call(one) for name, one in sessions.items()}


def main() -> None:
    """Fit, write, compare, time."""
    args = options().parse()
    given = {name: getattr(args, name) for name in NAMES}
    test = sorted((args.data / "test").glob("*/*"))
    test = test[:: max(1, len(test) // args.checked)][: args.checked]
    rows, sessions = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for stage in args.linearize:
            model = LQFClassifier(**given, solver="dense", linearize=stage, views="none", device="cpu", verbose=0)
            model.fit(args.data / "train")
            assert isinstance(model.fitted_, FittedModel)
            began, path = time.perf_counter(), Path(folder) / f"{stage}.onnx"
            written = model.export(path, check=[str(p) for p in test])
            rows.append({"linearize": stage, "seconds": time.perf_counter() - began, **about(written)})
            sessions[stage] = session(path)
        assert isinstance(model.fitted_, FittedModel)
        sessions["backbone"] = backbone_alone(model.fitted_, Path(folder) / "backbone.onnx")
        size = model.fitted_.preprocess.size
        for batch in args.batches:
            took = milliseconds(calls(sessions, size, batch), args.runs)
            for row in rows:
                row[f"batch {batch}"] = {
                    "milliseconds an image": took[row["linearize"]] / batch,
                    "backbone": took["backbone"] / batch,
                    "ratio": took[row["linearize"]] / took["backbone"],
                }
    for row in rows:
        print(row)
    name = f"exported-{args.backbone.replace(':', '-')}-cpu"
    write(name, {"rows": rows, "hardware": hardware(torch.device("cpu"))}, args.out)


def about(written: Any) -> dict[str, Any]:
    """What is said of a file."""
    return {"bytes": written.bytes, "difference": written.difference, "images": written.images}


if __name__ == "__main__":
    main()
