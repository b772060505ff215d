"""What a long solve has reached so far, in one file that is always whole.

The file holds the solver's vectors and, as metadata, where it is and what problem it belongs to. It is written beside
its final name and moved there, so that a kill at any moment leaves the previous checkpoint readable.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lqf.errors import LQFError
from lqf.utils.files import atomic_file


class Checkpoint:
    """One checkpoint file of one problem.

    Args:
        path: the file.
        fingerprint: settings and data that decide the problem; resuming another problem is refused.
        every: seconds between two writes, at least.
    """

    def __init__(self, path: Path, fingerprint: Mapping[str, Any], every: float = 10.0):
        self.path, self.every = path, every
        self._fingerprint = json.dumps(fingerprint, sort_keys=True)
        self._last = time.monotonic()
        self._vectors: dict[str, Tensor] = {}
        self._state: dict[str, Any] = {}

    def with_more(self, vectors: Mapping[str, Tensor], state: Mapping[str, Any]) -> Checkpoint:
        """The same file; these are written beside whatever is saved."""
        other = copy(self)
        other._vectors, other._state = {**self._vectors, **vectors}, {**self._state, **state}
        return other

    def save(self, vectors: Mapping[str, Tensor], state: Mapping[str, Any], force: bool = False) -> None:
        """Write if the last write is long enough ago."""
        if not force and time.monotonic() - self._last < self.every:
            return
        self._last = time.monotonic()
        tensors = {k: v.detach().cpu().contiguous() for k, v in {**vectors, **self._vectors}.items()}
        meta = {"fingerprint": self._fingerprint, "state": json.dumps({**state, **self._state})}
        with atomic_file(self.path) as beside:
            save_file(tensors, beside, metadata=meta)

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Vectors and state; None where there is none; LQFError where it is damaged or of another problem."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, "pt") as file:
                meta = file.metadata() or {}
                vectors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118 - not a dict
        except (SafetensorError, OSError) as error:
            raise LQFError(
                f"`{self.path}` is no readable checkpoint ({error}); delete it and fit without --resume"
            ) from error
        if meta.get("fingerprint") != self._fingerprint:
            raise LQFError(
                f"`{self.path}` belongs to a fit with other data or settings; give the same ones, or no --resume"
            )
        return vectors, json.loads(meta["state"])

    def remove(self) -> None:
        """Forget it: the fit is finished."""
        self.path.unlink(missing_ok=True)
