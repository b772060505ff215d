"""`Analysis`: a fitted problem opened again, and the questions it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lqf.analysis.by_iteration import ByIteration
from lqf.analysis.by_kernel import ByKernel
from lqf.analysis.by_kfac import ByKFAC
from lqf.analysis.by_stack import ByStack
from lqf.analysis.contrast import Contrast, classes_of, weights_of
from lqf.analysis.counterfactual import Change, sample_numbers
from lqf.analysis.curve import Curve, drop_curve
from lqf.analysis.elimination import STEPS
from lqf.analysis.influence import Influence
from lqf.analysis.information import Information
from lqf.analysis.method import Method
from lqf.analysis.queries import Queries
from lqf.analysis.similarity import Similarity, centred_cosines
from lqf.analysis.unchanging import Unchanging
from lqf.analysis.units import Units
from lqf.analysis.what_if import WhatIf
from lqf.data import Images, has_labels, load_samples, load_unlabelled, open_images, with_views
from lqf.data.labels import class_array
from lqf.errors import LQFError
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import Context, FittedModel, Model, Stack, TrainingProblem
from lqf.fitting.reopen import reopen
from lqf.runtime.device import computing
from lqf.utils.exactness import Level

METHODS = ("auto", "dense", "pcg", "kfac")


@dataclass(eq=False)
class Analysis:
    """A fitted model's training problem, opened again; made by `LQFClassifier.analyse`.

    Everything it says holds for the problem with its linearisation point fixed: samples leave the quadratic problem,
    while the heads around which the body was linearised stay as they were.

    Attributes:
        model: fitted.
        problem: its training problem.
        method: how it is solved.
    """

    model: Model
    problem: TrainingProblem
    method: Method

    def __repr__(self) -> str:
        return f"Analysis({self.model.what}; {self.units.counted}; {self.level})"

    @classmethod
    def of(cls, model: Model, images: Images, context: Context, method: str = "auto") -> Analysis:
        """Open the problem of a fitted model over its training images again.

        Args:
            model: fitted.
            images: its training images.
            context: device, progress and rows per batch; what was solved is the model's own business.
            method: one of `METHODS`.
        """
        if method not in METHODS:
            raise LQFError(f"method is {method!r}; choose one of {', '.join(METHODS)}")
        if isinstance(model, Stack):
            return cls._of_stack(model, images, context, method)
        problem = reopen(model, images, context)
        return cls(model, problem, _method(model, problem, method))

    @classmethod
    def _of_stack(cls, stack: Stack, images: Images, context: Context, method: str) -> Analysis:
        """Every member's problem; that of the largest one that has one stands for the training data."""
        opened = {
            k: cls.of(m, with_views(images, m.trained_on), context, method)
            for k, m in enumerate(stack.members)
            if m.solved or m is stack.answering
        }
        problem = opened[stack.members.index(stack.answering)].problem
        methods = [opened[k].method if k in opened else Unchanging(m, problem) for k, m in enumerate(stack.members)]
        return cls(stack, problem, ByStack.of(stack, tuple(methods)))

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.problem.context.device

    # --- the training data --------------------------------------------------------------------------------------------

    @property
    def ids(self) -> tuple[str, ...]:
        """(N,) ids of the training samples."""
        return self.model.train.ids

    @property
    def images(self) -> Images:
        """The training images, in the order of their ids."""
        return self.problem.data.images

    @property
    def labels(self) -> Tensor:
        """(N,) numbers of their classes."""
        return self.problem.data.labels

    @property
    def weights(self) -> Tensor:
        """(N,) their weights."""
        return torch.tensor(self.model.train.weights)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.model.classes

    @property
    def units(self) -> Units:
        """Who leaves together: groups where there are any, else samples."""
        return Units.of(self.ids, self.model.train.groups)

    @property
    def level(self) -> Level:
        """How exact the answers are."""
        return self.method.level

    @property
    def note(self) -> str:
        """What stands behind the level."""
        return self.method.note

    # --- the questions ------------------------------------------------------------------------------------------------

    @computing
    def queries(self, images: Any, y: Any = None) -> Queries:
        """Open images once for several questions; labels come from a folder of classes, a manifest, or ``y``."""
        if isinstance(images, Queries):
            return images
        samples = self._labelled(images, y)
        progress = self.problem.context.progress
        return Queries.of(open_images(samples, self.model.preprocess, strict=True, progress=progress))

    @computing
    def leave_one_out(self, samples: Iterable[str | int] | None = None) -> LeaveOneOut:
        """Out-of-sample outputs of all training samples, or of some, in the order given.

        With PCG, some are solved (refitted without them), all are estimated.
        """
        chosen = None if samples is None else torch.tensor(sample_numbers(samples, self.ids))
        answer = self.method.out_of_sample(self.units, chosen)
        labels, weights = self.labels, self.weights
        if chosen is not None:
            labels, weights = labels[chosen], weights[chosen]
        by = self.model.settings.choose_by
        return LeaveOneOut(answer.value, answer.level, answer.note, labels=labels, weights=weights, choose_by=by)

    @computing
    def known_leave_one_out(self) -> LeaveOneOut:
        """The fit's own, where it knows the outputs of all samples; else `leave_one_out`."""
        stored = self.model.loo
        return stored if stored is not None and bool(stored.known.all()) else self.leave_one_out()

    @computing
    def influence(self, images: Any, y: Any = None, *, units: Iterable[str | int] | None = None) -> Influence:
        """Signed effect of leaving out every unit (or some) on every output of every image."""
        queries, every = self.queries(images, y), self.units
        chosen = None if units is None else torch.tensor(sample_numbers(units, every.names, "unit"))
        answer = self.method.effects(queries, every, chosen)
        return Influence(
            answer.value,
            answer.level,
            answer.note,
            outputs=self.method.outputs(queries),
            units=every if chosen is None else every.some(chosen),
            query_ids=queries.ids,
            labels=queries.labels,
            classes=self.classes,
            alpha=self.model.alpha,
            beta=self.model.beta,
        )

    @computing
    def contrast(self, images: Any, *, of: str | None = None, quick: bool = False) -> Contrast:
        """Effect of leaving out every unit on one score of every image: the predicted class against the runner-up.

        Args:
            images: the images, or `queries` made of them.
            of: the class to explain, against the best of the others; None: the predicted one.
            quick: estimated by at most three passes, where an exact answer takes more.
        """
        queries = self.queries(images)
        outputs = self.method.predictions(queries)
        first, second = classes_of(outputs, None if of is None else self._class(of))
        weights = weights_of(first, second, outputs.shape[1])
        answer = self.method.effects_on_sums(queries, weights, self.units, quick=quick)
        return Contrast(
            self.model.beta * answer.value,
            answer.level,
            answer.note,
            outputs=outputs,
            first=first,
            second=second,
            units=self.units,
            query_ids=queries.ids,
            labels=queries.labels,
            classes=self.classes,
            beta=self.model.beta,
        )

    def seconds(self, images: int, *, quick: bool) -> float:
        """That `contrast` of so many images will take, about; 0 where nobody has measured it."""
        return self.method.seconds(images, quick=quick)

    @computing
    def information(self, validation: Any = None, y: Any = None) -> Information:
        """Functional sample information of every unit on validation images; None: on the other training samples."""
        queries = None if validation is None else self.queries(validation, y)
        answer = self.method.information(queries, self.units)
        return Information(answer.value, answer.level, answer.note, answer.uncertainty, units=self.units)

    @computing
    def prepare(self, images: Queries) -> None:
        """Make what answers about `queries` share, once: a kernel makes changes of the training data quick."""
        self.method.prepare(images)

    @computing
    def what_if(
        self,
        images: Any,
        *,
        without: Iterable[str | int] = (),
        relabel: Mapping[Any, Any] | None = None,
        weights: Mapping[Any, float] | None = None,
    ) -> WhatIf:
        """Predictions had some samples been absent, labelled otherwise, or counted ``weights`` times.

        Args:
            images: the images to predict, or `queries` made of them.
            without: ids or numbers of samples to leave out (alone, whatever their group).
            relabel: id or number -> class.
            weights: id or number -> factor; 2 counts a sample twice.
        """
        change = Change.of(self.ids, self.classes, without, relabel, weights)
        queries = self.queries(images)
        before, after = self.method.predictions(queries), self.method.what_if(queries, change)
        return WhatIf(
            after.value,
            after.level,
            after.note,
            before=before,
            beta=self.model.beta,
            query_ids=queries.ids,
            classes=self.classes,
            samples=queries.images.samples,
        )

    @computing
    def changed_leave_one_out(
        self,
        *,
        without: Iterable[str | int] = (),
        relabel: Mapping[Any, Any] | None = None,
        weights: Mapping[Any, float] | None = None,
    ) -> LeaveOneOut:
        """Leave-one-out of the model that `what_if` speaks of; samples that are left out have no weight in it."""
        change = Change.of(self.ids, self.classes, without, relabel, weights)
        answer = self.method.changed_out_of_sample(self.units, change)
        return LeaveOneOut(
            answer.value,
            answer.level,
            answer.note,
            labels=change.relabelled(self.labels),
            weights=self.weights * change.factors(len(self.ids)),
            choose_by=self.model.settings.choose_by,
        )

    @computing
    def leaving(self, validation: Any = None, y: Any = None, *, most: bool = False, steps: int = STEPS) -> Tensor:
        """(U,) numbers of the units in the order in which a summary drops them: the least informative first.

        Information on the validation images (None: on the other training samples) is computed again after each of
        ``steps`` equal parts has left: what is uninformative depends on what else is there. ``most``: the most
        informative first. Exact from the kernel; with PCG estimated, by the kernel averaged over the outputs.
        """
        queries = None if validation is None else self.queries(validation, y)
        return self.method.leaving(queries, self.units, most=most, steps=steps)

    def keep(self, share: float, validation: Any = None, y: Any = None) -> Tensor:
        """Numbers of the samples to keep, ascending: those that leave last (`leaving`), until ``share`` of all samples.

        Ranked once, images that stand in for each other would go together: worse than a random half.
        """
        return self.units.last(self.leaving(validation, y).cpu(), share)

    @computing
    def curve(
        self,
        test: Any,
        y: Any = None,
        *,
        least: Tensor,
        most: Tensor,
        shares: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
        repeats: int = 5,
        seed: int = 0,
    ) -> Curve:
        """Test error after dropping units in the orders ``least`` and ``most`` (`leaving`) and at random, by refits."""
        queries = self.queries(test, y)
        return drop_curve(self.method, queries, self.units, least, most, shares, repeats=repeats, seed=seed)

    def similarity(self) -> Similarity:
        """Cosine similarity of all pairs of training samples under the kernel of their features."""
        matrix = centred_cosines(self.problem.features, self.problem.data.n_views)
        return Similarity(matrix, "exact", "by the features of the last layer, centred", ids=self.ids)

    def _class(self, name: str) -> int:
        if name not in self.classes:
            raise LQFError(f"there is no class `{name}`; the model knows {', '.join(self.classes)}")
        return self.classes.index(name)

    def _labelled(self, images: Any, y: Any) -> Any:
        """Samples with labels in the model's classes where the source has them, −1 where it has not."""
        setup = self.model.setup
        kind: dict[str, Any] = {"tensors": setup.tensors, "progress": self.problem.context.progress}
        if y is not None:
            return load_samples(images, y, classes=class_array(self.classes), **kind)
        if has_labels(images, self.classes):
            return load_samples(images, classes=self.classes, strict=setup.strict, **kind)
        return load_unlabelled(images, classes=self.classes, fitted=self.model.train.shape, **kind)


def _method(model: FittedModel, problem: TrainingProblem, method: str) -> Method:
    if model.head_alone or method == "dense" or (method == "auto" and model.report.solver == "dense"):
        return ByKernel.of(model, problem)
    if method == "kfac":
        return ByKFAC(model, problem)
    return ByIteration(model, problem)
