"""Record what today's code computes: `python tests/golden/record.py`, from the repository's root.

Recordings are made on one thread. On the machine that made them, recording again must change no file:
`git diff --exit-code tests/golden` is the test of equal bits. `test_golden.py` compares them on any machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from golden.cases import ANALYSED, FITS, KFAC, MODELS, answers, by_two, fitted, kept, resumed  # noqa: E402

EXPECTED = HERE / "expected"


def write(name: str, values: Any, tensors: dict[str, torch.Tensor]) -> None:
    EXPECTED.mkdir(exist_ok=True)
    text = json.dumps(values, indent=1, sort_keys=True, ensure_ascii=False)
    (EXPECTED / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    save_file(dict(sorted(tensors.items())), EXPECTED / f"{name}.safetensors")
    print(name)


def main() -> None:
    torch.set_num_threads(1)
    if "--by-two" in sys.argv:
        return by_two(write)
    for case in FITS:
        write(case, *kept(fitted(case)))
    for case in ANALYSED:
        write(f"{case}-analysed", *answers(case))
    for case in KFAC:
        write(f"{case}-kfac", *answers(case, "kfac"))
    with tempfile.TemporaryDirectory() as folder:
        write("resumed", *kept(resumed(Path(folder))))
        write("resumed-relinearised", *kept(resumed(Path(folder), "relinearised", 4)))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([sys.executable, *launcher, __file__, "--by-two"], check=True)
    if not (HERE / "model").exists() or "--model" in sys.argv:  # it stays: a model of before must load
        shutil.rmtree(HERE / "model", ignore_errors=True)
        for case in MODELS:
            fitted(case).save(HERE / "model" / case)
    return None


if __name__ == "__main__":
    main()
