"""How results look in a notebook. Pages are made above the results, so each page says of what it is the view.

      @view_of(Audit)
      def audit_view(audit): …     # HTML

Without a view, a notebook shows what `repr` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lqf.errors import MissingDependency

_VIEWS: dict[type, Callable[[Any], str]] = {}
View = TypeVar("View", bound=Callable[..., str])


def view_of(*kinds: type) -> Callable[[View], View]:
    """Make a function the view of some classes."""

    def known(view: View) -> View:
        _VIEWS.update(dict.fromkeys(kinds, view))
        return view

    return known


class Shown:
    """Something that a notebook shows as HTML, where its view has been imported (`lqf.LQFClassifier` does that)."""

    def _repr_html_(self) -> str | None:
        view = next((_VIEWS[kind] for kind in type(self).__mro__ if kind in _VIEWS), None)
        try:
            return None if view is None else view(self)
        except MissingDependency:  # without jinja2 a notebook shows the text, as for any object without a view
            return None
