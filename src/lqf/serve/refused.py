"""Requests that are not answered."""

from __future__ import annotations

from lqf.errors import LQFError


class Refused(LQFError):
    """A request that is not answered; the message is shown on the page.

    Args:
        status: of HTTP.
        sentence: why, and what to do.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
