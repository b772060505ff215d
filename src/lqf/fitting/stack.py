"""Several fitted models whose outputs are added up: a stack is linear in all their weights, so that what holds for each
of them (influence, what-if, leave-one-out) is added up likewise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lqf.backbones import Backbone
from lqf.data import Images, Preprocess
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting.fitted_model import FittedModel, TrainingTable
from lqf.fitting.ready import ReadyStack
from lqf.fitting.report import FitReport
from lqf.settings import Settings, Setup
from lqf.utils.notebook import Shown
from lqf.utils.progress import SILENT, Progress
from lqf.utils.text import percent


@dataclass(frozen=True, eq=False)
class Stack(Shown):
    """f = Σ w_k f_k over its members, Σ w_k = 1.

    Attributes:
        members: fitted to the same samples.
        weights: w_k.
        names: of the members' rungs.
        shares: of each member in the outputs, by their size.
        beta: inverse temperature of the probabilities.
        train: the training samples.
        loo: out-of-sample outputs.
        report: what the fit did.
        settings, setup: by which it was fitted.
        tried: out-of-sample outputs (N, C) of every model that a climb has tried, by name.
    """

    members: tuple[FittedModel, ...]
    weights: tuple[float, ...]
    names: tuple[str, ...]
    shares: tuple[float, ...]
    beta: float
    train: TrainingTable
    loo: LeaveOneOut | None
    report: FitReport
    settings: Settings
    setup: Setup = field(default_factory=Setup)
    tried: Mapping[str, Tensor] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Stack({self.headline})"

    @property
    def what(self) -> str:
        """What it is: its members with their shares."""
        members = " + ".join(f"{name} {percent(w, 0)}" for name, w in zip(self.names, self.shares, strict=True))
        return f"{members} of {self.report.backbone.removeprefix('module:')}"

    @property
    def headline(self) -> str:
        """What it is, and its error."""
        return f"{self.what}; {self.report.headline}"

    @property
    def main(self) -> FittedModel:
        """The member with the largest share."""
        return self.members[max(range(len(self.members)), key=lambda k: self.shares[k])]

    @property
    def answering(self) -> FittedModel:
        """The largest member that answers questions about training samples; the main one where none does."""
        return answering(self.members, self.shares)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names."""
        return self.main.classes

    @property
    def alpha(self) -> float:
        """Scale of the targets."""
        return self.main.alpha

    @property
    def backbone(self) -> Backbone:
        """The main member's network."""
        return self.main.backbone

    @property
    def preprocess(self) -> Preprocess:
        """The main member's; others take their own views of the same images."""
        return self.main.preprocess

    @property
    def trained_on(self) -> Preprocess:
        """The main member's."""
        return self.main.trained_on

    @property
    def head_alone(self) -> bool:
        """Whether only last layers were trained."""
        return all(m.head_alone for m in self.members)

    def ready(self, device: torch.device, batch_size: int, images: int) -> ReadyStack:
        """For so many images, which come in parts."""
        return ReadyStack(self, device, batch_size, images)

    def outputs(self, images: Images, *, device: torch.device, batch_size: int, progress: Progress = SILENT) -> Tensor:
        """f of every image, (N, C), on the CPU."""
        return self.ready(device, batch_size, len(images)).outputs(images, progress)

    def features(self, images: Images, *, device: torch.device, batch_size: int, progress: Progress = SILENT) -> Tensor:
        """What the main member's head sees, (N, p)."""
        return self.main.features(images, device=device, batch_size=batch_size, progress=progress)


def answering(members: Sequence[FittedModel], shares: Sequence[float]) -> FittedModel:
    """The member with the largest share among those that answer questions about training samples, or among all."""
    solved = [k for k, m in enumerate(members) if m.solved] or range(len(members))
    return members[max(solved, key=lambda k: shares[k])]


def outputs_left_out(members: Sequence[FittedModel], weights: Sequence[float]) -> Tensor | None:
    """(N, C) Σ w_k of the members' leave-one-out outputs, float64; None where those of one are not known."""
    found = [m.loo.outputs.double() for m in members if m.loo is not None]
    if len(found) < len(members):
        return None
    return torch.stack([w * outputs for w, outputs in zip(weights, found, strict=True)]).sum(0)


Model = FittedModel | Stack
"""What a fit makes."""
