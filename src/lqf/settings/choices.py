"""All choices of a fit: name, default, help, allowed values and checks of each, written once.

`LQFClassifier` takes them as arguments, `lqf fit` as options (`lqf.cli.options` reads the fields' metadata).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Real
from typing import Any

from lqf.errors import LQFError
from lqf.settings.fields import check, plain, setting
from lqf.settings.rules import (
    CLASS_WEIGHTS,
    COUNT,
    COUNT_OR_NONE,
    DECAY,
    NOT_NEGATIVE,
    ONE_OR_MORE,
    POSITIVE,
    POSITIVE_OR_NONE,
    SEED,
    SHARE,
    SWITCH,
    TIME,
    VERBOSE,
    VIEWS,
)
from lqf.settings.views import check_shown
from lqf.utils import naming
from lqf.utils.text import clean, seconds_of


def _by_name(weights: Mapping[Any, Any]) -> dict[str, float]:
    """Class weights as JSON has them: the class 1 is the class `1`, also where numpy or pandas made it 1.0."""

    def name(key: Any) -> str:
        is_number = isinstance(key, Real) and not isinstance(key, bool)
        return str(int(key)) if is_number and float(key).is_integer() else clean(str(key))

    found = {name(key): float(weight) for key, weight in weights.items()}
    if len(found) < len(weights):
        raise LQFError(f"{naming.name('class_weight')} is {dict(weights)!r}; it names a class twice, name each once")
    return found


PICTURES, NORMALIZED = "pictures", "normalized"
"""What floating-point arrays and tensors hold: pixels, or a network's inputs."""
EFFORT, IMAGES, PROBLEM, SOLVING = "effort", "images", "network and problem", "solving"
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
    crop_area: float = setting(
        0.25, "least share of the image that a random crop of crops8 shows", group=IMAGES, rule=SHARE, metavar="SHARE"
    )
    crop_ratio: float = setting(
        4 / 3,
        "most by which such a crop is longer in one direction than in the other; default: 1.333 (4/3)",
        group=IMAGES,
        rule=ONE_OR_MORE,
        metavar="RATIO",
    )
    tensors: str = setting(
        PICTURES,
        "floating-point arrays and tensors hold `pictures`, with pixels of 0 to 1 or of 0 to 255, or what is "
        "`normalized` for the network already and goes in unchanged",
        choices=(PICTURES, NORMALIZED),
    )
    device: str = setting("auto", "auto (a GPU if there is one), cpu, cuda, cuda:1, …", group=SOLVING, metavar="NAME")
    verbose: int = setting(
        1,
        "0: silent; 1: show progress in terminals and notebooks, and a line now and then elsewhere, unless the work is "
        "done in a moment",
        rule=VERBOSE,
    )
    strict: bool = setting(
        False,
        "refuse what is otherwise left out with a warning: damaged images, images outside a class folder, empty class "
        "folders, unknown classes of a test set; and classes with one image",
        group=IMAGES,
    )
    limit_per_class: int | None = setting(
        None, "use at most so many images of every class, chosen by the seed", group=IMAGES, metavar="K"
    )

    def __post_init__(self) -> None:
        for f in fields(self):
            check(f, getattr(self, f.name))

    def to_dict(self) -> dict[str, Any]:
        """JSON values; a network given as an object is named."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}


@dataclass(frozen=True)
class Settings:
    """What is solved, and how."""

    effort: str = setting(
        "auto",
        "how far to climb from the closed-form head: quick: heads alone; standard: LQF, too; best: more views, moved "
        "networks and a stack as well; auto: standard on a GPU, on a CPU what fits into two minutes",
        group=EFFORT,
        choices=("auto", "quick", "standard", "best"),
    )
    time_limit: str | float | None = setting(
        None,
        "time for the whole fit, start-up included: 90, 20s, 10m, 1h30m; the best model found by then is kept",
        group=EFFORT,
        rule=TIME,
        metavar="TIME",
    )
    solver: str = setting(
        "auto",
        "auto: climb from the head to better models while they gain; or one model: head, the last layer alone; dense "
        "or pcg, LQF; sgd or adam, the paper's mini-batches",
        group=SOLVING,
        choices=("auto", "head", "dense", "pcg", "sgd", "adam"),
    )
    views: str = setting(
        "auto",
        "fixed views of every image, in training and in predictions: none (its centre alone), flip (and its mirror "
        "image), five or ten crops, resized (four views, two of them random resized crops), crops8 (eight, or any "
        "other number, with random crops); auto: what gains out of sample",
        group=IMAGES,
        rule=VIEWS,
        metavar="NAME",
    )
    predict_views: str = setting(
        "auto",
        "views that a prediction averages over: same (as in training), flip or none; auto: in a climb what is best out "
        "of sample, same where a solver is named",
        group=IMAGES,
        choices=("auto", "same", "flip", "none"),
        later=True,
    )
    pooling: str = setting(
        "auto",
        "mean of the last feature map, root of its covariance, or both (the network is then linearised under the "
        "mean); auto: by leave-one-out",
        group=PROBLEM,
        choices=("auto", "avg", "bilinear", "both"),
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
    class_weight: str | dict[str, float] | None = setting(
        None,
        "weights of the classes, by which those of their images are multiplied: balanced (every class counts alike, "
        "however few images it has), or crack=3,ok=1 (in Python a dict), 1 for those that are not named; default: none",
        group=PROBLEM,
        rule=CLASS_WEIGHTS,
        metavar="W",
        later=True,
    )
    choose_by: str = setting(
        "images",
        "what counts alike in all that is chosen out of sample (weight decay, pooling, views, models, shares in a "
        "stack, temperature): images, by their weights, or classes, however few images they have; the objective "
        "stays as it is",
        group=PROBLEM,
        choices=("images", "classes"),
        later=True,
    )
    strengths: str = setting(
        "auto",
        "weight decay of the network: one for each of its stages, by nested folds (`stages`), or one for all (`one`); "
        "auto: stages in a climb, one where a solver is named",
        group=PROBLEM,
        choices=("auto", "stages", "one"),
        later=True,
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
    tol: float = setting(
        2e-2,
        "distance of the training outputs from the optimum's, relative to their norm, at which pcg stops",
        group=SOLVING,
        rule=POSITIVE,
    )
    max_passes: int = setting(200, "products after which pcg gives up", group=SOLVING, rule=COUNT)
    unconverged: str = setting(
        "refuse",
        "a solution that did not reach its tolerance is refused, or kept: every prediction then says so; sgd and adam "
        "end after their epochs, wherever they are",
        group=SOLVING,
        choices=("refuse", "keep"),
        later=True,
    )
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
    damping: float | None = setting(
        None,
        "of K-FAC with sgd, as a share of the mean squared gradient of an output; default: the least whose steps do "
        "not overshoot a batch",
        group=SOLVING,
        rule=POSITIVE_OR_NONE,
        metavar="ρ",
        later=True,
    )
    draws: int | None = setting(
        4, "random output draws per sample for K-FAC; None: every output exactly", rule=COUNT_OR_NONE
    )
    batch_size: int | None = setting(
        None, "images per batch of a pass; changes memory and time only", group=SOLVING, rule=COUNT_OR_NONE
    )
    keep_for_questions: str = setting(
        "auto",
        "keep with the model what questions about its training images would have to compute again: all, none, or auto: "
        "up to 256 MB",
        group=SOLVING,
        choices=("auto", "all", "none"),
        later=True,
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
    seed: int = setting(0, "of every random choice", group=SOLVING, rule=SEED)

    def __post_init__(self) -> None:
        if isinstance(self.time_limit, str):
            object.__setattr__(self, "time_limit", seconds_of(self.time_limit) or self.time_limit)
        for f in fields(self):
            value = getattr(self, f.name)
            if hasattr(value, "item"):  # a search over settings gives numpy's numbers, which JSON lacks
                object.__setattr__(self, f.name, value.item())
            check(f, getattr(self, f.name))
        if isinstance(self.class_weight, Mapping):
            object.__setattr__(self, "class_weight", _by_name(self.class_weight))
        if self.augment != "none" and self.solver not in ("sgd", "adam"):
            raise LQFError(
                f"{naming.name('augment')} {self.augment!r} draws new images in every epoch and needs "
                "solver `sgd` or `adam`; the other solvers take a fixed set of `views`"
            )
        if self.pooling == "both" and self.linearize_reduction:
            raise LQFError(
                f"{naming.name('linearize_reduction')} lets the channels of bilinear pooling change, and "
                "pooling `both` leaves them as they are; use pooling `bilinear`"
            )
        if self.views != "auto":
            check_shown(self.views, self.predict_views)
        if not self.climbs and (self.effort != "auto" or self.time_limit is not None):
            raise LQFError(
                f"{naming.name('effort')} and {naming.name('time_limit')} say how far to climb from model to "
                f"model, and these settings name one model ({self._named()}); leave out the one or the other"
            )
        if self.moves and self.solver == "head":
            raise LQFError(
                f"{naming.name('relinearize')} and {naming.name('finetune_first')} move the network, and "
                "solver `head` leaves it as it is; use `auto`, `dense` or `pcg`"
            )

    @property
    def climbs(self) -> bool:
        """Whether a fit goes from model to model (`lqf.fitting.ladder`), and is not the fit of one that was named."""
        return self.solver == "auto" and not self.moves and self.form == "centred"

    @property
    def by_stage(self) -> bool:
        """Whether every stage of the network has a weight decay of its own."""
        return self.strengths == "stages" or (self.strengths == "auto" and self.climbs)

    def _named(self) -> str:
        default = {f.name: f.default for f in fields(self)}
        names = ("solver", "relinearize", "finetune_first", "form")
        return ", ".join(naming.given(n, getattr(self, n)) for n in names if getattr(self, n) != default[n])

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

    def of_problem(self) -> dict[str, Any]:
        """Those that decide what is fitted, as JSON values: not how far, how fast or how exactly."""
        return {name: value for name, value in asdict(self).items() if name not in INCIDENTAL}


INCIDENTAL = (
    *("effort", "time_limit", "tol", "max_passes", "batch_size", "precision", "compile", "loo"),
    *("keep_for_questions", "unconverged"),
)
"""Settings that decide how far, how fast or how exactly a fit goes."""
