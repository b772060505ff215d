"""How to fine-tune a network: recipes compared on training images that were left out.

    python benchmarks/recipes.py DATA… --backbone resnet50 --weights r50.safetensors --device cuda [--recipes now both]

DATA is a folder with train/. Networks are trained without the first folds of a fit, and judged by these: no test image
is opened. "mean" is of the outputs of networks with different seeds, "soup" of their weights and statistics; "head on
top" is the closed-form head in eight views of what the fine-tuned network makes of both poolings, its ridge strength a
multiple of that which leave-one-out prefers. Every recipe is also judged in a stack with such a head on the pretrained
network.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from averaged_networks import averaged
from common.hardware import hardware, write
from common.options import Options
from safetensors.torch import save_file
from torch import Tensor

from lqf.backbones import Backbone, load_backbone
from lqf.backbones.average_pool import acting_through_all
from lqf.data import Images, load_samples, open_images, select_images
from lqf.evaluation.calibration import calibrate
from lqf.evaluation.paired import cross_fitted_losses
from lqf.evaluation.stacking import stack_coefficients
from lqf.fitting import Context, TrainingSet
from lqf.fitting import finetuned as module
from lqf.fitting.finetuned import Tuned, finetuned
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.rungs.heads import MANY_VIEWS
from lqf.fitting.select_pooling import candidate_heads
from lqf.fitting.select_shown import averaged as mean_of_views
from lqf.fitting.select_views import in_views
from lqf.linear import head_products, sweep
from lqf.linear.targets import error_rate
from lqf.runtime.device import computing_on, resolve_device
from lqf.settings import Settings
from lqf.training.network import Network

Rows = dict[str, Tensor]
"""By name, (n, V, C) outputs of the left-out images."""
SEEDS = (0, 1, 2)
MULTIPLES = (1.0, 10.0, 100.0, 1000.0)
SHOWN = ("none", "flip", MANY_VIEWS)


@dataclass(frozen=True)
class Recipe:
    """What differs from the fine-tuned rung.

    Attributes:
        rate: η·λ.
        how: fields of `FineTuning`.
        pooling: of the head that it is trained under.
        seeds: so many networks.
        head: whether closed-form heads on top of it are tried.
    """

    rate: float = module.RATE
    how: dict[str, Any] | None = None
    pooling: str = "avg"
    seeds: int = 1
    head: bool = False


OWN = {"bn": "eval"}
RECIPES = {
    "now": Recipe(seeds=3, head=True),
    "longer": Recipe(how={"epochs": 60}),
    "higher rate": Recipe(rate=3 * module.RATE),
    "lower rate": Recipe(rate=module.RATE / 3),
    "lowest rate": Recipe(rate=module.RATE / 10),
    "lower rate, longer": Recipe(rate=module.RATE / 3, how={"epochs": 60}),
    "lower rate, both": Recipe(rate=module.RATE / 3, pooling="both"),
    "lower rate, small crops": Recipe(rate=module.RATE / 3, how={"augment": "resized"}),
    "lower rate, cross-entropy": Recipe(rate=module.RATE / 3, how={"loss": "cross_entropy"}),
    "small crops": Recipe(how={"augment": "resized"}),
    "shifts": Recipe(how={"augment": "crop"}),
    "own statistics": Recipe(how=OWN),
    "own, longer": Recipe(how={**OWN, "epochs": 60}),
    "own, higher rate": Recipe(rate=2 * module.RATE, how=OWN),
    "own, cross-entropy": Recipe(how={**OWN, "loss": "cross_entropy"}),
    "own, both": Recipe(how=OWN, pooling="both"),
    "cross-entropy": Recipe(how={"loss": "cross_entropy"}),
    "both": Recipe(pooling="both"),
}


@contextmanager
def patched(recipe: Recipe) -> Iterator[None]:
    """The rung follows the recipe."""
    plain, rate, network = module._how, module.RATE, module._network
    module._how = lambda data: replace(plain(data), **(recipe.how or {}))
    module.RATE = recipe.rate
    if (recipe.how or {}).get("loss") == "cross_entropy":
        module._network = lambda begun: scaled(network(begun), begun)
    try:
        yield
    finally:
        module._how, module.RATE, module._network = plain, rate, network


def scaled(network: Network, begun: HeadFit) -> Network:
    """A head's outputs as logits: at the temperature that suits its leave-one-out outputs."""
    data, head = begun.data, begun.head
    loo = head.residual - head.ridge.loo(head.residual, begun.choice.mu) + data.constant
    beta = calibrate(loo.cpu(), data.labels, data.weights.cpu())
    with torch.no_grad():
        network.head.weight.mul_(beta)
        network.head.bias.mul_(beta)
    return network


def pooled(data: TrainingSet, backbone: Backbone, pooling: str) -> Backbone:
    """The network under a pooling, the share of each half by leave-one-out."""
    return backbone if pooling == "avg" else acting_through_all(candidate_heads(data, backbone, pooling)[0].backbone)


def trained(data: TrainingSet, backbone: Backbone, recipe: Recipe) -> list[Tuned]:
    """One network for each seed."""
    out = []
    for seed in SEEDS[: recipe.seeds]:
        here = replace(data, context=data.context.with_settings(seed=seed))
        out.append(finetuned(here, pooled(data, backbone, recipe.pooling), recipe.pooling))
    return out


def heads_on(backbone: Backbone, data: TrainingSet, held: Images, multiples: Sequence[float]) -> list[Tensor]:
    """(n, V, C) of closed-form heads on the features of a network, with multiples of the best ridge strength."""
    head = candidate_heads(data, backbone, "both")[0]
    head = in_views(head, MANY_VIEWS)
    inputs = head.encoder.inputs
    shown = replace(head.data, images=held).with_views(MANY_VIEWS)
    z = sweep.features(head.encoder.reader, inputs.showing(shown.images, shown.preprocess))
    outputs = [data.constant + head_products.jvp(z, head.head.solve(m * head.choice.mu)) for m in multiples]
    return [f.unflatten(0, (len(held), -1)).double().cpu() for f in outputs]


def followed(recipe: Recipe, data: TrainingSet, backbone: Backbone, held: Images) -> tuple[Rows, dict[str, Any]]:
    """Outputs, and what it took."""
    began = time.perf_counter()
    with patched(recipe):
        networks = trained(data, backbone, recipe)
        took = (time.perf_counter() - began) / len(networks)
        rows = {f"seed {k}" if k else "": t.rows(held, MANY_VIEWS) for k, t in enumerate(networks)}
        if len(networks) > 1:
            rows["mean"] = torch.stack(list(rows.values())).mean(0)
            rows["soup"] = averaged(networks).rows(held, MANY_VIEWS)
        if recipe.head:
            heads = heads_on(networks[0].backbone, data, held, MULTIPLES)
            rows |= {f"head on top, {m:g}": f for m, f in zip(MULTIPLES, heads, strict=True)}
    return rows, {"seconds": took, "rate": networks[0].rate}


def scores(f: Tensor, labels: Tensor) -> dict[str, float]:
    """Error, and cross-entropy at temperatures of other samples."""
    ones, parts = torch.ones(len(labels), dtype=torch.float64), torch.arange(len(labels)) % 5
    return {"error": error_rate(f, labels), "loss": float(cross_fitted_losses(f, labels, ones, parts).mean())}


def stacked(f: Tensor, head: Tensor, labels: Tensor) -> Tensor:
    """With the head, by weights of other samples."""
    parts, out = torch.arange(len(labels)) % 5, torch.empty_like(f)
    for k in range(5):
        here, there = parts == k, parts != k
        ones = torch.ones(int(there.sum()), dtype=torch.float64)
        c = stack_coefficients([head[there], f[there]], labels[there], ones)
        out[here] = (c[0] * head[here] + c[1] * f[here]) / c.sum()
    return out


def judged(rows: Rows, labels: Tensor, head: Tensor | None) -> dict[str, dict[str, dict[str, float]]]:
    """Every kind in every number of views, alone and with the head."""
    out: dict[str, dict[str, dict[str, float]]] = {}
    for name, f in rows.items():
        for views in SHOWN:
            shown = mean_of_views(f, views)
            entry = {"alone": scores(shown, labels)}
            if head is not None:
                entry["stacked"] = scores(stacked(shown, head, labels), labels)
            out.setdefault(name, {})[views] = entry  # type: ignore[assignment]
    return out


def measured(folder: Path, args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """One data set, all recipes."""
    device = resolve_device(args.device)
    backbone = load_backbone(args.backbone, **({"weights": args.weights} if args.weights else {}))
    samples = load_samples(folder / "train", limit_per_class=args.limit_per_class)
    preprocess = backbone.preprocess(size=args.size)
    images = open_images(samples, preprocess)
    data = TrainingSet.of(images, preprocess, Context(Settings(seed=args.seed), device))
    out = torch.isin(data.folds, torch.tensor(args.left_out))
    held, labels = select_images(images, out.numpy()), data.labels[out]
    part = data.some((~out).numpy())

    def keep(name: str, rows: Rows) -> None:
        if args.outputs:
            args.outputs.mkdir(parents=True, exist_ok=True)
            means = {f"{n} in {v}": mean_of_views(f, v).float().contiguous() for n, f in rows.items() for v in SHOWN}
            save_file(means | {"left out": out, "labels": labels}, args.outputs / f"{folder.name}.{name}.safetensors")

    before = heads_on(backbone, part, held, [1.0])[0]
    head = before.mean(1)
    result: dict[str, Any] = {"head": judged({"": before}, labels, None)[""]}
    say(f"{folder.name:20s} head: {result['head'][MANY_VIEWS]['alone']}")
    keep("head", {"": before})
    for name in args.recipes:
        if "loss" in (RECIPES[name].how or {}) and len(data.classes) == 2:
            continue  # one output has no cross-entropy
        rows, about = followed(RECIPES[name], part, backbone, held)
        keep(name, rows)
        result[name] = about | {"judged": judged(rows, labels, head)}
        for n, by in result[name]["judged"].items():
            text = "  ".join(f"{k} {v['error']:.1%} {v['loss']:.3f}" for k, v in by[MANY_VIEWS].items())
            say(f"{folder.name:20s} {name:14s} {n:18s} {text}  {about['seconds']:.1f} s, {about['rate']:.1e}")
    return {"n": len(part), "held": len(held), "recipes": result}


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 64 --limit-per-class 6 --recipes now --left-out 0")
    out.add_data("+")
    out.add_settings("backbone", "weights", "size", "limit_per_class", "device", "seed")
    out.add_argument("--recipes", nargs="+", choices=[*RECIPES], default=[*RECIPES])
    out.add_argument("--left-out", nargs="+", type=int, default=[0, 1], help="folds")
    out.add_argument("--outputs", type=Path, help="folder for the outputs of left-out images")
    return out


def main() -> None:
    """Measure and write JSON, one file a data set."""
    args = options().parse()
    device = resolve_device(args.device)
    for folder in args.data:
        with computing_on(device):
            result = measured(folder, args, lambda line: print(line, flush=True))
        result |= {"data": folder.name, "hardware": hardware(device)}
        print(write(f"recipes-{folder.name}-{args.backbone.replace(':', '-')}-{device.type}", result, args.out))


if __name__ == "__main__":
    main()
