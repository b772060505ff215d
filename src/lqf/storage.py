"""A fitted model on disk: a folder of safetensors, JSON and CSV, written whole or not at all.

    model.json           format, backbone (name, hashes), preprocessing, classes, settings, report, hashes of the rest
    weights.safetensors  head, point, delta, leave-one-out outputs, the reduction of a bilinear pooling
    backbone.safetensors the network's weights, where they were moved away from those that its name stands for
    rungs.safetensors    out-of-sample outputs of every model that a climb has tried
    questions.safetensors  what questions about the training images need (`lqf.fitting.knowledge`); it may be missing
    quick_answers.json   what quick answers were worth (`lqf.analysis.quick_worth`), where exact ones have said so
    samples.csv          id, label, weight, group, sha256 of every training sample
    README.md            all of it for people: a model card, which anybody may edit
    member1, member2, …  the members of a stack, each a folder like this one; there are no weights beside them

Loading checks every hash; nothing is ever unpickled.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, cast

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import lqf
from lqf.backbones import Backbone, rebuild_backbone
from lqf.backbones.average_pool import reduction_of
from lqf.backbones.state import is_moved, state_of
from lqf.data import Preprocess
from lqf.errors import LQFError
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import FittedModel, Model, Stack, TrainingTable
from lqf.fitting.finite import check_model
from lqf.fitting.knowledge import Known, NotKept, StoredKnowledge
from lqf.fitting.model_card import model_card
from lqf.fitting.point import Kind, Point
from lqf.fitting.report import FitReport
from lqf.linear.targets import n_outputs
from lqf.settings import Settings, Setup
from lqf.utils import naming
from lqf.utils.files import atomic_folder, has_format
from lqf.utils.json_values import dump_json, json_values
from lqf.utils.regular import read_regular
from lqf.utils.rooms import check_place, recover
from lqf.utils.text import shortened
from lqf.utils.typed import check_types

T = TypeVar("T")
FORMAT = "lqf-model"
VERSION, STACKED = 1, 2
"""Versions of the format: of one model, and of a stack, which older readers do not know."""
OWN = "module:"
"""Before the class of a network that was given as a Python object."""
_MEMBER = re.compile(r"member[1-9][0-9]{0,3}")
LONGEST = 1 << 28
"""Bytes of a `model.json`, at most."""
BACKBONE, RUNGS, QUESTIONS = "backbone.safetensors", "rungs.safetensors", "questions.safetensors"
CARD = "README.md"


def save(model: Model, path: str | Path, *, overwrite: bool = False) -> None:
    """Write the folder beside its final place and move it there."""
    path = Path(path)
    check_target(path, overwrite)
    with atomic_folder(path) as temporary:
        _write(model, temporary)
        (temporary / CARD).write_text(model_card(model, lqf.__version__), encoding="utf-8")


def about_loading(model: Model, path: str | Path) -> str | None:
    """What its user has to know about a saved model: how it is loaded, where its network cannot be saved."""
    spec = model.backbone.spec
    if not spec["name"].startswith(OWN):
        return None
    return f"{_on_own_network(path, spec)}, which is not saved with it; load it with {_to_load(path)}"


def _on_own_network(path: str | Path, spec: Mapping[str, Any]) -> str:
    return f"`{path}` stands on a network of your own ({spec['name'].removeprefix(OWN)})"


def _to_load(path: str | Path) -> str:
    return f"LQFClassifier.load({str(path)!r}, backbone=network)"


def check_target(path: Path, overwrite: bool) -> None:
    """Refuse to write over something, before any work is done."""
    recover(path)
    if not path.exists():
        check_place(path)
        return
    if not overwrite:
        raise LQFError(
            f"`{path}` exists; choose another output folder, or give {naming.given('overwrite')} to replace it"
        )
    if not has_format(path / "model.json", FORMAT) and not (path.is_dir() and not any(path.iterdir())):
        raise LQFError(
            f"`{path}` exists and is not a fitted model; it is not replaced even with {naming.given('overwrite')}"
        )


def load(path: str | Path, *, backbone: nn.Module | None = None, weights: str | Path | None = None) -> Model:
    """The model, with the settings it was fitted by.

    Args:
        path: the folder.
        backbone: the network itself, where it was a Python object that cannot be named.
        weights: the backbone's weights file, where it has moved.
    """
    return _load(Path(path), backbone, weights, Path(path))


def _load(path: Path, backbone: nn.Module | None, weights: str | Path | None, whole: Path) -> Model:
    """The model in ``path``, which is the folder ``whole`` itself or a member's inside it."""
    if not path.exists():
        recover(path)
    meta = _read_json(path)
    _check_files(path, meta.get("files"))
    try:
        if meta["version"] == STACKED:
            return _load_stack(path, meta, backbone, weights, whole)
        # copies begin where processors like numbers to begin, as computed ones do; products round by that, too
        tensors = {name: value.clone() for name, value in load_file(path / "weights.safetensors").items()}
        state = load_file(path / BACKBONE) if BACKBONE in meta["files"] else None
        rebuilt = _rebuilt(whole, meta["backbone"], backbone, weights, tensors.get("reduction"), state)
        return _assemble(path, meta, tensors, rebuilt, _read_setup(meta, backbone, weights))
    except (LQFError, OSError):
        raise
    except Exception as error:  # a folder that somebody made may hold anything behind right checksums
        raise LQFError(f"`{path}` is damaged ({_what(error)}); fit again") from error


def _write(model: Model, folder: Path) -> None:
    _write_samples(model, folder / "samples.csv")
    own = _write_stack(model, folder) if isinstance(model, Stack) else _write_one(model, folder)
    files = [*own.pop("files"), "samples.csv"]
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
        "files": {n: _sha256(folder / n) for n in files},
    }
    meta = json_values(meta)
    meta["sha256"] = _digest(meta)
    (folder / "model.json").write_text(dump_json(meta))


def _write_one(model: FittedModel, folder: Path) -> dict[str, Any]:
    tensors = {"head": model.head, "point": model.point, "delta": model.delta}
    if model.loo is not None:
        tensors["loo"] = model.loo.outputs
    if model.kept_point is not None:
        tensors |= {"kept_heads": model.kept_point.heads, "kept_fold": model.kept_point.fold}
    reduction = reduction_of(model.backbone)
    if reduction is not None:
        tensors["reduction"] = reduction.cpu()
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "weights.safetensors")
    names = ["weights.safetensors"]
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


def kept_bytes(model: Model) -> int:
    """Size of what is kept for questions, of all members of a stack."""
    members = model.members if isinstance(model, Stack) else (model,)
    return sum(m.known.bytes for m in members if m.known is not None and not isinstance(m.known, NotKept))


def _write_knowledge(model: FittedModel, folder: Path) -> dict[str, Any]:
    """Its size, and its hash where it is kept. Every other file must be there; this one may be deleted."""
    if model.known is None:
        return {}
    tensors = model.known.read(lambda _: None)
    if tensors is None:
        return {"questions": {"bytes": model.known.bytes}}
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / QUESTIONS)
    return {"questions": {"bytes": model.known.bytes, "sha256": _sha256(folder / QUESTIONS)}}


def _read_knowledge(path: Path, meta: dict[str, Any]) -> Known | None:
    """Where it is; models of earlier versions have none."""
    known = meta.get("questions")
    if known is None:
        return None
    if "sha256" not in known:
        return NotKept(known["bytes"])
    return StoredKnowledge(path / QUESTIONS, known["sha256"], known["bytes"])


def _write_stack(model: Stack, folder: Path) -> dict[str, Any]:
    if model.loo is not None:
        save_file({"loo": model.loo.outputs.contiguous()}, folder / "weights.safetensors")
    names = [f"member{k + 1}" for k in range(len(model.members))]
    for name, member in zip(names, model.members, strict=True):
        (folder / name).mkdir()
        _write(member, folder / name)
    files = [f"{name}/model.json" for name in names] + (["weights.safetensors"] if model.loo is not None else [])
    members = [
        {"folder": folder_, "name": name, "weight": w, "share": share}
        for folder_, name, w, share in zip(names, model.names, model.weights, model.shares, strict=True)
    ]
    return {"version": STACKED, "members": members, "classes": list(model.classes), "files": files}


def _write_samples(model: Model, path: Path) -> None:
    t = model.train
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "label", "weight", "group", "sha256", *(["source"] if t.added else [])])
        groups, origins = t.groups or [""] * len(t.ids), t.origins.tolist()
        for i, row in enumerate(zip(t.ids, t.labels.tolist(), t.weights.tolist(), groups, t.hashes, strict=True)):
            own = [row[0], model.classes[row[1]], repr(row[2]), row[3], row[4]]
            writer.writerow([*own, *([origins[i]] if t.added else [])])


def _read_json(path: Path) -> dict[str, Any]:
    try:
        meta = json.loads(read_regular(path / "model.json", LONGEST).decode("utf-8"))
    except FileNotFoundError:
        raise LQFError(
            f"`{path}` is not a fitted model (there is no model.json in it); give the folder that `lqf fit` wrote"
        ) from None
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise LQFError(f"`{path}` cannot be read as a fitted model ({_what(error)})") from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise LQFError(f"`{path}/model.json` was not written by lqf; give the folder that `lqf fit` wrote")
    if meta.get("version") not in (VERSION, STACKED):
        raise LQFError(
            f"`{path}` has format version {meta.get('version')}, this lqf reads {VERSION} and {STACKED}; use a "
            "matching lqf"
        )
    try:
        whole = meta.pop("sha256", None) == _digest(meta)
    except (ValueError, RecursionError):  # NaN, or a nesting that JSON cannot be written with
        whole = False
    if not whole:
        raise LQFError(f"`{path}` is damaged: `model.json` is not what was saved; fit again")
    return meta


def _what(error: BaseException) -> str:
    return shortened(f"{type(error).__name__}: {error}".splitlines()[0], 200)


def _has_digest(file: Path, digest: Any) -> bool:
    try:
        return file.is_file() and _sha256(file) == digest
    except (OSError, ValueError):  # a name that no file can have
        return False


def _check_files(path: Path, files: Any) -> None:
    """Every file is the one that was saved, and lies in the folder."""
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files):
        raise LQFError(f"`{path}` is damaged: `model.json` does not list its files; fit again")
    for name, digest in files.items():
        inside = not PurePosixPath(name).is_absolute() and ".." not in PurePosixPath(name).parts
        if not inside or not _has_digest(path / name, digest):
            raise LQFError(f"`{path}` is damaged: `{name}` is missing or not the file that was saved; fit again")


def _rebuilt(
    path: Path,
    spec: dict[str, Any],
    module: nn.Module | None,
    weights: str | Path | None,
    reduction: torch.Tensor | None,
    state: dict[str, torch.Tensor] | None,
) -> Backbone:
    if module is None and spec["name"].startswith(OWN):
        in_python = "in Python, " if naming.on_command_line() else ""
        raise LQFError(f"{_on_own_network(path, spec)}; {in_python}give it again: {_to_load(path)}")
    return rebuild_backbone(spec, module=module, weights=weights, reduction=reduction, state=state)


def _assemble(
    path: Path,
    meta: dict[str, Any],
    tensors: dict[str, torch.Tensor],
    backbone: Backbone,
    setup: Setup,
) -> FittedModel:
    classes = tuple(meta["classes"])
    check_model(
        path,
        tensors,
        n_outputs(len(classes)),
        backbone.features,
        {name: float(meta[name]) for name in ("alpha", "constant", "beta")},
    )
    train = _read_samples(path / "samples.csv", classes, meta)
    return FittedModel(
        backbone=backbone,
        preprocess=Preprocess.from_dict(meta["preprocess"]),
        classes=classes,
        alpha=float(meta["alpha"]),
        constant=float(meta["constant"]),
        head=tensors["head"],
        point=tensors["point"],
        stage=meta["stage"],
        delta=tensors["delta"],
        beta=float(meta["beta"]),
        train=train,
        loo=_read_loo(meta, tensors, train),
        report=FitReport.from_dict(meta["report"]),
        settings=_fields(Settings, meta["settings"]),
        setup=setup,
        tried=_read_tried(path, meta),
        trained_views=meta.get("trained_views"),
        known=_read_knowledge(path, meta),
        kept_point=_read_point(meta, tensors),
    )


def _read_point(meta: dict[str, Any], tensors: Mapping[str, torch.Tensor]) -> Point | None:
    """Of a model whose training set has changed."""
    if "kept_heads" not in tensors:
        return None
    return Point(cast("Kind", meta["report"]["point"]), tensors["kept_heads"], tensors["kept_fold"])


def _load_stack(
    path: Path, meta: dict[str, Any], backbone: nn.Module | None, weights: str | Path | None, whole: Path
) -> Stack:
    if not all(_MEMBER.fullmatch(m["folder"]) for m in meta["members"]):
        raise LQFError(f"`{path}` is damaged: its members are not folders of its own; fit again")
    members = [_load(path / m["folder"], backbone, weights, whole) for m in meta["members"]]
    train = _read_samples(path / "samples.csv", tuple(meta["classes"]), meta)
    tensors = load_file(path / "weights.safetensors") if meta["loo"] is not None else {}
    return Stack(
        members=tuple(m for m in members if isinstance(m, FittedModel)),
        weights=tuple(m["weight"] for m in meta["members"]),
        names=tuple(m["name"] for m in meta["members"]),
        shares=tuple(m["share"] for m in meta["members"]),
        beta=float(meta["beta"]),
        train=train,
        loo=_read_loo(meta, tensors, train),
        report=FitReport.from_dict(meta["report"]),
        settings=_fields(Settings, meta["settings"]),
        setup=_read_setup(meta, backbone, weights),
        tried=_read_tried(path, meta),
    )


def _read_setup(meta: dict[str, Any], backbone: nn.Module | None, weights: str | Path | None) -> Setup:
    """As it was fitted with, except for what is given anew."""
    given = {"backbone": backbone, "weights": None if weights is None else str(weights)}
    return _fields(Setup, meta["settings"] | {k: v for k, v in given.items() if v is not None})


def _read_loo(meta: dict[str, Any], tensors: Mapping[str, torch.Tensor], train: TrainingTable) -> LeaveOneOut | None:
    if meta["loo"] is None:
        return None
    labels, w = torch.tensor(train.labels), torch.tensor(train.weights)
    if len(tensors["loo"]) != len(labels):
        raise ValueError(f"leave-one-out of {len(tensors['loo'])} images, and {len(labels)} in samples.csv")
    by = _fields(Settings, meta["settings"]).choose_by
    level, note = meta["loo"]["level"], meta["loo"]["note"]
    return LeaveOneOut(tensors["loo"], level, note, labels=labels, weights=w, choose_by=by)


def _read_tried(path: Path, meta: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Models of earlier versions have none."""
    names = meta.get("tried", [])
    outputs = load_file(path / RUNGS) if names else {}
    return {name: outputs[str(i)] for i, name in enumerate(names)}


def _fields(of: type[T], values: Mapping[str, Any]) -> T:
    """Those of the values that are fields of a dataclass; the others have their defaults."""
    check_types(of, values)
    return of(**{f.name: values[f.name] for f in fields(of) if f.name in values})  # type: ignore[arg-type]


def _read_samples(path: Path, classes: tuple[str, ...], meta: Mapping[str, Any]) -> TrainingTable:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    number = {c: i for i, c in enumerate(classes)}
    groups = tuple(r["group"] for r in rows)
    return TrainingTable(
        tuple(r["id"] for r in rows),
        np.array([number[r["label"]] for r in rows], dtype=np.int64),
        np.array([float(r["weight"]) for r in rows]),
        groups if any(groups) else None,
        tuple(r["sha256"] for r in rows),
        meta["train"],
        tuple(meta["shape"]) if "shape" in meta else None,
        tuple(meta.get("added", ())),
        np.array([int(r["source"]) for r in rows], dtype=np.int64) if "added" in meta else None,
    )


def _digest(meta: dict[str, Any]) -> str:
    """sha256 of model.json's content, however it is laid out."""
    return hashlib.sha256(json.dumps(meta, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
