"""Constraints on a model's outputs, as values: what a user writes, and the linear rows that it stands for.

All of them are in the units of `decision_function`: one output per class, or with two classes the one of the second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from lqf.data import Images
from lqf.errors import LQFError
from lqf.fitting import Model
from lqf.linear.targets import class_scores, decide
from lqf.utils.text import counted, listed, shortened


@dataclass(frozen=True)
class Rows:
    """lower ≤ U f ≤ upper on the outputs f (N·C,) of some images.

    Attributes:
        images: N of them.
        weights: (m, N·C) U, sparse.
        lower, upper: (m,).
        name: of a row, for a sentence.
    """

    images: Images
    weights: Tensor
    lower: Tensor
    upper: Tensor
    name: Callable[[int], str]


class Opening(Protocol):
    """What constraints see of the model that is to be changed."""

    @property
    def model(self) -> Model:
        """As it was fitted."""
        ...

    def training(self) -> Images:
        """Its training images."""
        ...

    def open(self, X: Any, y: Any = None, *, labelled: bool = False) -> Images:
        """Other images."""
        ...

    def outputs_of(self, old: Any, images: Images) -> tuple[Model, Tensor]:
        """Another model and its outputs of the same images."""
        ...


class Constraint(Protocol):
    """A condition on a model's outputs."""

    def __str__(self) -> str: ...

    def rows(self, opening: Opening) -> Rows:
        """The linear rows that it stands for."""
        ...


@dataclass(frozen=True, eq=False)
class EqualMeans:
    """Every group of images has the same mean output, for every class: group means differ by at most ``tolerance``.

    Attributes:
        groups: (N,) name of the group of every image, or a mapping from the images' ids.
        images: the images, as `predict` takes them; None: the training images.
        tolerance: 0: equal.
    """

    groups: Sequence[Any] | Mapping[str, Any]
    images: Any = None
    tolerance: float = 0.0

    def __str__(self) -> str:
        return f"equal mean outputs of the groups {listed(self._names(), 4)}{_within(self.tolerance)}"

    def _names(self) -> list[str]:
        every = self.groups.values() if isinstance(self.groups, Mapping) else self.groups
        return sorted({str(g) for g in every})

    def _of(self, images: Images) -> list[str]:
        """The group of every image."""
        ids = images.samples.ids
        if not isinstance(self.groups, Mapping):
            if len(self.groups) != len(ids):
                given, n = counted(len(self.groups), "group name"), counted(len(ids), "image")
                raise LQFError(f"equal means need the group of every image: {given} for {n}")
            return [str(g) for g in self.groups]
        missing = [name for name in ids if name not in self.groups]
        if missing:
            raise LQFError(f"equal means need the group of every image: the group of {listed(missing, 3)} is not given")
        return [str(self.groups[name]) for name in ids]

    def rows(self, opening: Opening) -> Rows:
        """A difference of two groups' means for every output: to the first group, or of all pairs with a tolerance."""
        _not_negative("tolerance", self.tolerance)
        images = opening.training() if self.images is None else opening.open(self.images)
        of, c = self._of(images), outputs_per_image(opening.model)
        names = sorted(set(of))
        if len(names) < 2:
            raise LQFError(f"equal means need two groups or more; all images are in `{names[0]}`")
        member = np.array([names.index(g) for g in of])
        means = torch.tensor(np.eye(len(names))[member] / np.bincount(member)).T  # (G, N)
        every = [(i, j) for i in range(len(names)) for j in range(i)]
        pairs = [(i, j) for i, j in every if j == 0] if self.tolerance == 0 else every
        differences = torch.stack([means[i] - means[j] for i, j in pairs])
        weights = torch.kron(differences, torch.eye(c, dtype=torch.float64)).to_sparse()
        bound = torch.full((len(weights),), float(self.tolerance), dtype=torch.float64)

        def name(k: int) -> str:
            i, j = pairs[k // c]
            within = _within(self.tolerance)
            return f"mean {output_name(opening.model, k % c)} equal in `{names[j]}` and `{names[i]}`{within}"

        return Rows(images, weights, -bound, bound, name)


@dataclass(frozen=True, eq=False)
class Agree:
    """The outputs of some images are those of an older model, up to ``tolerance``.

    Attributes:
        old: `LQFClassifier`, or the folder of a saved model.
        images: as `predict` takes them.
        tolerance: 0: equal.
    """

    old: Any
    images: Any
    tolerance: float = 0.0

    def __str__(self) -> str:
        return f"outputs of an older model on given images{_within(self.tolerance)}"

    def rows(self, opening: Opening) -> Rows:
        """One for every output of every image."""
        _not_negative("tolerance", self.tolerance)
        images = opening.open(self.images)
        wanted = outputs_like(opening.model, *opening.outputs_of(self.old, images))
        n, c = wanted.shape
        at = _Entries()
        for k in range(n * c):
            at.row([(k, 1.0)])
        ids = images.samples.ids

        def name(k: int) -> str:
            of, within = output_name(opening.model, k % c), _within(self.tolerance)
            return f"{of} of `{ids[k // c]}` as in the older model{within}"

        flat = wanted.flatten()
        return Rows(images, at.matrix(n * c), flat - self.tolerance, flat + self.tolerance, name)


@dataclass(frozen=True, eq=False)
class KeepRight:
    """Images that an older model gets right stay right: their class is ahead of every other one by ``margin``.

    Attributes:
        old: `LQFClassifier`, or the folder of a saved model.
        images: labelled images, as `fit` takes them.
        y: their labels, where the images have none.
        margin: at least 0.
    """

    old: Any
    images: Any
    y: Any = None
    margin: float = 0.1

    def __str__(self) -> str:
        return f"what an older model gets right stays right, by a margin of {self.margin:g}"

    def rows(self, opening: Opening) -> Rows:
        """One for every other class of every such image."""
        _not_negative("margin", self.margin)
        images = opening.open(self.images, self.y, labelled=True)
        model, labels = opening.model, torch.tensor(images.samples.labels)
        old = outputs_like(model, *opening.outputs_of(self.old, images))
        kept = (decide(old) == labels).nonzero()[:, 0].tolist()
        if not kept:
            raise LQFError(
                "the older model gets none of these images right, so there is nothing to keep; give images that it "
                "knows, or leave the constraint out"
            )
        c, ids = outputs_per_image(model), images.samples.ids
        at, named = _Entries(), []
        for i in kept:
            own = int(labels[i])
            if c == 1:
                at.row([(i, 2.0 if own else -2.0)])
                named.append((i, 1 - own))
                continue
            for other in range(c):
                if other != own:
                    at.row([(i * c + own, 1.0), (i * c + other, -1.0)])
                    named.append((i, other))
        weights = at.matrix(len(images) * c)
        lower = torch.full((len(named),), float(self.margin), dtype=torch.float64)

        def name(k: int) -> str:
            i, other = named[k]
            own = model.classes[int(labels[i])]
            return f"`{own}` ahead of `{model.classes[other]}` for `{ids[i]}`"

        return Rows(images, weights, lower, torch.full_like(lower, torch.inf), name)


@dataclass(frozen=True, eq=False)
class Bound:
    """Outputs of some images, or their mean, lie between two bounds.

    Attributes:
        lower, upper: None: there is none.
        of: name of a class, whose output it is; None: every output. With two classes the first one's is −f.
        images: as `predict` takes them; None: the training images.
        mean: whether it is the mean over the images that is bounded.
    """

    lower: float | None = None
    upper: float | None = None
    of: Any = None
    images: Any = None
    mean: bool = False

    def __str__(self) -> str:
        what = ("the mean output" if self.mean else "outputs") + ("" if self.of is None else f" of `{self.of}`")
        return f"{what} {self._range()}"

    def _range(self) -> str:
        if self.lower is not None and self.lower == self.upper:
            return f"equal to {self.lower:g}"
        sides = [f"at least {self.lower:g}"] if self.lower is not None else []
        return " and ".join([*sides, *([f"at most {self.upper:g}"] if self.upper is not None else [])])

    def rows(self, opening: Opening) -> Rows:
        """One for every image, or one in all, for each of the outputs."""
        if self.lower is None and self.upper is None:
            raise LQFError("a bound has no limits; give lower=, upper=, or both")
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise LQFError(f"no output is {self._range()}; give lower below upper")
        images = opening.training() if self.images is None else opening.open(self.images)
        n, c, model = len(images), outputs_per_image(opening.model), opening.model
        outputs, sign = _outputs(model, self.of)
        at = _Entries()
        for k in outputs:
            for i in range(1 if self.mean else n):
                at.row([(j * c + k, sign / n) for j in range(n)] if self.mean else [(i * c + k, sign)])
        m = len(outputs) * (1 if self.mean else n)
        lower, upper = (
            torch.full((m,), float(none if bound is None else bound), dtype=torch.float64)
            for bound, none in ((self.lower, -torch.inf), (self.upper, torch.inf))
        )
        ids = images.samples.ids

        def name(row: int) -> str:
            k, i = divmod(row, m // len(outputs))
            of = output_name(model, outputs[k]) if sign > 0 else f"output of `{self.of}`"
            return f"mean {of} {self._range()}" if self.mean else f"{of} of `{ids[i]}` {self._range()}"

        return Rows(images, at.matrix(n * c), lower, upper, name)


def outputs_per_image(model: Model) -> int:
    """C."""
    return 1 if len(model.classes) == 2 else len(model.classes)


def output_name(model: Model, k: int) -> str:
    """For a sentence."""
    return f"output of `{shortened(model.classes[1 if len(model.classes) == 2 else k], 30)}`"


def outputs_like(model: Model, old: Model, outputs: Tensor) -> Tensor:
    """Outputs (N, C) of another model as ``model`` would give them: its order of the classes, its scale."""
    if set(old.classes) != set(model.classes):
        theirs, own = (listed(m.classes, 4) for m in (old, model))
        raise LQFError(f"the older model has the classes {theirs} and this one has {own}; they have to be the same")
    ratio = model.alpha / old.alpha
    if len(model.classes) == 2:
        return outputs.double() * (ratio if old.classes == model.classes else -ratio)
    order = [old.classes.index(name) for name in model.classes]
    return class_scores(outputs, old.alpha).double()[:, order] * ratio


class _Entries:
    """Of a sparse matrix, row by row."""

    def __init__(self) -> None:
        self.where: list[tuple[int, int]] = []
        self.what: list[float] = []
        self.rows = 0

    def row(self, entries: list[tuple[int, float]]) -> None:
        self.where += [(self.rows, column) for column, _ in entries]
        self.what += [value for _, value in entries]
        self.rows += 1

    def matrix(self, columns: int) -> Tensor:
        where = torch.tensor(self.where, dtype=torch.long).T
        values = torch.tensor(self.what, dtype=torch.float64)
        return torch.sparse_coo_tensor(where, values, (self.rows, columns), check_invariants=False).coalesce()


def _outputs(model: Model, of: Any) -> tuple[list[int], float]:
    """Numbers of the outputs of a class, and their sign."""
    if of is None:
        return list(range(outputs_per_image(model))), 1.0
    if str(of) not in model.classes:
        raise LQFError(f"the model has no class `{of}`; it has {listed(model.classes, 6)}")
    k = model.classes.index(str(of))
    return ([0], 1.0 if k else -1.0) if len(model.classes) == 2 else ([k], 1.0)


def _within(tolerance: float) -> str:
    return f", within {tolerance:g}" if tolerance else ""


def _not_negative(name: str, value: float) -> None:
    if not 0 <= value < float("inf"):
        raise LQFError(f"{name} is {value!r}; give a number from 0 up")
