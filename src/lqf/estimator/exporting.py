"""A fitted model for other programs: a file, or an ordinary `nn.Module`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lqf.data import load_unlabelled
from lqf.estimator.predictor import Predictor
from lqf.export import Exported, ExportedModel, as_module, export, sample_inputs
from lqf.utils.progress import Progress


class Exporting(Predictor):
    """The way out."""

    def as_module(self, device: str = "cpu") -> ExportedModel:
        """The model as a network in eval mode: pictures, uint8 (B, 3, H, W) -> probabilities and outputs.

        Preprocessing, views and calibration are inside; see `lqf.export.ExportedModel`.
        """
        return as_module(self._model(), device)

    def export(
        self, path: str | Path, *, check: Any = None, overwrite: bool = False, progress: Progress | None = None
    ) -> Exported:
        """Write the model as one graph, for ONNX's runtimes (`.onnx`) or `torch.export.load` (`.pt2`).

        The file is compared with the model before it takes its place.

        Args:
            path: FILE.onnx or FILE.pt2.
            check: images for the comparison, what `predict` takes; None: pictures of noise in several sizes.
            overwrite: replace a file that is there.
            progress: where to report.
        """
        model, progress = self._model(), self._shown(progress)
        images = (
            self._open(check, progress)
            if check is not None
            else self.open(load_unlabelled(sample_inputs(model), tensors=model.setup.tensors), progress=progress)
        )
        return export(model, path, images, overwrite=overwrite, progress=progress)
