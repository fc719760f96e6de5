"""Parquet files of rows, such as those of outputs and traces."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from .extras import require


def write_parquet(path: str | PathLike[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a Parquet file. Replaces an old file.

    Args:
        path: Path of the file.
        rows: Flat dictionaries with equal keys, as `rows()` of an output or a trace returns them.

    Raises:
        ValueError: Without rows, for rows whose keys differ, and if pyarrow is not installed.
    """
    require("write_parquet", "parquet")
    from pyarrow import Table, parquet

    if not rows:
        raise ValueError(f"there are no rows to write to {path}: give at least one")
    for number, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            raise ValueError(
                f"row {number} has the keys {', '.join(row)}, and row 0 has {', '.join(rows[0])}: use one file for each"
            )
    parquet.write_table(Table.from_pylist(list(rows)), path)
