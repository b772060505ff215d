"""A fitted model as an `nn.Module`: pixels in, probabilities out, with nothing of this library's in between.

Preprocessing, views, network, δ and calibration are all inside. Drawn views depend on the contents of an image's file,
which pixels do not show: where a model has them, their windows are a second input (`ExportedModel.windows`).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lqf.backbones.bilinear_pool import BilinearPool
from lqf.data import Preprocess, standardize
from lqf.data.crops import Windows, windows_by_contents
from lqf.data.resample import resample_together
from lqf.errors import LQFError
from lqf.evaluation.calibration import probabilities
from lqf.export.resize import square
from lqf.fast.two_streams import TwoStreams
from lqf.fitting import FittedModel, Model
from lqf.linear.linearize import linearized_body
from lqf.linear.model import with_one
from lqf.settings import NORMALIZED

Drawn = tuple[int, float, float, int]
"""What places a drawn view: side of the picture, least area, largest ratio, number of the view."""


class ExportedModel(nn.Module):
    """Pictures -> probabilities (B, n_classes) and outputs f (B, C).

    Attributes:
        classes: names, in the order of the probabilities.
        tensors: whether inputs are normalised tensors (B, …) instead of pictures, uint8 (B, 3, H, W), RGB.
        drawn: the drawn views whose windows `forward` wants.
        dtype, shape: of normalised tensors.
        side: of the largest square that is made of a picture.
    """

    def __init__(self, model: Model, device: torch.device | str = "cpu"):
        super().__init__()
        self.weights = model.weights
        self.classes, self.beta, self.tensors = model.classes, model.beta, model.setup.tensors == NORMALIZED
        self.dtype, self.shape = model.members[0].settings.torch_dtype, model.members[0].train.shape or ()
        self.side = max(m.preprocess.stored for m in model.members)
        shape = self.shape if self.tensors else None
        self.members = nn.ModuleList([_Member(m, torch.device(device), shape) for m in model.members])
        self.drawn: tuple[Drawn, ...] = tuple(dict.fromkeys(d for m in model.members for d in _drawn(m.preprocess)))

    def forward(self, pictures: Tensor, windows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Probabilities and outputs.

        Args:
            pictures: uint8 (B, 3, H, W), RGB, upright; or normalised tensors.
            windows: int64 (B, len(drawn), 5): top, left, height, width, mirrored of every drawn view.
        """
        squares: dict[tuple[int, bool, str], Tensor] = {}
        total = torch.zeros(())
        for weight, member in zip(self.weights, self.members, strict=True):
            f = member(pictures) if self.tensors else self._of_pictures(member, pictures, windows, squares)
            total = weight * f if not total.ndim else total + weight * f
        return probabilities(total, self.beta).to(total.dtype), total

    def _of_pictures(
        self, member: nn.Module, pictures: Tensor, windows: Tensor | None, squares: dict[tuple[int, bool, str], Tensor]
    ) -> Tensor:
        preprocess: Preprocess = member.preprocess  # type: ignore[assignment]
        key = (preprocess.stored, preprocess.keep_aspect, preprocess.interpolation)
        if key not in squares:
            squares[key] = square(pictures, preprocess).to(torch.uint8)
        rows = [_fixed(squares[key], preprocess, v) for v in range(preprocess.n_views) if not preprocess.drawn(v)]
        if places := _drawn(preprocess):
            if windows is None:
                raise LQFError(
                    "this model averages random crops that are drawn from the image files; give their windows as well: "
                    "module(pictures, module.windows([sha256 of each file]))"
                )
            rows.append(_drawn_views(squares[key], preprocess, windows[:, [self.drawn.index(p) for p in places]]))
        f = member.of_pixels(torch.cat(rows))  # type: ignore[operator]
        return f.unflatten(0, (preprocess.n_views, -1)).mean(0)

    def windows(self, hashes: Sequence[str]) -> Tensor:
        """The second input of `forward`, from the sha256 of every image's file."""
        parts = []
        for side, area, ratio, view in self.drawn:
            w = windows_by_contents(hashes, view, side, area, ratio)
            parts.append(torch.cat([w.boxes, w.mirrored[:, None].long()], 1))
        return torch.stack(parts, 1) if parts else torch.zeros(len(hashes), 0, 5, dtype=torch.long)


class _Member(nn.Module):
    """Inputs of the network -> f of one fitted model: c + V z̃ + W̄ J_z δ."""

    head: Tensor
    point: Tensor | None
    mean: Tensor
    std: Tensor

    def __init__(self, model: FittedModel, device: torch.device, shape: tuple[int, ...] | None):
        super().__init__()
        self.preprocess, self.dtype, self.constant = model.preprocess, model.settings.torch_dtype, model.constant
        body = _by_iteration(copy.deepcopy(model.backbone.body)).to(device=device, dtype=self.dtype)
        prefix, suffix = linearized_body(body, model.stage)
        size = (3, self.preprocess.size, self.preprocess.size) if shape is None else shape
        example = torch.zeros(2, *size, device=device, dtype=self.dtype)
        self.prefix = nn.Identity() if prefix is None else _Values(TwoStreams(prefix, {}, example))
        tangents = {} if model.head_alone else suffix.layout.views(model.delta.to(device=device, dtype=self.dtype))
        with torch.no_grad():
            self.network = TwoStreams(suffix.module, tangents, self.prefix(example))
        self.register_buffer("head", model.head.to(device=device, dtype=self.dtype))
        work = torch.promote_types(self.dtype, torch.float32)  # narrow types are reached from float32
        for name in ("mean", "std"):  # what is kept elsewhere would be kept as it is while a graph is captured
            per_channel = torch.tensor(getattr(self.preprocess, name), dtype=work, device=device)
            self.register_buffer(name, per_channel[:, None, None])
        self.register_buffer("point", None if model.head_alone else model.point.to(device=device, dtype=self.dtype))

    def of_pixels(self, pixels: Tensor) -> Tensor:
        """`forward` of uint8 views (B, 3, s, s), in the type that the module has now: `.to(…)` may have changed it."""
        work = torch.promote_types(self.mean.dtype, torch.float32)
        return self(standardize(pixels, self.mean.to(work), self.std.to(work)).to(self.head.dtype))

    def forward(self, x: Tensor) -> Tensor:
        z, dz = self.network(self.prefix(x))
        f = self.constant + with_one(z) @ self.head.T
        return f if self.point is None else f + dz @ self.point.T


class _Values(nn.Module):
    """Of two streams the first."""

    def __init__(self, streams: TwoStreams):
        super().__init__()
        self.streams = streams

    def forward(self, x: Tensor) -> Tensor:
        return self.streams(x)[0]


def _fixed(whole: Tensor, preprocess: Preprocess, view: int) -> Tensor:
    """A view that lies in every picture at the same place, (B, 3, s, s)."""
    top, left, mirrored = preprocess.window(view)
    part = whole[:, :, top : top + preprocess.size, left : left + preprocess.size]
    return part.flip(-1) if mirrored else part


def _drawn_views(whole: Tensor, preprocess: Preprocess, windows: Tensor) -> Tensor:
    """Views with windows (B, D, 5) of their own, (D·B, 3, s, s), view after view."""
    boxes = windows.transpose(0, 1).flatten(0, 1)
    pictures = whole.expand(windows.shape[1], *whole.shape).flatten(0, 1)
    drawn = Windows(boxes[:, :4], boxes[:, 4] > 0)
    return resample_together(pictures, drawn, preprocess.size, preprocess.interpolation)


def _by_iteration(body: nn.Module) -> nn.Module:
    """Roots by products of matrices: other programs have no eigenvectors."""
    for module in body.modules():
        if isinstance(module, BilinearPool):
            module.newton = True
    return body


def _drawn(preprocess: Preprocess) -> list[Drawn]:
    return [_place(preprocess, view) for view in range(preprocess.n_views) if preprocess.drawn(view)]


def _place(preprocess: Preprocess, view: int) -> Drawn:
    return preprocess.stored, preprocess.drawn_area, preprocess.drawn_ratio, view


def as_module(model: Model, device: torch.device | str = "cpu") -> ExportedModel:
    """The model as an ordinary network in eval mode, whose weights want no gradients."""
    return ExportedModel(model, device).eval().requires_grad_(False)
