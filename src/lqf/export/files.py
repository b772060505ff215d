"""An exported model as a file: ONNX, or PyTorch's own format of graphs; checked before it takes its place.

What was written is opened again and compared with the model, on pictures of other sizes and in batches of other sizes
than those it was traced with. The largest difference is stored with the file.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.export import Dim

from lqf.data import Images
from lqf.data.decode import to_image
from lqf.errors import LQFError, MissingDependency
from lqf.evaluation.calibration import probabilities
from lqf.export.module import ExportedModel, as_module
from lqf.fitting import Model
from lqf.linear.batch import usual_rows
from lqf.settings import NORMALIZED
from lqf.utils import files
from lqf.utils.progress import SILENT, Progress
from lqf.utils.text import counted

SUFFIXES = (".onnx", ".pt2")
ENOUGH, TOO_MUCH = 1e-4, 1e-2
"""Largest difference of a probability that is expected in float32, and from which on nothing is written."""
CPU = torch.device("cpu")
Run = Callable[[Tensor, Tensor], Tensor]
"""Pictures and windows -> probabilities."""


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        path: the file.
        classes: in the order of the probabilities.
        inputs: name, type and shape of every input.
        difference: the largest one of a probability to the model's own.
        images: on how many it was measured.
        bytes: of the file.
    """

    path: Path
    classes: tuple[str, ...]
    inputs: dict[str, str]
    difference: float
    images: int
    bytes: int

    def __repr__(self) -> str:
        return f"Exported({self.path}, probabilities within {self.difference:.1e} on {counted(self.images, 'image')})"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"path": str(self.path), "classes": list(self.classes)}


def export(
    model: Model, path: str | Path, images: Images, *, overwrite: bool = False, progress: Progress = SILENT
) -> Exported:
    """Write a model as a graph.

    Args:
        model: what is written.
        path: FILE.onnx or FILE.pt2.
        images: opened for the model; on them the file is compared with it.
        overwrite: replace a file that is there.
        progress: where to report.
    """
    path = Path(path)
    files.check_file(path, overwrite, SUFFIXES)
    if path.suffix.lower() == ".onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            _needed(package)
    with progress.stage("tracing"):
        module = as_module(model)
        program = _traced(module)
    with files.atomic_file(path) as temporary, progress.stage("writing and checking"):
        write, run_with = (_write_onnx, _onnx) if path.suffix.lower() == ".onnx" else (_write_graph, _graph)
        inputs = inputs_of(module)
        about = {"classes": list(module.classes), "inputs": inputs, "drawn": [list(d) for d in module.drawn]}
        write(program, module, temporary, about)
        difference = largest_difference(model, run_with(temporary), module, images)
        if not difference <= TOO_MUCH:
            raise LQFError(
                f"the exported graph is not the model: its probabilities differ by {difference:.2g} on "
                f"{counted(len(images), 'image')}; nothing was written"
            )
        if difference > ENOUGH:
            progress.say(f"probabilities of the exported graph differ by up to {difference:.1e}")
        write(program, module, temporary, {**about, "difference": difference, "images": len(images)})
        size = temporary.stat().st_size
    return Exported(path, module.classes, inputs, difference, len(images), size)


def sample_inputs(model: Model) -> list[Any]:
    """Inputs to compare with where there are no images: smooth noise in several sizes, or tensors."""
    draw = np.random.default_rng(0)
    if model.setup.tensors == NORMALIZED:
        shape = model.train.shape or ()
        return [torch.from_numpy(draw.standard_normal(shape)).to(torch.float32) for _ in range(5)]
    side = max(m.preprocess.stored for m in model.members)
    sizes = [(side, side), (side + 3, 2 * side), (2 * side + 1, side + 7), (side // 2 + 1, side), (side, side)]
    return [_picture(draw, *size) for size in sizes]


def _picture(draw: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Blobs of colour, uint8 (H, W, 3)."""
    coarse = Image.fromarray(draw.integers(0, 256, (5, 7, 3), dtype=np.uint8)).resize((width, height))
    noise = draw.normal(0, 8, (height, width, 3))
    return np.clip(np.asarray(coarse) + noise, 0, 255).astype(np.uint8)


def inputs_of(module: ExportedModel) -> dict[str, str]:
    """Name, type and shape of every input, in words."""
    if module.tensors:
        return {"tensors": f"{_name(module.dtype)} (batch, {', '.join(map(str, module.shape))}), normalised"}
    pictures = {"pictures": "uint8 (batch, 3, height, width), RGB, upright, any size"}
    if not module.drawn:
        return pictures
    return {**pictures, "windows": f"int64 (batch, {len(module.drawn)}, 5): top, left, height, width, mirrored"}


def largest_difference(model: Model, run: Run, module: ExportedModel, images: Images) -> float:
    """Of a probability, between the model and what was exported, over all images: alone, and by twos where they are of
    one size.
    """
    wanted = probabilities(model.outputs(images, device=CPU, batch_size=usual_rows(CPU)), model.beta)
    difference = 0.0
    for rows in _by_size(module, images):
        got = run(
            torch.stack([_input(module, images, i) for i in rows]), module.windows([images.hashes[i] for i in rows])
        )
        difference = max(difference, _largest(got.double() - wanted[rows]))
    return difference


def _largest(x: Tensor) -> float:
    return float(x.abs().max()) if bool(x.isfinite().all()) else float("inf")


def _by_size(module: ExportedModel, images: Images) -> Iterator[list[int]]:
    """Samples that can be a batch, three at most."""
    sizes: dict[tuple[int, ...], list[int]] = {}
    for i in range(len(images)):
        sizes.setdefault(tuple(_input(module, images, i).shape), []).append(i)
    for rows in sizes.values():
        yield from (rows[k : k + 3] for k in range(0, len(rows), 3))


def _input(module: ExportedModel, images: Images, i: int) -> Tensor:
    """One picture (3, H, W) as it is before anything is done to it, or one tensor."""
    raw = images.samples.source.raw(i)
    if module.tensors:
        assert isinstance(raw, Tensor)
        return raw.to(module.dtype)
    picture = to_image(raw, at_least=module.side)
    return (
        torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8).view(*picture.size[::-1], 3).permute(2, 0, 1)
    )


# --- the two formats --------------------------------------------------------------------------------------------------


def _traced(module: ExportedModel) -> torch.export.ExportedProgram:
    """The graph, for any number of pictures of any size."""
    batch = Dim("batch", min=1, max=65_535)
    if module.tensors:
        example: tuple[Tensor, ...] = (torch.zeros(2, *module.shape, dtype=module.dtype),)
        shapes: list[dict[int, Any]] = [{0: batch}]
    else:
        sides = {2: Dim("height", min=2, max=1 << 16), 3: Dim("width", min=2, max=1 << 16)}
        example, shapes = (
            (torch.zeros(2, 3, module.side + 5, module.side + 9, dtype=torch.uint8),),
            [{0: batch, **sides}],
        )
        if module.drawn:
            example, shapes = (*example, module.windows([""] * 2)), [*shapes, {0: batch}]
    with _quiet(), torch.no_grad():
        return torch.export.export(module, example, dynamic_shapes=tuple(shapes), strict=False)


def _write_onnx(
    program: torch.export.ExportedProgram, module: ExportedModel, path: Path, about: dict[str, Any]
) -> None:
    with _quiet():
        names = list(inputs_of(module))
        written = torch.onnx.export(
            program, input_names=names, output_names=["probabilities", "outputs"], dynamo=True, verbose=False
        )
        assert written is not None
        written.model.metadata_props["lqf"] = json.dumps(about)
        written.save(path)


def _onnx(path: Path) -> Run:
    options = import_module("onnxruntime").SessionOptions()
    options.log_severity_level = 3
    session = import_module("onnxruntime").InferenceSession(
        os.fspath(path), options, providers=["CPUExecutionProvider"]
    )
    names = [i.name for i in session.get_inputs()]

    def run(pictures: Tensor, windows: Tensor) -> Tensor:
        given = dict(zip(names, (pictures.numpy(), windows.numpy()), strict=False))
        return torch.from_numpy(session.run(["probabilities"], given)[0])

    return run


def _write_graph(
    program: torch.export.ExportedProgram, module: ExportedModel, path: Path, about: dict[str, Any]
) -> None:
    buffer = io.BytesIO()
    with _quiet():
        torch.export.save(program, buffer, extra_files={"lqf.json": json.dumps(about)})
    path.write_bytes(buffer.getvalue())


def _graph(path: Path) -> Run:
    with _quiet():
        graph = torch.export.load(io.BytesIO(path.read_bytes())).module()

    def run(pictures: Tensor, windows: Tensor) -> Tensor:
        with torch.no_grad():
            return graph(pictures, windows)[0] if windows.shape[1] else graph(pictures)[0]

    return run


def _needed(package: str) -> None:
    try:
        import_module(package)
    except ImportError as e:
        raise MissingDependency(package, "ONNX files", "pip install 'lqf-torch[onnx]'") from e


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Exporters tell of their own work, on every channel."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
