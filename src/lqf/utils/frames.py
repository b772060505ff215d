"""Tables for pandas, which need not be installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lqf.errors import MissingDependency

if TYPE_CHECKING:
    from pandas import DataFrame


def data_frame(rows: Sequence[Any], columns: Sequence[str]) -> DataFrame:
    """A pandas table of rows with these columns."""
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise MissingDependency("pandas", "tables (`to_frame`)") from error
    return DataFrame(rows, columns=list(columns))
