"""A fitted model out of its folder, after every hash was checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from safetensors.torch import load_file
from torch import nn

from lqf.backbones import Backbone, rebuild_backbone
from lqf.data import Preprocess
from lqf.errors import LQFError
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import FittedModel, Model, Stack, TrainingTable
from lqf.fitting.finite import check_model
from lqf.fitting.knowledge import Known, NotKept, StoredKnowledge
from lqf.fitting.point import Kind, Point
from lqf.fitting.report import FitReport
from lqf.linear.targets import n_outputs
from lqf.settings import Settings, Setup
from lqf.storage.checks import check_files, read_description, what
from lqf.storage.layout import BACKBONE, QUESTIONS, RUNGS, SAMPLES, STACKED, WEIGHTS
from lqf.storage.own_network import OWN, on_own_network, to_load
from lqf.storage.samples import read_samples
from lqf.utils import naming
from lqf.utils.rooms import behind_links, recover
from lqf.utils.typed import check_types

T = TypeVar("T")
_MEMBER = re.compile(r"member[1-9][0-9]{0,3}")


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
        recover(behind_links(path))
    meta = read_description(path)
    check_files(path, meta.get("files"))
    try:
        if meta["version"] == STACKED:
            return _load_stack(path, meta, backbone, weights, whole)
        # copies begin where processors like numbers to begin, as computed ones do; products round by that, too
        tensors = {name: value.clone() for name, value in load_file(path / WEIGHTS).items()}
        state = load_file(path / BACKBONE) if BACKBONE in meta["files"] else None
        rebuilt = _rebuilt(whole, meta["backbone"], backbone, weights, tensors.get("reduction"), state)
        return _assemble(path, meta, tensors, rebuilt, _read_setup(meta, backbone, weights))
    except (LQFError, OSError):
        raise
    except Exception as error:  # a folder that somebody made may hold anything behind right checksums
        raise LQFError(f"`{path}` is damaged ({what(error)}); fit again") from error


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
        raise LQFError(f"{on_own_network(path, spec)}; {in_python}give it again: {to_load(path)}")
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
    train = read_samples(path / SAMPLES, classes, meta)
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


def _load_stack(
    path: Path, meta: dict[str, Any], backbone: nn.Module | None, weights: str | Path | None, whole: Path
) -> Stack:
    if not all(_MEMBER.fullmatch(m["folder"]) for m in meta["members"]):
        raise LQFError(f"`{path}` is damaged: its members are not folders of its own; fit again")
    members = [_load(path / m["folder"], backbone, weights, whole) for m in meta["members"]]
    train = read_samples(path / SAMPLES, tuple(meta["classes"]), meta)
    tensors = load_file(path / WEIGHTS) if meta["loo"] is not None else {}
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


def _read_point(meta: dict[str, Any], tensors: Mapping[str, torch.Tensor]) -> Point | None:
    """Of a model whose training set has changed."""
    if "kept_heads" not in tensors:
        return None
    return Point(cast("Kind", meta["report"]["point"]), tensors["kept_heads"], tensors["kept_fold"])


def _read_knowledge(path: Path, meta: dict[str, Any]) -> Known | None:
    """Where it is; models of earlier versions have none."""
    known = meta.get("questions")
    if known is None:
        return None
    if "sha256" not in known:
        return NotKept(known["bytes"])
    return StoredKnowledge(path / QUESTIONS, known["sha256"], known["bytes"])


def _fields(of: type[T], values: Mapping[str, Any]) -> T:
    """Those of the values that are fields of a dataclass; the others have their defaults."""
    check_types(of, values)
    return of(**{f.name: values[f.name] for f in fields(of) if f.name in values})  # type: ignore[arg-type]
