"""The results of a grid: one tidy table, and a cross table of accuracies as text and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from tesseract_fl.reports import plots, tables


def write(rows: Sequence[Mapping[str, Any]], varied: Sequence[str], out: Path) -> tuple[str, list[Path]]:
    """Leave the tables and pictures of a grid in `out`; the cross table as text, and the files."""
    out.mkdir(parents=True, exist_ok=True)
    tables.write_csv(rows, out / "results.csv")
    files = [out / "results.csv"]
    if tables.write_parquet(rows, out / "results.parquet"):
        files.append(out / "results.parquet")
    axes = crossed(varied)
    if not rows or axes is None:
        return "", files
    heads, lines = accuracies(rows, *axes)
    text = tables.markdown(heads, [[line[0], *map(_shown, line[1:])] for line in lines])
    (out / "results.md").write_text(text)
    pictures = [out / "results.png", out / "results.svg"]
    plots.heat_map(heads, lines, pictures, f"final accuracy, {axes[0]} × {axes[1]}")
    return text, [*files, out / "results.md", *pictures]


def crossed(varied: Sequence[str]) -> tuple[str, str] | None:
    """What goes down and what across: attacks and rules, or the only two settings that vary besides the seed."""
    others = [key for key in varied if key != "seed"]
    if {"attack", "rule"} <= set(others):
        return "attack", "rule"
    return (others[0], others[1]) if len(others) == 2 else None


def accuracies(rows: Sequence[Mapping[str, Any]], down: str, across: str) -> tuple[list[str], list[list[Any]]]:
    """The cross table of final accuracies in per cent, means over what else varies."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        group = groups.setdefault((row[down], row[across]), [])
        if row["accuracy"] is not None:
            group.append(100 * row["accuracy"])
    means = [
        {down: name, across: head, "accuracy": mean(values) if values else None}
        for (name, head), values in groups.items()
    ]
    return tables.matrix(means, down=down, across=across, value="accuracy")


def _shown(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"
