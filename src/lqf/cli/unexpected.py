"""What nobody has foreseen, in a sentence: a full disk, too little memory, and faults of ours."""

from __future__ import annotations

import errno
import os

from lqf.utils.text import shortened

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


def in_words(error: Exception) -> str:
    """One sentence about an error that no module has made one of."""
    what = shortened(f"{type(error).__name__}: {error}".strip().rstrip(":").splitlines()[0], 300)
    name, text = type(error).__name__, str(error)
    if name == "OutOfMemoryError" or isinstance(error, MemoryError) or "can't allocate memory" in text:
        return f"the memory did not suffice ({what}); try a smaller --batch-size or --size, or --device cpu"
    number = error.errno if isinstance(error, OSError) else None
    place = f" to `{error.filename}`" if isinstance(error, OSError) and error.filename else ""
    if number in _FULL or "No space left" in text or "File too large" in text:  # safetensors hides the number
        reason = os.strerror(number) if number in _FULL and number else "No space left on device"
        return f"the disk took no more{place} ({reason}); free some room or choose another place; nothing was replaced"
    if number in _FORBIDDEN or "Read-only file system" in text or "Permission denied" in text:
        reason = os.strerror(number) if number else "Permission denied"
        return f"nothing can be written{place} ({reason}); choose another place"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"`{error.filename}` could not be read or written ({error.strerror}); look whether it is still there"
    if name == "LinAlgError" or name == "_LinAlgError":
        return f"the equations could not be solved ({what}); give a larger --weight-decay, or leave it to `auto`"
    hint = "" if os.environ.get("LQF_DEBUG") == "1" else "; LQF_DEBUG=1 shows where"
    return f"stopped by {what}{hint}"
