"""Whether a folder holds what was saved: its description, and the hashes of all files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path, PurePosixPath
from typing import Any

from lqf.errors import LQFError
from lqf.storage.layout import DESCRIPTION, FORMAT, STACKED, VERSION
from lqf.utils.regular import read_regular
from lqf.utils.text import shortened

LONGEST = 1 << 28
"""Bytes of a `model.json`, at most."""


def read_description(path: Path) -> dict[str, Any]:
    """What `model.json` says, where it is as it was saved."""
    try:
        meta = json.loads(read_regular(path / DESCRIPTION, LONGEST).decode("utf-8"))
    except FileNotFoundError:
        raise LQFError(
            f"`{path}` is not a fitted model (there is no model.json in it); give the folder that `lqf fit` wrote"
        ) from None
    except NotADirectoryError:
        raise LQFError(f"`{path}` is a file, not a fitted model; give the folder that `lqf fit` wrote") from None
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise LQFError(f"`{path}` cannot be read as a fitted model ({what(error)})") from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise LQFError(f"`{path}/model.json` was not written by lqf; give the folder that `lqf fit` wrote")
    if meta.get("version") not in (VERSION, STACKED):
        raise LQFError(
            f"`{path}` has format version {meta.get('version')}, this lqf reads {VERSION} and {STACKED}; use a "
            "matching lqf"
        )
    try:
        whole = meta.pop("sha256", None) == digest(meta)
    except (ValueError, RecursionError):  # NaN, or a nesting that JSON cannot be written with
        whole = False
    if not whole:
        raise LQFError(f"`{path}` is damaged: `model.json` is not what was saved; fit again")
    return meta


def check_files(path: Path, files: Any) -> None:
    """Every file is the one that was saved, and lies in the folder."""
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files):
        raise LQFError(f"`{path}` is damaged: `model.json` does not list its files; fit again")
    for name, digest in files.items():
        inside = not PurePosixPath(name).is_absolute() and ".." not in PurePosixPath(name).parts
        if not inside or not _has_digest(path / name, digest):
            raise LQFError(f"`{path}` is damaged: `{name}` is missing or not the file that was saved; fit again")


def _has_digest(file: Path, digest: Any) -> bool:
    try:
        return file.is_file() and sha256(file) == digest
    except (OSError, ValueError):  # a name that no file can have
        return False


def digest(meta: dict[str, Any]) -> str:
    """sha256 of model.json's content, however it is laid out."""
    return hashlib.sha256(json.dumps(meta, sort_keys=True, allow_nan=False).encode()).hexdigest()


def sha256(path: Path) -> str:
    """Of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def what(error: BaseException) -> str:
    """An error in a line."""
    return shortened(f"{type(error).__name__}: {error}".splitlines()[0], 200)
