"""What many GPUs should give, on paper: a model of weak scaling from a product that was measured on one.

    python benchmarks/weak_scaling.py                            # few images on every GPU
    python benchmarks/weak_scaling.py --name resnet50            # from results/product_cost-resnet50-cuda-bfloat16.json
    python benchmarks/weak_scaling.py --seconds-per-image 4e-4   # from another measurement

No run on several GPUs stands behind these numbers, and the GPUs are taken to be equally fast. One product of PCG on K
GPUs, each with n images, takes

    t(K) = n·τ + a(4D) + a(4·nK·C) + 4·nK·p·C / f,

τ the measured seconds per image of both sweeps (J·v, then Jᵀ·u), a(bytes) the all-reduce of the D weights and of the
(nK, C) outputs, and the last term the elimination of the head, in float64, which every process does for all rows. The
all-reduce is a ring over NVLink inside a node and a ring between nodes over one link per node, one after the other:

    a(B) = 2 (k−1)/k · B/v + 2 (m−1)/m · B/w + 2(k−1) α_v + 2(m−1) α_w,     k GPUs in each of m nodes.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from common.hardware import RESULTS, hardware, write
from common.options import Options

MEASURED = RESULTS / "product_cost-resnet50-cuda-bfloat16.json"
GPUS = (1, 8, 16, 32, 64)


@dataclass(frozen=True)
class Machine:
    """Assumptions: bytes and operations per second that are reached in practice, about 80 % of what is advertised."""

    gpus_per_node: int = 8
    nvlink: float = 0.8 * 450e9  # of each GPU, in one direction
    network: float = 0.8 * 400e9 / 8  # one 400 Gb/s link per node
    nvlink_latency: float = 5e-6
    network_latency: float = 20e-6
    float64: float = 0.5 * 67e12  # operations per second, tensor cores

    def all_reduce(self, size: float, gpus: int) -> float:
        """Seconds for ``size`` bytes."""
        k, m = min(gpus, self.gpus_per_node), max(1, gpus // self.gpus_per_node)
        inside = 2 * (k - 1) / k * size / self.nvlink + 2 * (k - 1) * self.nvlink_latency
        between = 2 * (m - 1) / m * size / self.network + 2 * (m - 1) * self.network_latency
        return inside + between


@dataclass(frozen=True)
class Work:
    """One product: images per GPU, seconds per image, weights D, outputs C, features p."""

    images_per_gpu: int
    seconds_per_image: float
    weights: int
    outputs: int
    features: int

    def product(self, machine: Machine, gpus: int) -> dict[str, Any]:
        """Its parts in seconds, and how much of a GPU's time is the sweeps."""
        rows = self.images_per_gpu * gpus
        sweeps = self.images_per_gpu * self.seconds_per_image
        weights = machine.all_reduce(4 * self.weights, gpus)
        outputs = machine.all_reduce(4 * rows * self.outputs, gpus)
        head = 4 * rows * self.features * self.outputs / machine.float64
        total = sweeps + weights + outputs + head
        return {
            "gpus": gpus,
            "images": rows,
            "sweeps": sweeps,
            "all-reduce of the weights": weights,
            "all-reduce of the outputs": outputs,
            "head": head,
            "seconds": total,
            "images per second": rows / total,
        }


def seconds_per_image(path: Path) -> float:
    """Of both sweeps, with activations kept where that was measured, from a result of product_cost.py."""
    result = json.loads(path.read_text())
    batch = re.search(r"batch (\d+)", result["what"])
    assert batch, result["what"]
    kept = ", activations kept" if "product, activations kept" in result["variants"] else ""
    both = sum(result["variants"][name + kept]["seconds"] for name in ("J·v alone", "Jᵀ·u alone"))
    return both / int(batch[1])


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "--images-per-gpu 100")
    out.add_argument("--seconds-per-image", type=float, help="of one product; default: from --measured")
    out.add_argument("--measured", type=Path, default=MEASURED, help="a result of product_cost.py")
    out.add_argument("--images-per-gpu", type=int, default=1_000)
    out.add_argument("--weights", type=int, default=23_508_032, help="D; default: ResNet-50 without its head")
    out.add_argument("--outputs", type=int, default=100, help="C")
    out.add_argument("--features", type=int, default=2049, help="p, with the bias")
    out.add_argument("--name", default="resnet50")
    return out


def main() -> None:
    """Compute and write JSON."""
    args = options().parse()
    tau = args.seconds_per_image or seconds_per_image(args.measured)
    work, machine = Work(args.images_per_gpu, tau, args.weights, args.outputs, args.features), Machine()
    rows = [work.product(machine, k) for k in GPUS]
    for row in rows:
        row["efficiency"] = rows[0]["seconds"] / row["seconds"]
    result = {
        "what": f"{args.name}, one product, weak scaling, a model on paper: not measured on several GPUs",
        "from": "--seconds-per-image" if args.seconds_per_image else args.measured.name,
        "work": asdict(work),
        "assumed": asdict(machine),
        "gpus": rows,
        "hardware": hardware(torch.device("cpu")),
    }
    for row in rows:
        print(f"{row['gpus']:3d} GPUs {row['images']:8,d} images {row['seconds']:7.2f} s   {row['efficiency']:6.1%}")
    print(write(f"weak_scaling-{args.name}", result, args.out))


if __name__ == "__main__":
    main()
