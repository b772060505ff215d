"""Errors meant to be read by a person: the message is a sentence, which the command line prints without a traceback."""

import sys
from functools import cache
from typing import Any


class LQFError(ValueError):
    """Something the user gave cannot be used; the message says what was given, what was expected and what to do."""


class MissingDependency(LQFError, ImportError):
    """An optional package is not installed.

    Args:
        package: what to install, as `pip install` spells it.
        purpose: what it is needed for, e.g. "`timm:` backbones".
        command: the command to type where it is not plainly ``pip install PACKAGE``.
    """

    def __init__(self, package: str, purpose: str, command: str | None = None) -> None:
        command = command or f"pip install {package}"
        super().__init__(f"{package} is needed for {purpose} and is not installed: run `{command}`")
        self.package = package


class NotFitted(LQFError):
    """A model was asked for something before there was one; to scikit-learn, where it is in use, a `NotFittedError`."""


def not_fitted(sentence: str) -> NotFitted:
    """The error to raise; scikit-learn need not be installed, and who waits for its error has imported it."""
    known = sys.modules.get("sklearn.exceptions")
    return NotFitted(sentence) if known is None else _to_scikit_learn(known.NotFittedError)(sentence)


@cache
def _to_scikit_learn(theirs: type) -> type[NotFitted]:
    return type("NotFitted", (NotFitted, theirs), {"__doc__": NotFitted.__doc__, "__module__": __name__})


class Incomplete(Exception):
    """Some parts of a long work failed and the others are done; the message says how many and what to do.

    Args:
        sentence: the message.
        result: what there is, as a command returns it.
    """

    def __init__(self, sentence: str, result: dict[str, Any]) -> None:
        super().__init__(sentence)
        self.result = result


class ProcessLost(Exception):
    """Another process of the same fit has ended, and its part of the data with it.

    Args:
        sentence: which one and why, as far as that is known.
        aloud: this process is to say it, because the first one, which usually speaks, does not answer.
    """

    def __init__(self, sentence: str, aloud: bool = False) -> None:
        super().__init__(sentence)
        self.aloud = aloud
