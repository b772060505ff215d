"""What a pass over one batch computes anew every time although it never changes: the values of the network itself.

J·v and Jᵀ·u of the same inputs both begin with the primal, a third of their arithmetic. `PrimalCache` watches one pass
over a batch and keeps the result of every operation; inside it, an operation on the same tensors gives what it gave
before and only tangents and gradients are computed. It works below automatic differentiation and knows nothing of
layers: whatever the network is made of, an operation is recognised by itself and the memory it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

Key = tuple[Any, Hashable, Hashable]
_active: ContextVar[PrimalCache | None] = ContextVar("lqf_primal", default=None)


def remembered(function: Callable[..., Tensor], *args: Any) -> Tensor:
    """``function(*args)`` as one operation of the primal: kernels that PyTorch does not see, or many small steps."""
    primal = _active.get()
    return function(*args) if primal is None else primal.recall(function, args)


def keeping() -> bool:
    """Whether values are being kept, or kept ones used."""
    return _active.get() is not None


class CannotCache(RuntimeError):
    """The network changes its activations in place."""


class PrimalCache(TorchDispatchMode):
    """The values of one pass.

    Example:
        >>> net, x = torch.nn.Linear(3, 2), torch.randn(5, 3)
        >>> primal = PrimalCache([x, *net.parameters()])
        >>> z = primal.watch(lambda: net(x))
        >>> with primal:
        ...     again = net(x)
        >>> bool((again == z).all()), primal.hits
        (True, 1)

    Args:
        constants: tensors that no one changes: inputs, weights, buffers.
    """

    def __init__(self, constants: Iterable[Tensor]):
        super().__init__()
        self._constants = tuple(constants)
        self._fixed = {_storage(t) for t in self._constants}
        self._values: dict[Key | None, Any] = {}
        self._seen: set[Any] = set()  # operations that have a value
        self._watching, self.hits, self.bytes = False, 0, 0
        self._token: Any = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled inside; asking the compiler not to look would first import it, which takes a second."""
        return False

    def watch(self, run: Callable[[], Tensor]) -> Tensor:
        """Run the primal once, and keep what it computes.

        Raises:
            CannotCache: where a value that would be kept is overwritten.
        """
        self._watching = True
        try:
            with torch.no_grad(), self:
                return run()
        finally:
            self._watching = False

    def __enter__(self) -> PrimalCache:
        self._token = _active.set(self)
        return super().__enter__()

    def __exit__(self, *exc: Any) -> None:
        _active.reset(self._token)
        super().__exit__(*exc)

    def recall(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """The value of ``function``, kept or computed, as new tensors on the same memory."""
        key = self._key(function, args, {})
        if key in self._values:
            self.hits += 1
            return _aliases(self._values[key])
        token = _active.set(None)
        try:
            with torch.utils._python_dispatch._disable_current_modes():
                out = function(*args)
        finally:
            _active.reset(token)
        return self._noted(key, out)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called for every operation on tensors."""
        kwargs = kwargs or {}
        if func._schema.is_mutable:
            return self._mutating(func, args, kwargs)
        if not (self._watching or func in self._seen):
            return func(*args, **kwargs)
        if func.is_view or not _is_pure(func):
            return func(*args, **kwargs)
        key = self._key(func, args, kwargs)
        if key in self._values:
            self.hits += 1
            return _aliases(self._values[key])
        return self._noted(key, func(*args, **kwargs))

    def _noted(self, key: Key | None, out: Any) -> Any:
        if not self._watching or key is None:
            return out
        self._values[key] = out
        self._seen.add(key[0])
        for t in _tensors(out):
            if _storage(t) not in self._fixed:
                self._fixed.add(_storage(t))
                self.bytes += t.untyped_storage().nbytes()
        return _aliases(out)

    def _mutating(self, func: Any, args: Any, kwargs: Any) -> Any:
        if torch.Tag.inplace_view not in func.tags:
            written = [a for a, s in zip(args, func._schema.arguments, strict=False) if s.is_write]
            written += [kwargs[s.name] for s in func._schema.arguments if s.is_write and s.name in kwargs]
            if any(_storage(t) in self._fixed for t in _tensors(written)):
                raise CannotCache(f"{func} overwrites an activation")
        return func(*args, **kwargs)

    def _key(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Key | None:
        """None where an operand may change.

        Kept memory is never given away, so once all is watched, an operand that may change cannot be mistaken for it.
        """
        if self._watching and any(_storage(t) not in self._fixed for t in _tensors((args, kwargs))):
            return None
        return (func, _frozen(args), _frozen(kwargs) if kwargs else ())


_IMPURE = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided")


def _is_pure(func: Any) -> bool:
    name = func._schema.name.split("::")[1]
    return name not in _IMPURE and torch.Tag.nondeterministic_seeded not in func.tags


def _tensors(value: Any) -> list[Tensor]:
    return [t for t in tree_leaves(value) if isinstance(t, Tensor)]


def _storage(t: Tensor) -> int:
    return t.untyped_storage().data_ptr()


def _aliases(out: Any) -> Any:
    """New tensors on the same memory: automatic differentiation writes its own notes on what it is given."""
    return out.detach() if isinstance(out, Tensor) else tree_map_only(Tensor, lambda t: t.detach(), out)


def _frozen(value: Any) -> Hashable:
    """A hashable stand-in; tensors by the memory they show."""
    if isinstance(value, Tensor):
        return (value.data_ptr(), value.shape, value.stride(), value.dtype)
    if isinstance(value, list | tuple):
        return tuple([_frozen(v) for v in value])
    if isinstance(value, dict):
        return tuple((k, _frozen(v)) for k, v in sorted(value.items()))
    return (type(value), value) if isinstance(value, Hashable) else (type(value), repr(value))
