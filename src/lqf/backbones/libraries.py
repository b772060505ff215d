"""Networks from elsewhere: `timm:NAME`, `torchvision:NAME` and any nn.Module whose output a linear layer makes."""

from __future__ import annotations

import copy
import difflib
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lqf.backbones.base import Backbone, Input, freeze, make_backbone
from lqf.backbones.canonicalize import canonicalize
from lqf.backbones.imports import import_library
from lqf.backbones.prefix import trace
from lqf.backbones.weights import file_origin, load_state, read_state
from lqf.data.preprocess import Interpolation
from lqf.errors import LQFError
from lqf.utils import naming

Weights = str | Path | None


def load_timm(name: str, weights: Weights, *, leaky: bool, seed: int) -> Backbone:
    """A timm model without its classifier; mean, std, size and interpolation from timm's data config."""
    timm = import_library("timm")
    architecture = name.partition(".")[0]  # what follows the dot names a set of weights
    if ":" not in name and not timm.is_model(architecture):  # hf_hub:OWNER/MODEL is timm's business
        _check_name("timm", architecture, timm.list_models)
    make = lambda pretrained: timm.create_model(name, pretrained=pretrained)  # noqa: E731
    model: Any = _created(f"timm:{name}", make, weights, seed)
    top = model.get_classifier()
    head = next((n for n, m in model.named_modules() if m is top), "") if isinstance(top, nn.Linear) else ""
    model.reset_classifier(0)
    config = timm.data.resolve_model_data_config(model)
    fed = Input(
        tuple(config["mean"]), tuple(config["std"]), _interpolation(config["interpolation"]), config["input_size"][-1]
    )
    return _finished(f"timm:{name}", model, top if head else None, head, fed, weights, leaky=leaky, seed=seed)


def load_torchvision(name: str, weights: Weights, *, leaky: bool, seed: int) -> Backbone:
    """A torchvision classifier whose last linear layer is taken off; input format of its default weights."""
    models = import_library("torchvision.models")
    _check_name("torchvision", name, partial(models.list_models, module=models))
    published = models.get_model_weights(name).DEFAULT
    make = lambda pretrained: models.get_model(name, weights=published if pretrained else None)  # noqa: E731
    model = _created(f"torchvision:{name}", make, weights, seed)
    head, top = last_linear(model)
    _check_makes_output(model.eval(), head)
    model.set_submodule(head, nn.Identity())
    seen = published.transforms()
    fed = Input(tuple(seen.mean), tuple(seen.std), _interpolation(seen.interpolation.value), seen.crop_size[-1])
    return _finished(f"torchvision:{name}", model, top, head, fed, weights, leaky=leaky, seed=seed)


def load_module(module: nn.Module, weights: Weights, *, leaky: bool) -> Backbone:
    """A copy of the user's own network without its last linear layer, which must be what makes its output."""
    if weights == "random":
        raise LQFError("a network given as an nn.Module brings its own weights; weights='random' is for named ones")
    head, top = last_linear(module)
    name = f"module:{type(module).__qualname__}"
    body = copy.deepcopy(module)
    if head:
        _check_makes_output(body.eval(), head)
        top = body.get_submodule(head)  # type: ignore[assignment]
        body.set_submodule(head, nn.Identity())
    else:
        body = nn.Identity()  # the network is one linear layer
    return _finished(name, body, copy.deepcopy(top), head, Input(), weights, leaky=leaky, origin="module")


def last_linear(module: nn.Module) -> tuple[str, nn.Linear]:
    """Name and layer of the last nn.Linear in definition order."""
    found = [(name, m) for name, m in module.named_modules() if isinstance(m, nn.Linear)]
    if not found:
        raise LQFError(
            f"{type(module).__name__} has no nn.Linear to take off; a backbone is a network that ends in a linear "
            "classifier; put one on top of the features: nn.Sequential(network, nn.Linear(features, 2))"
        )
    return found[-1]


def _finished(
    name: str,
    model: nn.Module,
    top: nn.Linear | None,
    head: str,
    fed: Input,
    weights: Weights,
    *,
    leaky: bool,
    seed: int = 0,
    origin: str = "pretrained",
) -> Backbone:
    """Plain layers, then the weights file if there is one, then the same checks and bookkeeping for all."""
    moved = canonicalize(freeze(model))
    features = top.in_features if origin == "module" and top is not None else _measured_width(name, model, fed)
    spec: dict[str, Any] = {"source": origin}
    if weights == "random":
        spec = {"source": "random", "seed": seed}
    elif weights is not None:
        path = Path(weights)
        state = {moved.get(k, k): t for k, t in read_state(path, leaky=leaky).items()}
        top = load_state(model, state, head or "classifier", f"`{path}`")
        spec = {"source": "file", **file_origin(path)}
    return make_backbone(name, model, top, features, fed, spec, leaky=leaky, head=head or "classifier")


def _created(name: str, make: Callable[[bool], nn.Module], weights: Weights, seed: int) -> nn.Module:
    """The model, with published weights unless a file or random ones are wanted; the global random state is kept."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return make(weights is None)
        except Exception as error:  # network, cache, checksum, no such weights: the library's own errors
            reason = str(error).partition("\n")[0] or type(error).__name__
            if weights is not None:
                raise LQFError(f"`{name}` could not be built ({reason})") from error
            raise LQFError(
                f"the published weights of `{name}` could not be loaded ({reason}); "
                f"name a local file with {naming.given('weights', 'FILE')}, or check the connection"
            ) from error


def _check_name(library: str, name: str, names: Callable[[], list[str]]) -> None:
    known = names()
    if name in known:
        return
    close = difflib.get_close_matches(name, known, n=5, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else f"{library} lists its names with `list_models()`."
    raise LQFError(f"{library} has no image classifier `{name}`; {hint}")


def _interpolation(name: str) -> Interpolation:
    return "bilinear" if name == "bilinear" else "bicubic"


@torch.no_grad()
def _measured_width(name: str, model: nn.Module, fed: Input) -> int:
    z = model(torch.zeros(1, 3, fed.size, fed.size))
    if not isinstance(z, Tensor) or z.ndim != 2:
        shape = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise LQFError(f"`{name}` without its classifier gives {shape} for one image; one row of features is needed")
    return z.shape[1]


def _check_makes_output(module: nn.Module, head: str) -> None:
    """Refuse a network that does something after its last linear layer, as far as that can be seen without its data."""
    try:
        makes = trace(module).maker == head or _makes_output_of_an_image(module, head) is True  # or it is passed on
    except LQFError:
        seen = _makes_output_of_an_image(module, head)
        if seen is None:
            warnings.warn(
                f"could not check that `{head}` makes the output of {type(module).__name__}: torch.fx cannot trace it, "
                "and it does not take an image of 224 pixels.",
                stacklevel=4,
            )
        makes = seen is not False
    if not makes:
        raise LQFError(
            f"the last nn.Linear of {type(module).__name__}, `{head}`, does not make its output: something comes after "
            "it; a backbone ends in its linear classifier, so move what follows (softmax, scaling) out of the network"
        )


@torch.no_grad()
def _makes_output_of_an_image(module: nn.Module, head: str) -> bool | None:
    made: list[Any] = []
    handle = module.get_submodule(head).register_forward_hook(lambda _m, _x, y: made.append(y))
    try:
        tensor = next(module.parameters())
        out = module(torch.zeros(1, 3, 224, 224, dtype=tensor.dtype, device=tensor.device))
        return bool(made) and out is made[-1]
    except Exception:  # any shape of input is allowed, so no failure here means anything
        return None
    finally:
        handle.remove()
