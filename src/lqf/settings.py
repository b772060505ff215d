"""All choices of a fit: name, default, help, allowed values and checks of each, written once.

`LQFClassifier` takes them as arguments, `lqf fit` as options (`lqf.cli.options` reads the fields' metadata).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, asdict, dataclass, field, fields
from numbers import Integral, Real
from textwrap import fill
from typing import Any

from lqf.errors import LQFError


@dataclass(frozen=True)
class Rule:
    """What values a setting may have, and the sentence for those it may not."""

    allows: Callable[[Any], bool]
    sentence: str


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_whole(value) and value > 0


def _is_positive(value: Any) -> bool:
    return isinstance(value, Real) and value is not True and 0 < float(value) < float("inf")


POSITIVE = Rule(_is_positive, "it must be a positive number")
POSITIVE_OR_NONE = Rule(lambda v: v is None or _is_positive(v), "it must be a positive number, or None")
DECAY = Rule(lambda v: _is_positive(v) or (isinstance(v, str) and v == "auto"), "give `auto` or a positive number")
COUNT = Rule(_is_count, "it must be a whole number, 1 or more")
COUNT_OR_NONE = Rule(lambda v: v is None or _is_count(v), "it must be a whole number, 1 or more, or None")
NOT_NEGATIVE = Rule(lambda v: _is_whole(v) and v >= 0, "it must be a whole number, 0 or more")
WHOLE = Rule(_is_whole, "it must be a whole number")
SWITCH = Rule(lambda v: isinstance(v, bool), "it must be True or False")


def setting(
    default: Any,
    help: str,
    *,
    group: str | None = None,
    choices: tuple[str, ...] = (),
    rule: Rule | None = None,
    metavar: str = "N",
) -> Any:
    """A field with all that is known about it.

    Args:
        default: of the argument and of the option.
        help: what it does, in words that suit both.
        group: of options in `lqf fit --help`; None: for Python alone.
        choices: allowed values.
        rule: other checks.
        metavar: of the option's value.
    """
    known = {"help": help, "group": group, "choices": choices, "rule": rule, "metavar": metavar}
    return field(default=default, metadata=known)


IMAGES, PROBLEM, SOLVING = "images", "network and problem", "solving"
"""Groups of options."""


@dataclass(frozen=True)
class Setup:
    """The network and how images are opened for it: what is settled before there is a problem to solve."""

    backbone: Any = setting(
        "efficientnet_lite0",
        "the network: a name that `lqf backbones` lists, timm:NAME, torchvision:NAME; in Python also any nn.Module "
        "that ends in a linear layer",
        group=PROBLEM,
        metavar="NAME",
    )
    weights: Any = setting(
        None, "its weights file, or `random`; default: the published ones", group=PROBLEM, metavar="FILE"
    )
    leaky: bool = setting(True, "replace ReLU by leaky ReLU", group=PROBLEM)
    size: int | None = setting(
        None, "side of the network's input in pixels; default: the backbone's", group=IMAGES, metavar="PX"
    )
    squash: bool = setting(
        False, "resize to a square, as the paper does, instead of cutting the middle out", group=IMAGES
    )
    device: str = setting("auto", "auto (a GPU if there is one), cpu, cuda, cuda:1, …", group=SOLVING, metavar="NAME")
    strict: bool = setting(False, "refuse images that cannot be read, instead of skipping them", group=IMAGES)
    limit_per_class: int | None = setting(
        None, "use at most so many images of every class, chosen by the seed", group=IMAGES, metavar="K"
    )

    def to_dict(self) -> dict[str, Any]:
        """JSON values; a network given as an object is named."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}


@dataclass(frozen=True)
class Settings:
    """What is solved, and how."""

    solver: str = setting(
        "auto",
        "auto: dense where it is affordable, else pcg; head: the last layer alone; sgd, adam: the paper's mini-batches",
        group=SOLVING,
        choices=("auto", "head", "dense", "pcg", "sgd", "adam"),
    )
    views: str = setting(
        "auto",
        "fixed views of every image, in training and in predictions: its centre, that and its mirror image, crops, "
        "random resized crops; auto: the mirror image where leave-one-out gains by it",
        group=IMAGES,
        choices=("auto", "none", "flip", "five", "ten", "resized"),
    )
    pooling: str = setting(
        "auto",
        "mean of the last feature map, or root of its covariance; auto: by leave-one-out",
        group=PROBLEM,
        choices=("auto", "avg", "bilinear"),
    )
    pool_channels: int = setting(
        256, "principal channels of bilinear pooling; k make k(k+1)/2 features", group=PROBLEM, rule=COUNT
    )
    linearize_reduction: bool = setting(
        False, "let the reduction to these channels change with the network", group=PROBLEM, rule=SWITCH
    )
    weight_decay: float | str = setting(
        "auto", "λ = μ/N of the head, or auto: by leave-one-out", group=PROBLEM, rule=DECAY, metavar="λ"
    )
    body_weight_decay: float | str = setting(
        "auto", "the same of all other weights", group=PROBLEM, rule=DECAY, metavar="λ"
    )
    head: str = setting(
        "crossfit",
        "the head at the linearisation point",
        group=PROBLEM,
        choices=("crossfit", "probe", "random", "heavy", "means", "several"),
    )
    form: str = setting(
        "centred",
        "penalise the head around zero, with a weight decay of its own, or, as the paper, all weights around w0",
        group=PROBLEM,
        choices=("centred", "w0"),
    )
    linearize: str = setting("all", "first stage whose weights may change", group=PROBLEM, metavar="STAGE")
    relinearize: int = setting(
        0,
        "how many times to move the network to its solution, linearise it there and solve again",
        group=PROBLEM,
        rule=NOT_NEGATIVE,
    )
    finetune_first: int = setting(
        0, "epochs of ordinary fine-tuning before the network is linearised", group=PROBLEM, rule=NOT_NEGATIVE
    )
    alpha: float = setting(15.0, "scale of the one-hot targets", rule=POSITIVE)
    augment: str = setting("none", "random views, for sgd and adam", group=SOLVING, choices=("none", "crop", "resized"))
    preconditioner: str = setting("kfac", "of pcg; none is for comparison", group=SOLVING, choices=("kfac", "none"))
    loo: str = setting(
        "auto",
        "the error on unseen data where it is not exact: by refits without each fold, roughly by a kernel, or not at "
        "all; auto: folds with pcg, kernel with sgd and adam",
        group=SOLVING,
        choices=("auto", "folds", "kernel", "none"),
    )
    tol: float = setting(2e-2, "relative residual at which pcg stops", group=SOLVING, rule=POSITIVE)
    max_passes: int = setting(40, "products after which pcg gives up", group=SOLVING, rule=COUNT)
    epochs: int = setting(30, "of sgd and adam", group=SOLVING, rule=COUNT)
    learning_rate: float | None = setting(
        None,
        "of sgd, adam and the fine-tuning that comes first; default: their own",
        group=SOLVING,
        rule=POSITIVE_OR_NONE,
        metavar="η",
    )
    minibatch: int = setting(
        28, "images per step of sgd, adam and the fine-tuning that comes first", group=SOLVING, rule=COUNT
    )
    draws: int | None = setting(
        4, "random output draws per sample for K-FAC; None: every output exactly", rule=COUNT_OR_NONE
    )
    batch_size: int | None = setting(
        None, "images per batch of a pass; changes memory and time only", group=SOLVING, rule=COUNT_OR_NONE
    )
    dtype: str = setting(
        "float32", "floating-point type of everything that is reported", choices=("float32", "float64")
    )
    precision: str = setting(
        "auto",
        "of the products inside pcg, never of what is reported; auto: float16 on a GPU",
        group=SOLVING,
        choices=("auto", "float32", "tf32", "float16", "bfloat16"),
    )
    compile: str = setting(
        "auto",
        "compile those products; auto: on a GPU, where it saves time",
        group=SOLVING,
        choices=("auto", "on", "off"),
    )
    seed: int = setting(0, "of every random choice", group=SOLVING, rule=WHOLE)

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if hasattr(value, "item"):  # a search over settings gives numpy's numbers, which JSON lacks
                object.__setattr__(self, f.name, value.item())
            _check(f, getattr(self, f.name))
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

    @property
    def torch_dtype(self) -> Any:
        """The floating-point type itself; torch is imported when it is asked for."""
        import torch

        return torch.float64 if self.dtype == "float64" else torch.float32

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def _check(f: Field[Any], value: Any) -> None:
    choices, rule = f.metadata["choices"], f.metadata["rule"]
    if choices and value not in choices:
        raise LQFError(f"{f.name} is {value!r}; choose one of {', '.join(choices)}")
    if rule is not None and not rule.allows(value):
        raise LQFError(f"{f.name} is {value!r}; {rule.sentence}")


def _plain(value: Any) -> Any:
    """A value as JSON; what JSON lacks as text."""
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def described(*of: type, indent: str = " " * 8) -> str:
    """One paragraph per setting, as the arguments of a docstring."""
    known = [(f.name, f.metadata["help"].rstrip("….")) for cls in of for f in fields(cls)]
    return "\n".join(
        fill(f"{name}: {text}.", 120, initial_indent=indent, subsequent_indent=indent + " " * 4) for name, text in known
    )
