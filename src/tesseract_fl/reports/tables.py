"""Tables of results: rows of plain values in, CSV and Markdown out."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from tesseract_fl.checkpoint import write_atomically

Row = Mapping[str, Any]


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """One line per row, with every column that any row has."""
    text = io.StringIO()
    columns = list(dict.fromkeys(column for row in rows for column in row))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode())


def write_parquet(rows: Sequence[Row], path: Path) -> bool:
    """The same as Parquet, columns with their types; False, and no file, where pyarrow is not installed.

    A column with numbers and words is text.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        return False
    columns = {column: [row.get(column) for row in rows] for row in rows for column in row}
    for column, values in columns.items():
        try:
            pyarrow.array(values)
        except pyarrow.ArrowException:
            columns[column] = [None if value is None else str(value) for value in values]
    parquet.write_table(pyarrow.table(columns), path)
    return True


def matrix(rows: Sequence[Row], *, down: str, across: str, value: str) -> tuple[list[str], list[list[Any]]]:
    """A cross table of means: heads, and lines that begin with their name; None where there is no finite number."""
    together: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        together.setdefault((str(row[down]), str(row[across])), []).extend(finite(row.get(value)))
    names, heads = (list(dict.fromkeys(keys)) for keys in zip(*together, strict=True)) if together else ([], [])
    means = {key: mean(values) for key, values in together.items() if values}
    return [down, *heads], [[name, *(means.get((name, head)) for head in heads)] for name in names]


def finite(value: Any) -> list[float]:
    """A number, as one or as text; nothing where it is none.

    >>> finite("0.5"), finite(""), finite("nan")
    ([0.5], [], [])
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        return []
    return [number] if math.isfinite(number) else []


def markdown(heads: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """A table as Markdown: names to the left, numbers to the right."""

    def row(cells: Sequence[Any]) -> str:
        return "| " + " | ".join("" if cell is None else str(cell) for cell in cells) + " |"

    rule = "|---|" + "---:|" * (len(heads) - 1)
    return "\n".join([row(heads), rule, *(row(line) for line in lines)]) + "\n"
