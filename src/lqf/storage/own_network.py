"""Models that stand on a network which was given as a Python object, and is not saved with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lqf.fitting import Model

OWN = "module:"
"""Before the class of such a network."""


def about_loading(model: Model, path: str | Path) -> str | None:
    """What its user has to know about a saved model: how it is loaded, where its network cannot be saved."""
    spec = model.backbone.spec
    if not spec["name"].startswith(OWN):
        return None
    return f"{on_own_network(path, spec)}, which is not saved with it; load it with {to_load(path)}"


def on_own_network(path: str | Path, spec: Mapping[str, Any]) -> str:
    """What such a model stands on."""
    return f"`{path}` stands on a network of your own ({spec['name'].removeprefix(OWN)})"


def to_load(path: str | Path) -> str:
    """How it is loaded."""
    return f"LQFClassifier.load({str(path)!r}, backbone=network)"
