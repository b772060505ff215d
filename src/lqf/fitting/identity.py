"""Which model predicted: a hash of everything that its outputs depend on."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor

from lqf.backbones.state import state_of
from lqf.fitting.fitted_model import FittedModel
from lqf.fitting.stack import Stack
from lqf.utils.json_values import dump_json


def identity(model: FittedModel | Stack) -> str:
    """The same for a model and for what was saved of it and loaded again, on any device."""
    digest = hashlib.sha256()
    if isinstance(model, Stack):
        _add(digest, {"classes": model.classes, "weights": model.weights, "beta": model.beta}, {})
        for member in model.members:
            digest.update(identity(member).encode())
        return digest.hexdigest()
    names = ("classes", "alpha", "constant", "beta", "stage")
    about = {name: getattr(model, name) for name in names} | {"dtype": str(model.settings.torch_dtype)}
    tensors = {"head": model.head, "point": model.point, "delta": model.delta} | state_of(model.backbone.body)
    _add(digest, about | {"preprocess": model.preprocess.to_dict()}, tensors)
    return digest.hexdigest()


def _add(digest: Any, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    digest.update(dump_json(about, indent=None).encode())
    for name, tensor in tensors.items():
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        # in float64, since a body that was used may have been made wider
        digest.update(tensor.detach().to(device="cpu", dtype=torch.float64).contiguous().numpy().data)
