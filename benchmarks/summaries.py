"""Which training images matter? Test error after dropping the least, the most informative and random ones.

    python benchmarks/summaries.py DATA [--solver head] [--classes N] [--size 96] [--device auto]

DATA is a folder with train/ and test/. Half of the test images of every class say how informative a training image is
(functional sample information, exact, computed again after every twentieth that leaves), the other half are predicted
by real refits of what is left. Compared with information on the training images themselves, as `lqf summarize` measures
it without validation images, and with rankings that are made once.
"""

from __future__ import annotations

import numpy as np
from common.hardware import hardware, write
from common.options import Options, settings_of
from common.subset import Labelled, subset

from lqf import LQFClassifier
from lqf.runtime.device import resolve_device


def halves(test: Labelled) -> tuple[Labelled, Labelled]:
    """Every other image of each class; `pictures` has put them into random order."""
    paths, labels = test
    place = [sum(y == labels[i] for y in labels[:i]) for i in range(len(labels))]
    parts = [[i for i, k in enumerate(place) if k % 2 == side] for side in (0, 1)]
    first, second = (([paths[i] for i in part], [labels[i] for i in part]) for part in parts)
    return first, second


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32 --repeats 3")
    out.add_data()
    out.add_settings("backbone", "weights", "device", size=96, pooling="avg")
    out.add_argument("--solver", default="head", choices=["head", "dense"])
    out.add_argument("--classes", type=int)
    out.add_argument("--per-class", type=int)
    out.add_argument("--repeats", type=int, default=20)
    out.add_argument("--name", default="summaries")
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    generator = np.random.default_rng(0)
    train, others = subset(args.data, args.classes, args.per_class, generator)
    validation, test = halves(others)
    model = LQFClassifier(**settings_of(args)).fit(*train)
    analysis = model.analyse(*train)
    asked = analysis.queries(*validation)
    orders = {name: analysis.leaving(asked, most=name == "most") for name in ("least", "most")}
    curve = analysis.curve(*test, **orders, repeats=args.repeats)
    print(f"{'dropped':>8s} {'least':>8s} {'random':>16s} {'most':>8s}")
    for share, least, random, spread, most in zip(
        curve.shares, curve.least, curve.random, curve.random_deviation, curve.most, strict=True
    ):
        print(f"{share:8.0%} {least:8.1%} {random:8.1%} ± {spread:5.1%} {most:8.1%}")
    others = {
        "training images": analysis.leaving(),
        "training images, once": analysis.information().values.argsort(stable=True),
        "validation images, once": analysis.information(asked).values.argsort(stable=True),
    }
    least = {k: analysis.curve(*test, least=o, most=o.flip(0), repeats=1).least for k, o in others.items()}
    for name, errors in least.items():
        print(f"least, by {name}: " + " ".join(f"{e:.1%}" for e in errors))
    result = {
        "what": f"{args.data.name}, {args.backbone}, {args.size} px, {args.pooling} pooling, solver {args.solver}",
        "problem": f"{len(set(train[1]))} classes, {len(train[0])} training, {len(validation[0])} validation images",
        "curve": curve.to_dict(),
        "least": least,
        "hardware": hardware(resolve_device(args.device)),
    }
    print(write(args.name, result, args.out))


if __name__ == "__main__":
    main()
