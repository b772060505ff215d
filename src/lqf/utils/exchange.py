"""Two names of a file system exchanged in one step, where the system can."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

_HERE, _EXCHANGE = -100, 2
"""AT_FDCWD and RENAME_EXCHANGE of linux/fcntl.h and linux/fs.h."""
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)
"""What a kernel or a file system that has no exchange answers."""


def exchange(one: Path, other: Path) -> bool:
    """Each takes the other's place at once; False, with nothing changed, where system or file system has no such call.

    Raises:
        OSError: they cannot be renamed.
    """
    rename = _renameat2()
    if rename is None:
        return False
    if rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))


def _renameat2() -> ctypes._NamedFuncPointer | None:
    """The C library's function; glibc has it since 2.28, macOS and Windows have none."""
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, TypeError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    function.restype = ctypes.c_int
    return function
