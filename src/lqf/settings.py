"""All choices of a fit, with their defaults and checks, in one place."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from lqf.errors import LQFError

CHOICES: dict[str, tuple[str, ...]] = {
    "solver": ("auto", "head", "dense", "pcg", "sgd", "adam"),
    "pooling": ("auto", "avg"),
    "head": ("crossfit", "probe", "random"),
    "form": ("centred", "w0"),
    "augment": ("none", "crop", "resized"),
    "preconditioner": ("kfac", "none"),
    "dtype": ("float32", "float64"),
}


@dataclass(frozen=True)
class Settings:
    """What a fit may be told; everything has a default.

    Attributes:
        solver: "auto" lets the planner choose between "dense" and "pcg"; "head" trains the last layer only; "sgd" and
            "adam" are the paper's mini-batch modes.
        pooling: how the last feature map becomes features. weight_decay: λ = μ/N of the head (and of the body, where
        it has none of its own), or "auto": by leave-one-out. body_weight_decay: λ of the body, or "auto". head: the
        head at the linearisation point (see `lqf.point`). form: "centred" penalises the head around zero, with two
        ridge strengths; "w0" is the paper's single λ around w0. linearize: "all", or the first stage of the backbone
        whose weights may change. alpha: scale of the one-hot targets. augment: random augmentation, for "sgd" and
        "adam". preconditioner: of "pcg"; "none" is for comparison. tol: relative residual at which PCG stops.
        max_passes: passes over the data after which PCG gives up. epochs, learning_rate, minibatch: of "sgd" and
        "adam"; None: the solver's own. draws: random output draws per sample for K-FAC; None: every output exactly.
        batch_size: rows per batch of a pass; None: by device. dtype: floating-point type of all passes. seed: of
        every random choice.
    """

    solver: str = "auto"
    pooling: str = "auto"
    weight_decay: float | str = "auto"
    body_weight_decay: float | str = "auto"
    head: str = "crossfit"
    form: str = "centred"
    linearize: str = "all"
    alpha: float = 15.0
    augment: str = "none"
    preconditioner: str = "kfac"
    tol: float = 2e-2
    max_passes: int = 40
    epochs: int = 30
    learning_rate: float | None = None
    minibatch: int = 28
    draws: int | None = 4
    batch_size: int | None = None
    dtype: str = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise LQFError(f"{name} is {getattr(self, name)!r}; choose one of {', '.join(allowed)}")
        for name in ("weight_decay", "body_weight_decay"):
            _check_decay(name, getattr(self, name))
        for name in ("alpha", "tol", "epochs", "minibatch", "max_passes"):
            if not getattr(self, name) > 0:
                raise LQFError(f"{name} is {getattr(self, name)!r}; it must be positive")
        if self.augment != "none" and self.solver not in ("sgd", "adam"):
            raise LQFError(
                f"augment {self.augment!r} draws new images in every epoch and needs solver `sgd` or `adam`; "
                "the other solvers take a fixed set of `views`"
            )

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def _check_decay(name: str, value: float | str) -> None:
    if value == "auto":
        return
    if isinstance(value, str | bool) or not 0 < float(value) < float("inf"):
        raise LQFError(f"{name} is {value!r}; give `auto` or a positive number")
