"""The test: the last model first, whatever it takes, then those on the way to it, as long as there is time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from lqf.data import Images, with_views
from lqf.demo import solar
from lqf.demo.clock import Clock
from lqf.demo.solar import Cell
from lqf.estimator import LQFClassifier
from lqf.fitting import Model, Stack
from lqf.linear.batch import usual_rows
from lqf.linear.targets import decide
from lqf.runtime.device import computing_on, resolve_device
from lqf.utils.progress import Progress
from lqf.utils.text import counted, rough_duration


class Test:
    """Outputs of models on the test cells, each computed once: those of a stack's members are the members' own."""

    def __init__(self, images: Images, device: torch.device, progress: Progress) -> None:
        self.images, self.device, self.progress = images, device, progress
        self.known: dict[str, Tensor] = {}

    def views(self, name: str, model: Model) -> int:
        """Views of an image that are still to be looked at."""
        if isinstance(model, Stack):
            return sum(self.views(n, m) for n, m in zip(model.names, model.members, strict=True))
        return 0 if name in self.known else model.preprocess.n_views

    def wrong(self, name: str, model: Model) -> np.ndarray:
        """Which cells a model gets wrong, (n_test,) bool."""
        with computing_on(self.device):
            return decide(self._outputs(name, model)).numpy() != self.images.samples.labels

    def _outputs(self, name: str, model: Model) -> Tensor:
        if isinstance(model, Stack):
            parts = zip(model.weights, model.names, model.members, strict=True)
            return torch.stack([w * self._outputs(n, m) for w, n, m in parts]).sum(0)
        if name not in self.known:
            seen, rows = with_views(self.images, model.preprocess), usual_rows(self.device)
            self.known[name] = model.outputs(seen, device=self.device, batch_size=rows, progress=self.progress)
        return self.known[name]


def wrong_cells(
    fitted: LQFClassifier,
    models: Mapping[str, Model],
    cells: Sequence[Cell],
    clock: Clock,
    until: float,
    progress: Progress,
) -> dict[str, np.ndarray]:
    """Which test cells each model gets wrong, (n_test,) bool, by name.

    Args:
        fitted: the estimator, which has the last model.
        models: those that were kept, the last one last.
        cells: that none has seen.
        clock: of the demo.
        until: seconds after which no other test than that of the last model is begun.
        progress: where to report.
    """
    progress.say(f"test: {counted(len(cells), 'cell')} that no model has seen")
    with clock.stage("read the test cells"):
        images = fitted.open(solar.samples(cells), strict=True, progress=progress)
    test, names = Test(images, resolve_device(fitted.device), progress), list(models)
    wrong: dict[str, np.ndarray] = {}
    pace = 0.0  # seconds of a view of all cells to the last model; no other takes longer
    for name in [names[-1], *names[:-1]]:
        views = test.views(name, models[name])
        if wrong and clock.total() + views * pace > until and views:
            progress.say(f"{name} is not tested: that would take about {rough_duration(views * pace)}")
            continue
        with clock.stage(f"test: {name}") as stage:
            wrong[name] = test.wrong(name, models[name])
        pace = pace or stage["seconds"] / views
    return wrong
