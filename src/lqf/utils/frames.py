"""Tables for pandas, which need not be installed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lqf.errors import MissingDependency

if TYPE_CHECKING:
    from pandas import DataFrame


class Tabular(ABC):
    """A result that is a table as well."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """One dict a row, all with the same keys, of plain values."""

    def to_frame(self) -> DataFrame:
        """The rows as a pandas table."""
        rows = self.rows()
        return data_frame(rows, list(rows[0]) if rows else ())


def data_frame(rows: Sequence[Any], columns: Sequence[str]) -> DataFrame:
    """A pandas table of rows with these columns."""
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise MissingDependency("pandas", "tables (`to_frame`)") from error
    return DataFrame(rows, columns=list(columns))
