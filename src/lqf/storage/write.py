"""A fitted model into a folder, whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import save_file

import lqf
from lqf.backbones.average_pool import reduction_of
from lqf.backbones.state import is_moved, state_of
from lqf.errors import LQFError
from lqf.fitting import FittedModel, Model, Stack
from lqf.fitting.knowledge import NotKept
from lqf.fitting.model_card import model_card
from lqf.storage.checks import digest, sha256
from lqf.storage.layout import BACKBONE, CARD, DESCRIPTION, FORMAT, QUESTIONS, RUNGS, SAMPLES, STACKED, VERSION, WEIGHTS
from lqf.storage.samples import write_samples
from lqf.utils import naming
from lqf.utils.files import atomic_folder, has_format
from lqf.utils.json_values import dump_json, json_values
from lqf.utils.rooms import behind_links, check_place, recover


def save(model: Model, path: str | Path, *, overwrite: bool = False) -> None:
    """Write the folder beside its final place and move it there."""
    path = Path(path)
    check_target(path, overwrite)
    with atomic_folder(path) as temporary:
        _write(model, temporary)
        (temporary / CARD).write_text(model_card(model, lqf.__version__), encoding="utf-8")


def check_target(path: Path, overwrite: bool) -> None:
    """Refuse to write over something, before any work is done."""
    recover(behind_links(path))
    if not path.exists():
        check_place(behind_links(path))
        return
    if not overwrite:
        raise LQFError(
            f"`{path}` exists; choose another output folder, or give {naming.given('overwrite')} to replace it"
        )
    if not has_format(path / DESCRIPTION, FORMAT) and not (path.is_dir() and not any(path.iterdir())):
        raise LQFError(
            f"`{path}` exists and is not a fitted model; it is not replaced even with {naming.given('overwrite')}"
        )


def kept_bytes(model: Model) -> int:
    """Size of what is kept for questions, of all members of a stack."""
    members = model.members if isinstance(model, Stack) else (model,)
    return sum(m.known.bytes for m in members if m.known is not None and not isinstance(m.known, NotKept))


def _write(model: Model, folder: Path) -> None:
    write_samples(model, folder / SAMPLES)
    own = _write_stack(model, folder) if isinstance(model, Stack) else _write_one(model, folder)
    files = [*own.pop("files"), SAMPLES]
    if model.tried:
        # names of rungs are for people, and keys of a file need not be
        numbered = {str(i): outputs.contiguous() for i, outputs in enumerate(model.tried.values())}
        save_file(numbered, folder / RUNGS)
        files.append(RUNGS)
    meta = {
        "format": FORMAT,
        **own,
        "beta": model.beta,
        "train": model.train.source,
        **({"added": list(model.train.added)} if model.train.added else {}),
        **({} if model.train.shape is None else {"shape": list(model.train.shape)}),
        "loo": None if model.loo is None else {"level": model.loo.level, "note": model.loo.note},
        "tried": list(model.tried),
        "settings": {**model.setup.to_dict(), **model.settings.to_dict()},
        "report": model.report.to_dict(),
        "files": {n: sha256(folder / n) for n in files},
    }
    meta = json_values(meta)
    meta["sha256"] = digest(meta)
    (folder / DESCRIPTION).write_text(dump_json(meta))


def _write_one(model: FittedModel, folder: Path) -> dict[str, Any]:
    tensors = {"head": model.head, "point": model.point, "delta": model.delta}
    if model.loo is not None:
        tensors["loo"] = model.loo.outputs
    if model.kept_point is not None:
        tensors |= {"kept_heads": model.kept_point.heads, "kept_fold": model.kept_point.fold}
    reduction = reduction_of(model.backbone)
    if reduction is not None:
        tensors["reduction"] = reduction.cpu()
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / WEIGHTS)
    names = [WEIGHTS]
    if is_moved(model.backbone):
        state = state_of(model.backbone.body)
        save_file({k: v.detach().cpu().contiguous().clone() for k, v in state.items()}, folder / BACKBONE)
        names.append(BACKBONE)
    return {
        "version": VERSION,
        "backbone": model.backbone.spec,
        "preprocess": model.preprocess.to_dict(),
        "classes": list(model.classes),
        "alpha": model.alpha,
        "constant": model.constant,
        "stage": model.stage,
        **({} if model.trained_views is None else {"trained_views": model.trained_views}),
        **_write_knowledge(model, folder),
        "files": names,
    }


def _write_knowledge(model: FittedModel, folder: Path) -> dict[str, Any]:
    """Its size, and its hash where it is kept. Every other file must be there; this one may be deleted."""
    if model.known is None:
        return {}
    tensors = model.known.read(lambda _: None)
    if tensors is None:
        return {"questions": {"bytes": model.known.bytes}}
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / QUESTIONS)
    return {"questions": {"bytes": model.known.bytes, "sha256": sha256(folder / QUESTIONS)}}


def _write_stack(model: Stack, folder: Path) -> dict[str, Any]:
    if model.loo is not None:
        save_file({"loo": model.loo.outputs.contiguous()}, folder / WEIGHTS)
    names = [f"member{k + 1}" for k in range(len(model.members))]
    for name, member in zip(names, model.members, strict=True):
        (folder / name).mkdir()
        _write(member, folder / name)
    files = [f"{name}/model.json" for name in names] + ([WEIGHTS] if model.loo is not None else [])
    members = [
        {"folder": folder_, "name": name, "weight": w, "share": share}
        for folder_, name, w, share in zip(names, model.names, model.weights, model.shares, strict=True)
    ]
    return {"version": STACKED, "members": members, "classes": list(model.classes), "files": files}
