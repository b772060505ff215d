"""The sentence about a path that leads to no images, which a command says before it waits for torch."""

from __future__ import annotations

from pathlib import Path

from lqf.errors import LQFError


def no_images(path: Path) -> LQFError:
    """The error where a path is neither a folder nor a manifest."""
    return LQFError(f"`{path}` {_what(path)}; expected a folder CLASS/*.jpg or a .csv manifest")


def _what(path: Path) -> str:
    if path.exists():
        return "is a file"
    return "is not there" if path.is_absolute() else f"is not there (looked in `{Path.cwd()}`)"
