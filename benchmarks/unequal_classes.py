"""How much of a rare class is found, with and without class weights, and with choices that count every class alike?

    python benchmarks/unequal_classes.py DATA... [--many 40] [--few 8] [--classes 2] [--draws 20] [--size 96]

Every DATA is a folder with train/ and test/, of which train/ alone is used. Every draw takes some classes, few images
of one of them and many of each other, fits a model in each of the ways compared, and predicts other training images of
these classes: as many of each as there are of the class that has the fewest left. Classes with no more than --many
images are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from common.hardware import hardware, write
from common.options import Options, settings_of
from common.subset import Labelled, pictures
from common.tasks import mean

from lqf import LQFClassifier
from lqf.runtime.device import resolve_device

WAYS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "class weights": {"class_weight": "balanced"},
    "choices": {"choose_by": "classes"},
}


def task(
    folder: Path, classes: int, many: int, few: int, generator: np.random.Generator
) -> tuple[str, Labelled, Labelled]:
    """The rare class, images to learn from, and others to be judged by."""
    every = sorted(p.name for p in folder.iterdir() if p.is_dir() and len(list(p.iterdir())) > many)
    names = generator.permutation(every)[:classes].tolist()
    learned: Labelled = ([], [])
    held: list[list[Path]] = []
    for name in names:
        paths, _ = pictures(folder, [name], None, generator)
        n = few if name == names[0] else many
        learned = (learned[0] + paths[:n], learned[1] + [name] * len(paths[:n]))
        held.append(paths[n:])
    most = min(map(len, held))
    return names[0], learned, ([p for of in held for p in of[:most]], [name for name in names for _ in range(most)])


def judged(model: LQFClassifier, rare: str, held: Labelled) -> dict[str, float]:
    """Recall of the rare class, mean recall of the others, mean error of all, and what leave-one-out said of that."""
    names = model.classes_.astype(str).tolist()
    labels, p = np.array(held[1]), model.predict_proba(held[0])
    truth = np.array([names.index(name) for name in held[1]])
    right, own = p.argmax(1) == truth, p[np.arange(len(p)), truth]
    return {
        "recall of the rare class": float(right[labels == rare].mean()),
        "recall of the others": float(right[labels != rare].mean()),
        "balanced error": float(1 - right.mean()),  # as many are held out of each class
        "cross-entropy": float(-np.log(own.clip(1e-12)).mean()),
        "leave-one-out said": model.leave_one_out().balanced_error,
    }


def compared(data: Path, args: Any) -> dict[str, Any]:
    """All ways on one data set, and by how much the recall of the rare class differs, draw by draw."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for draw in range(args.draws):
        generator = np.random.default_rng(draw)
        rare, learned, held = task(data / "train", args.classes, args.many, args.few, generator)
        for way, chosen in WAYS.items():
            model = LQFClassifier(seed=draw, **settings_of(args), **chosen)
            found[way].append(judged(model.fit(*learned), rare, held))
        print(
            data.name, draw, rare, [round(of[-1]["recall of the rare class"], 2) for of in found.values()], flush=True
        )
    recalls = {way: np.array([f["recall of the rare class"] for f in of]) for way, of in found.items()}
    return {
        "ways": {way: {name: mean(f[name] for f in of) for name in of[0]} for way, of in found.items()},
        "recall gained": {way: mean(r - recalls["as it is"]) for way, r in recalls.items() if way != "as it is"},
    }


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --many 4 --few 2 --draws 1 --size 32")
    out.add_data("+")
    out.add_settings("backbone", "weights", "device", size=96, solver="head")
    out.add_argument("--classes", type=int, default=2)
    out.add_argument("--many", type=int, default=40, help="images of every class but one")
    out.add_argument("--few", type=int, default=8, help="images of that one")
    out.add_argument("--draws", type=int, default=20)
    out.add_argument("--name", default="unequal_classes")
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    sets: dict[str, Any] = {}
    for data in args.data:
        sets[data.name] = compared(data, args)
        result = {
            "what": f"{args.backbone}, {args.size} px, solver {args.solver}",
            "problem": f"{args.few} images of one class, {args.many} of each of {args.classes - 1} others",
            "draws": args.draws,
            "sets": sets,
            "hardware": hardware(resolve_device(args.device)),
        }
        path = write(args.name, result, args.out)  # after every set: a run takes long
    print(path)


if __name__ == "__main__":
    main()
