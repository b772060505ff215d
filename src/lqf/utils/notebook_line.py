"""A line of a notebook's cell that is rewritten in place; a page made of the notebook keeps what it said last."""

from __future__ import annotations

from typing import Any


class NotebookLine:
    """One display for all stages of a call: they come one after the other, and the last one stays."""

    def __init__(self) -> None:
        self._handle: Any = None

    def rewrite(self, text: str) -> None:
        """Show this in place of what was there."""
        from IPython.display import display

        shown = {"text/plain": text}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)

    def leave(self) -> None:
        """The next stage takes the same place."""

    def say(self, sentence: str) -> None:
        """Below it."""
        print(sentence)  # noqa: T201 - a cell's stdout; on stderr it would look like an error
