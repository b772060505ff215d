"""What one product Jᵀ(Jv) costs: against `torch.func`, curvlinops, and against one ordinary training step, in one run.

    python benchmarks/product_cost.py                                    # small
    python benchmarks/product_cost.py --device cpu                       # EfficientNet-Lite0, 224 px
    python benchmarks/product_cost.py --backbone resnet50 --weights r50.safetensors --device cuda --batch 128 \\
        --precision bfloat16 --compile step

The product is what PCG does: J·v forward, then Jᵀ·u backward (`FastLinearization`). The training step has the same
precision and channels last; `torch.func` takes the network as it is loaded. All variants take turns in every round, so
that a busy machine slows all of them alike; the ratio of medians counts.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec

import torch
from common.hardware import hardware, write
from common.options import Options
from torch import Tensor, nn
from torch.func import functional_call, jvp, vjp

from lqf.backbones import load_backbone
from lqf.fast import FastLinearization
from lqf.linear.linearize import Linearization
from lqf.runtime.device import resolve_device
from lqf.runtime.precision import matmul_precision

Functions = dict[str, Callable[[], object]]
TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def training_step(body: nn.Module, x: Tensor, *, compiled: bool) -> Callable[[], None]:
    """Forward, backward and an SGD step, in the type of x; channels last on a GPU."""
    own = copy.deepcopy(body).to(x.dtype).requires_grad_()
    if x.is_cuda:
        own, x = own.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    forward = torch.compile(own) if compiled else own
    labels = torch.zeros(len(x), dtype=torch.long, device=x.device)
    optimiser = torch.optim.SGD(own.parameters(), lr=1e-6, momentum=0.9, fused=x.is_cuda)

    def step() -> None:
        optimiser.zero_grad()
        nn.functional.cross_entropy(forward(x).float(), labels).backward()
        optimiser.step()

    return step


def torch_func(body: nn.Module, x: Tensor) -> Callable[[], object]:
    """The same product by `torch.func`, with the network as it is."""
    own = copy.deepcopy(body).to(x.dtype)
    weights = {n: w.detach() for n, w in own.named_parameters()}
    tangents = {n: 1e-2 * torch.randn_like(w) for n, w in weights.items()}

    def call(w: dict[str, Tensor]) -> Tensor:
        return functional_call(own, w, (x,))

    def product() -> object:
        jv = jvp(call, (weights,), (tangents,))[1]
        pull = vjp(call, weights)[1]
        return pull(jv)

    return product


def products(
    body: nn.Module, x: Tensor, dtype: torch.dtype, *, compiled: bool = False, held: dict[str, float] | None = None
) -> Functions:
    """Ours: as in a fit; its two halves; and without recording, whose memory can be measured.

    ``held`` receives the bytes of the activations that are kept.
    """
    exact = Linearization(body)
    fast = FastLinearization(exact, dtype, x[:2], compiled=compiled, say=print)
    plain = FastLinearization(exact, dtype, x[:2], recorded=False)
    v = 1e-2 * torch.randn(exact.size, device=x.device)
    u = torch.randn_like(exact.value(x))
    end = ", compiled" if compiled else ""
    out: Functions = {
        f"product{end}": lambda: fast.vjp(x, fast.jvp(x, v)[1]),
        f"J·v alone{end}": lambda: fast.jvp(x, v),
        f"Jᵀ·u alone{end}": lambda: fast.vjp(x, u),
    }
    if compiled:
        return out
    out["product, not recorded"] = lambda: plain.vjp(x, plain.jvp(x, v)[1])
    kept, own = FastLinearization(exact, dtype, x[:2], say=print), x.clone()
    used = kept.keep(own)
    if held is not None:
        held["bytes"] = used
    out["product, activations kept"] = lambda: kept.vjp(own, kept.jvp(own, v)[1])
    out["J·v alone, activations kept"] = lambda: kept.jvp(own, v)
    out["Jᵀ·u alone, activations kept"] = lambda: kept.vjp(own, u)
    return out


def curvlinops_product(body: nn.Module, x: Tensor) -> Functions:
    """The same product by curvlinops: its GGN for the summed squared error is 2·JᵀJ."""
    if find_spec("curvlinops") is None:
        print("curvlinops is not installed (pip install curvlinops-for-pytorch): its product is left out")
        return {}
    from curvlinops import GGNLinearOperator

    own = copy.deepcopy(body).requires_grad_()
    targets = torch.zeros_like(body(x))
    ggn = GGNLinearOperator(
        own, nn.MSELoss(reduction="sum"), list(own.parameters()), [(x, targets)], check_deterministic=False
    )
    v = torch.randn(Linearization(body).size, device=x.device) * 1e-2
    ours, theirs = Linearization(body).fused(x, v, lambda _, dz: dz)[1], (ggn @ v) / 2
    print(f"curvlinops: relative difference of the product {float((theirs - ours).norm() / ours.norm()):.1e}")
    return {"curvlinops GGN": lambda: ggn @ v}


def runs(name: str, function: Callable[[], object]) -> bool:
    """Whether a variant can be run at all; PyTorch's own forward derivatives cannot, of some layers in narrow types."""
    try:
        function()
    except RuntimeError as error:
        print(f"{name} fails: {str(error).splitlines()[0]}")
        return False
    return True


def measure(functions: Functions, device: torch.device, rounds: int) -> dict[str, dict[str, float]]:
    """Median seconds, and peak bytes beyond what was held before (CUDA), of every variant."""
    seconds: dict[str, list[float]] = {n: [] for n in functions}
    peak: dict[str, float] = {}
    for round_ in range(rounds + 1):  # the first warms up
        for name, function in functions.items():
            before = _reset(device)
            began = time.perf_counter()
            function()
            _wait(device)
            if round_:
                seconds[name].append(time.perf_counter() - began)
            if device.type == "cuda":
                peak[name] = torch.cuda.max_memory_allocated(device) - before
    return {n: {"seconds": statistics.median(s), "peak_bytes": peak.get(n, 0.0)} for n, s in seconds.items()}


def _reset(device: torch.device) -> float:
    if device.type != "cuda":
        return 0.0
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    return float(torch.cuda.memory_allocated(device))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "--size 64 --batch 4 --rounds 2")
    out.add_settings("backbone", "weights", size=224, device="cpu")
    out.add_argument("--batch", type=int, default=8)
    out.add_argument("--rounds", type=int, default=5)
    out.add_argument("--precision", default="float32", choices=("float32", "tf32", *TYPES))
    out.add_argument("--compile", choices=("none", "step", "all"), default="none", help="what to compile as well")
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    device = resolve_device(args.device)
    body = load_backbone(args.backbone, weights=args.weights).body.to(device)
    x = torch.randn(args.batch, 3, args.size, args.size, device=device)
    dtype = TYPES.get(args.precision, torch.float32)
    with matmul_precision(args.precision != "float32"):
        functions: Functions = {"training step": training_step(body, x.to(dtype), compiled=False)}
        activations: dict[str, float] = {}
        functions |= products(body, x, dtype, held=activations)
        functions["torch.func jvp + vjp"] = torch_func(body, x.to(dtype))
        if dtype == torch.float32:
            exact, v = Linearization(body), 1e-2 * torch.randn(Linearization(body).size, device=device)
            functions["fused product, any module"] = lambda: exact.fused(x, v, lambda _, dz: dz)
            functions |= curvlinops_product(body, x)
        if args.compile != "none":
            functions["training step, compiled"] = training_step(body, x.to(dtype), compiled=True)
        if args.compile == "all":
            functions |= products(body, x, dtype, compiled=True)
        functions = {n: f for n, f in functions.items() if runs(n, f)}
        times = measure(functions, device, args.rounds)
    steps = [n for n in times if n.startswith("training step")]
    step = min((times[n] for n in steps), key=lambda t: t["seconds"])
    ours = min((times[n] for n in ("product", "product, compiled") if n in times), key=lambda t: t["seconds"])
    theirs, eager = times.get("torch.func jvp + vjp"), times["training step"]["peak_bytes"]
    memory = times["product, not recorded"]["peak_bytes"] / eager if eager else None
    kept = times["product, activations kept"]
    result = {
        "what": f"{args.backbone}, {args.size} px, batch {args.batch}, {args.precision}",
        "product over the faster training step": ours["seconds"] / step["seconds"],
        "product over the eager training step": ours["seconds"] / times["training step"]["seconds"],
        "torch.func over product": theirs["seconds"] / ours["seconds"] if theirs else None,
        "activations kept: product over the faster training step": kept["seconds"] / step["seconds"],
        "activations kept: product over the eager training step": kept["seconds"] / times["training step"]["seconds"],
        "activations kept: torch.func over product": theirs["seconds"] / kept["seconds"] if theirs else None,
        "activations kept: their bytes": activations["bytes"],
        "memory, product over training step": memory,
        "variants": times,
        "hardware": hardware(device),
    }
    for name, t in times.items():
        print(f"{name:29s} {1e3 * t['seconds']:8.1f} ms   {t['seconds'] / step['seconds']:5.2f} × a training step")
    kind = f"{args.device}-{args.precision}"
    print(write(f"product_cost-{args.backbone.replace(':', '-')}-{kind}", result, args.out))


if __name__ == "__main__":
    main()
