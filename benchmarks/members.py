"""What every rung of a climb adds, alone and as a member of a stack, out of sample and on the test set.

    python benchmarks/members.py OUTPUTS

OUTPUTS is the folder that `benchmarks/climbs.py --outputs` wrote at the effort `best`. Two models are compared sample
by sample: the difference of their cross-entropies, positive where the second is better, with its standard error. Out
of sample every sample's temperature and weights come from the other folds; on the test set they are those of all
training images. "One network" is the fine-tuned network of all samples, without those that lack a fold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from common.hardware import hardware, write
from common.options import Options
from safetensors.torch import load_file, save_file
from torch import Tensor

from lqf.evaluation.calibration import calibrate, log_losses
from lqf.evaluation.paired import cross_fitted_losses, gain
from lqf.evaluation.stacking import stack_coefficients
from lqf.fitting.folds import stratified_folds
from lqf.fitting.rungs.finetuned import FINETUNED, LOWER_RATE
from lqf.fitting.rungs.heads import CROPS, DOUBT, HEAD, MIRRORED
from lqf.fitting.rungs.linear import LQF
from lqf.linear.targets import error_rate

ONE = f"{FINETUNED}, one network"
HEADS = "heads"
"""The head in eight views, and the best head where that is another one."""
Members = tuple[str, ...]
COMPARED: dict[str, tuple[Members, Members]] = {
    "mirror images": ((HEAD,), (MIRRORED,)),
    "eight views": ((MIRRORED,), (CROPS,)),
    "LQF, over the best head": (("best head",), (LQF,)),
    "fine-tuned, over the best head": (("best head",), (ONE,)),
    "lower rate, over the best head": (("best head",), (LOWER_RATE,)),
    "networks without a fold, alone": ((ONE,), (FINETUNED,)),
    "fine-tuned beside the heads": ((HEADS,), (HEADS, ONE)),
    "LQF as well": ((HEADS, ONE), (HEADS, LQF, ONE)),
    "lower rate as well": ((HEADS, LQF, ONE), (HEADS, LQF, ONE, LOWER_RATE)),
    "networks without a fold as well": ((HEADS, LQF, ONE, LOWER_RATE), (HEADS, LQF, FINETUNED, LOWER_RATE)),
    "all": ((HEAD,), (HEADS, LQF, FINETUNED, LOWER_RATE)),
}
"""Two models each: members of a stack, or one alone. LQF is left out where it was not tried."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Outputs:
    """Of one climb; ``known``: by "out of sample/RUNG", "test/RUNG", "labels" and "test labels"."""

    known: dict[str, Tensor]

    @cached_property
    def folds(self) -> Tensor:
        """(N,) those of a climb with the default seed, where no samples have a group."""
        labels = self.known["labels"]
        return stratified_folds(torch.arange(len(labels)), labels)

    @cached_property
    def best_head(self) -> str:
        """Which head a climb keeps."""
        best, ones = HEAD, torch.ones(len(self.folds), dtype=torch.float64)
        loss = {n: self._left_out_losses(self.known[f"out of sample/{n}"].double()) for n in (HEAD, MIRRORED, CROPS)}
        for name in (MIRRORED, CROPS):
            if gain(loss[best], loss[name], ones).counts(DOUBT):
                best = name
        return best

    def _left_out_losses(self, outputs: Tensor) -> Tensor:
        """(N,) at temperatures of the other folds."""
        labels = self.known["labels"]
        return cross_fitted_losses(outputs, labels, torch.ones(len(labels), dtype=torch.float64), self.folds)

    def named(self, members: Members) -> list[str]:
        """Rungs."""
        meant = {HEADS: [CROPS, self.best_head], "best head": [self.best_head]}
        names = dict.fromkeys(n for m in members for n in meant.get(m, [m]))
        return [n for n in names if f"test/{n}" in self.known]

    def compared(self, one: Members, other: Members) -> Row | None:
        """By how much the second is better; None where they are the same."""
        if not self.named(one) or not self.named(other) or self.named(one) == self.named(other):
            return None
        before, after = self._losses(one), self._losses(other)
        e_before, e_after = self._errors(one), self._errors(other)
        out: Row = {}
        for k, where in enumerate(("out of sample", "test")):
            if where == "test" or self._judged(one) != self._judged(other):
                g = gain(before[k], after[k], torch.ones(len(before[k])))
                out[where] = {"mean": g.mean, "standard_error": g.standard_error}
                out[f"{where} error"] = [e_before[k], e_after[k]]
        return out

    def _judged(self, members: Members) -> list[str]:
        """A mean of networks is judged as one of them."""
        return [n.replace(ONE, FINETUNED) for n in self.named(members)]

    def _outputs(self, members: Members) -> tuple[Tensor, Tensor]:
        """(N, C) out of sample, by weights of the other folds, and (n_test, C), as logits where several are added."""
        names, y = self.named(members), self.known["labels"]
        inside = [self.known[f"out of sample/{n}"].double() for n in self._judged(members)]
        tested = [self.known[f"test/{n}"].double() for n in names]
        if len(names) == 1:
            return inside[0], tested[0]
        known = torch.stack([~f.isnan().any(1) for f in inside]).all(0)
        out = torch.full_like(inside[0], torch.nan)
        for k in self.folds[known].unique().tolist():
            here, there = known & (self.folds == k), known & (self.folds != k)
            out[here] = _added(inside, here, _weights([f[there] for f in inside], y[there]))
        return out, _added(tested, slice(None), _weights([f[known] for f in inside], y[known]))

    def _losses(self, members: Members) -> tuple[Tensor, Tensor]:
        inside, tested = self._outputs(members)
        y, known = self.known["labels"], ~inside.isnan().any(1)
        beta = 1.0 if len(self.named(members)) > 1 else calibrate(inside[known], y[known])
        return self._left_out_losses(inside), log_losses(tested, self.known["test labels"], beta)

    def _errors(self, members: Members) -> tuple[float, float]:
        inside, tested = self._outputs(members)
        known = ~inside.isnan().any(1)
        return error_rate(inside[known], self.known["labels"][known]), error_rate(tested, self.known["test labels"])


def _weights(outputs: Sequence[Tensor], labels: Tensor) -> Tensor:
    return stack_coefficients(outputs, labels, torch.ones(len(labels), dtype=torch.float64))


def _added(outputs: Sequence[Tensor], rows: Any, c: Tensor) -> Tensor:
    return torch.stack([w * f[rows] for w, f in zip(c, outputs, strict=True)]).sum(0)


def made_up(folder: Path) -> None:
    """Outputs of models that see the labels through noise, for the small run."""
    generator = torch.Generator().manual_seed(0)
    labels = {"labels": torch.arange(40) % 4, "test labels": torch.arange(24) % 4}
    names = (HEAD, MIRRORED, CROPS, FINETUNED, LOWER_RATE)
    found = {}
    for where, y in (("out of sample", labels["labels"]), ("test", labels["test labels"])):
        truth = torch.nn.functional.one_hot(y, 4).float()
        every = names if where == "out of sample" else (*names, ONE)
        found |= {f"{where}/{n}": truth + 0.5 * torch.randn(truth.shape, generator=generator) for n in every}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(labels | found, folder / "made_up.safetensors")


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA/outputs")
    out.add_argument("outputs", type=Path, help="folder with the outputs of climbs")
    out.add_argument("--name", default="members")
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    if args.small:
        made_up(args.outputs)
    rows: dict[str, dict[str, Row]] = {}
    for path in sorted(args.outputs.glob("*.safetensors")):
        outputs = Outputs(load_file(path))
        found = {name: outputs.compared(*pair) for name, pair in COMPARED.items()}
        rows[path.stem] = {name: row for name, row in found.items() if row is not None}
    for name in COMPARED:
        print(name)
        for data, by in rows.items():
            if name in by:
                text = "   ".join(
                    f"{where} {by[name][where]['mean']:+.3f} ± {by[name][where]['standard_error']:.3f}"
                    f" ({by[name][f'{where} error'][0]:.1%} → {by[name][f'{where} error'][1]:.1%})"
                    for where in ("out of sample", "test")
                    if where in by[name] and math.isfinite(by[name][where]["mean"])
                )
                print(f"    {data:22s} {text}")
    print(write(args.name, {"rows": rows, "hardware": hardware(torch.device("cpu"))}, args.out))


if __name__ == "__main__":
    main()
