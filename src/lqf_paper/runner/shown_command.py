"""The command on the results page: what anyone can type to compute the same, without paths of this machine."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

NO_RESULT = ("--finished", "--cells-only", "--json")
"""Options that compute nothing, or only change what is printed."""


def shown_command(command: str, names: Sequence[str], name: str, data: Sequence[str]) -> str:
    """The command for one experiment of those that were typed, with data sets and files by name.

    Args:
        command: as it was typed.
        names: the experiments that it ran.
        name: the one of interest.
        data: folders of its data sets.
    """
    words = _without_methods([w for w in shlex.split(command) if w not in NO_RESULT])
    folders = {f: Path(f).resolve().name for f in data}
    return shlex.join(_short(w, folders) for w in _with_name(words, names, name))


def _without_methods(words: list[str]) -> list[str]:
    """Without `--methods` and its names: the page shows the cells of all."""
    if "--methods" not in words:
        return words
    first = words.index("--methods")
    last = next((k for k in range(first + 1, len(words)) if words[k].startswith("--")), len(words))
    return words[:first] + words[last:]


def _with_name(words: list[str], names: Sequence[str], name: str) -> list[str]:
    """The names that were typed, all in a row, replaced by one."""
    typed = (*names, "all")
    first = next((k for k, w in enumerate(words) if w in typed and words[k - 1] not in ("--data", "--out")), None)
    if first is None:
        return words
    last = first
    while last < len(words) and words[last] in typed:
        last += 1
    return [*words[:first], name, *words[last:]]


def _short(word: str, folders: dict[str, str]) -> str:
    """The last part of a path; of `--out=a/b` too."""
    if word.startswith("--") and "=" in word:
        option, _, given = word.partition("=")
        return f"{option}={_short(given, folders)}"
    if word in folders:
        return folders[word]
    return Path(word).name if "/" in word else word
