"""What heads are made of: features, and the kernel that was given with them."""

from typing import Any

import pytest
from torch import Tensor

from lqf.fitting import HeadFit
from lqf.fitting.encoder import Encoder


def given_kernels(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Tensor, Tensor | None]]:
    """By pooling, of every head that is fitted from now on."""
    seen: dict[str, tuple[Tensor, Tensor | None]] = {}
    plain = HeadFit.of.__func__  # type: ignore[attr-defined]

    def of(cls: type, encoder: Encoder, pooling: str, z: Tensor, *args: Any, gram: Tensor | None = None) -> HeadFit:
        seen[pooling] = z, gram
        return plain(cls, encoder, pooling, z, *args, gram=gram)

    monkeypatch.setattr(HeadFit, "of", classmethod(of))
    return seen
