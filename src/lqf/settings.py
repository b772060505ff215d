"""All choices of a fit, with their defaults and checks, in one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any

from lqf.errors import LQFError

CHOICES: dict[str, tuple[str, ...]] = {
    "solver": ("auto", "head", "dense", "pcg", "sgd", "adam"),
    "views": ("auto", "none", "flip", "five", "ten", "resized"),
    "pooling": ("auto", "avg", "bilinear"),
    "head": ("crossfit", "probe", "random", "heavy", "means", "several"),
    "form": ("centred", "w0"),
    "augment": ("none", "crop", "resized"),
    "preconditioner": ("kfac", "none"),
    "dtype": ("float32", "float64"),
    "loo": ("auto", "folds", "kernel", "none"),
    "precision": ("auto", "float32", "tf32", "float16", "bfloat16"),
    "compile": ("auto", "on", "off"),
}


@dataclass(frozen=True)
class Settings:
    """What a fit may be told; everything has a default.

    Attributes:
        solver: "auto" lets the planner choose between "dense" and "pcg"; "head" trains the last layer only; "sgd" and
            "adam" are the paper's mini-batch modes.
        views: the fixed views of every image, in training and in predictions: "none", its centre; "flip", that and its
            mirror image; "five" and "ten" crops; "resized", centre, mirror image and two random resized crops, always
            the same ones of the same image; "auto" keeps the mirror image where leave-one-out says that it helps
            (`lqf.fitting.select_views`).
        pooling: how the last feature map becomes features: "avg", its mean; "bilinear", the root of its covariance
            (`lqf.backbones.bilinear_pool`); "auto" tries both with the closed-form head and keeps the better one by
            leave-one-out. Networks that do not end in an average keep their own pooling.
        pool_channels: to so many principal channels bilinear pooling reduces the map; k make k(k+1)/2 features.
        linearize_reduction: whether that reduction changes with the network's weights, or stays.
        weight_decay: λ = μ/N of the head (and of the body, where it has none of its own), or "auto": by leave-one-out.
        body_weight_decay: λ of the body, or "auto".
        head: the head at the linearisation point (see `lqf.fitting.point`).
        form: "centred" penalises the head around zero, with two ridge strengths; "w0" is the single λ around w0.
        linearize: "all", or the first stage of the backbone whose weights may change.
        relinearize: how many times the network is moved to its solution, w0 + δ, and linearised and solved again there.
        finetune_first: epochs of ordinary fine-tuning before the network is linearised.
        alpha: scale of the one-hot targets.
        augment: random augmentation, for "sgd" and "adam".
        preconditioner: of "pcg"; "none" is for comparison.
        loo: the error on unseen data, where the kernel does not give it exactly: "folds" refits without each fold,
            "kernel" is a quick and rough estimate; "auto": "folds" beside "pcg", "kernel" beside "sgd" and "adam".
            "none" leaves it out.
        tol: relative residual at which PCG stops.
        max_passes: products with H after which PCG gives up, true residuals included.
        epochs: of "sgd" and "adam".
        learning_rate: of "sgd", "adam" and ``finetune_first``; None: their own.
        minibatch: of "sgd", "adam" and ``finetune_first``.
        draws: random output draws per sample for K-FAC; None: every output exactly.
        batch_size: rows per batch of a pass; None: by device.
        dtype: floating-point type of everything that is reported.
        precision: of the products inside PCG; "auto": float16 on a GPU, ``dtype`` on a CPU.
        compile: compile those products: "auto": on a GPU, where it saves more time than it takes.
        seed: of every random choice.
    """

    solver: str = "auto"
    views: str = "auto"
    pooling: str = "auto"
    pool_channels: int = 256
    linearize_reduction: bool = False
    weight_decay: float | str = "auto"
    body_weight_decay: float | str = "auto"
    head: str = "crossfit"
    form: str = "centred"
    linearize: str = "all"
    relinearize: int = 0
    finetune_first: int = 0
    alpha: float = 15.0
    augment: str = "none"
    preconditioner: str = "kfac"
    loo: str = "auto"
    tol: float = 2e-2
    max_passes: int = 40
    epochs: int = 30
    learning_rate: float | None = None
    minibatch: int = 28
    draws: int | None = 4
    batch_size: int | None = None
    dtype: str = "float32"
    precision: str = "auto"
    compile: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if hasattr(value, "item"):  # a search over settings gives numpy's numbers, which are no JSON
                object.__setattr__(self, name, value.item())
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise LQFError(f"{name} is {getattr(self, name)!r}; choose one of {', '.join(allowed)}")
        for names, is_good, rule in _RULES:
            for name in names:
                if not is_good(getattr(self, name)):
                    raise LQFError(f"{name} is {getattr(self, name)!r}; {rule}")
        if self.augment != "none" and self.solver not in ("sgd", "adam"):
            raise LQFError(
                f"augment {self.augment!r} draws new images in every epoch and needs solver `sgd` or `adam`; "
                "the other solvers take a fixed set of `views`"
            )
        if self.moves and self.solver == "head":
            raise LQFError(
                "relinearize and finetune_first move the network, and solver `head` leaves it as it is; "
                "use `auto`, `dense` or `pcg`"
            )

    @property
    def moves(self) -> bool:
        """Whether the network is linearised at weights that have seen the labels."""
        return self.relinearize > 0 or self.finetune_first > 0

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_whole(value) and value > 0


def _is_positive(value: Any) -> bool:
    return isinstance(value, Real) and value is not True and 0 < float(value) < float("inf")


_RULES: tuple[tuple[tuple[str, ...], Callable[[Any], bool], str], ...] = (
    (
        ("weight_decay", "body_weight_decay"),
        lambda v: _is_positive(v) or (isinstance(v, str) and v == "auto"),
        "give `auto` or a positive number",
    ),
    (("alpha", "tol"), _is_positive, "it must be a positive number"),
    (("learning_rate",), lambda v: v is None or _is_positive(v), "it must be a positive number, or None"),
    (("epochs", "minibatch", "max_passes", "pool_channels"), _is_count, "it must be a whole number, 1 or more"),
    (("draws", "batch_size"), lambda v: v is None or _is_count(v), "it must be a whole number, 1 or more, or None"),
    (("relinearize", "finetune_first"), lambda v: _is_whole(v) and v >= 0, "it must be a whole number, 0 or more"),
    (("seed",), _is_whole, "it must be a whole number"),
    (("linearize_reduction",), lambda v: isinstance(v, bool), "it must be True or False"),
)
