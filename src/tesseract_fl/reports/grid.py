"""The results of a grid: one tidy table with pictures, and the matrices that a page shows of it.

The paper's numbers stand beside ours where the table has them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from tesseract_fl.reports import plots, tables
from tesseract_fl.reports.sources import GRID
from tesseract_fl.types import DataError

# shares of one → what they are called
FIGURES = {
    "accuracy": "test accuracy",
    "attack_success": "the attack's success",
    "true_positive_rate": "malicious clients caught",
    "false_positive_rate": "honest clients caught",
    "auroc": "AUROC of reputation",
    "malicious_weight": "weight of the malicious clients",
    "honest_weight_lost": "weight that honest clients lost",
}
HONEST = "* the malicious clients behaved honestly in more than half of the rounds"
PAPER = "paper"  # a column with the paper's accuracy, in the unit of `accuracy`
WORDS = ("data", "data_sha256", "version")  # what of a summary is no number
OURS = (PAPER, "data_read", "directory")  # columns that are in no summary
NULLS = ("test_loss",)  # blank where it was no number


def is_grid(directory: Path) -> bool:
    return (directory / GRID).is_file()


def runs_in(directory: Path) -> int:
    return len(read_rows(directory / GRID)) if is_grid(directory) else 0


def summaries(path: Path) -> dict[str, dict[str, Any]]:
    """What a table of runs says of them, by their names in the store; nothing if it is not there, or of something else.

    What a run is must be whole: the name, the data and the accuracy. Whatever lacks one of them is played again.
    """
    rows = read_rows(path) if path.is_file() else []
    try:
        whole = [row for row in rows if row.get("directory") and row.get("accuracy") and _held(row)]
        return {row["directory"]: _summary(row) for row in whole}
    except ValueError as error:
        raise _damaged(path, error) from error


def _summary(row: Mapping[str, str]) -> dict[str, Any]:
    columns = list(row)
    came_out = columns[columns.index("accuracy") :]  # what varied is written before that; rounds may have
    came_out += [key for key in ("rounds",) if key in row and key not in came_out]
    found = {key: _value(key, row[key]) for key in came_out if (row[key] or key in NULLS) and key not in OURS}
    return found | {"data": _held(row)}


def _held(row: Mapping[str, str]) -> str:
    """Which data was read: a column of its own where data sets vary."""
    varied = list(row).index("data") < list(row).index("accuracy") if "data" in row else True
    return row.get("data_read", "") if varied else row["data"]


def _value(column: str, text: str) -> Any:
    """
    >>> _value("rounds", "500"), _value("accuracy", "0.5"), _value("version", "1.0")
    (500, 0.5, '1.0')
    """
    if column in WORDS:
        return text
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        return float(text)


def read_grids(directory: Path) -> list[dict[str, Any]]:
    """The matrices of a grid, means over seeds, for each combination of whatever else varies."""
    rows = _rows(directory / GRID)
    varied = [key for key in rows[0] if key not in ("rule", "attack", "seed")]
    groups = apart(rows, varied[: varied.index("accuracy")])  # what varied is written before what came out
    name = directory.resolve().name
    return [_grid(f"{name}, {what}" if what else name, together) for what, together in groups.items()]


def _grid(name: str, rows: Sequence[dict[str, str]]) -> dict[str, Any]:
    found = {name: _matrix(rows, name) for name in (*FIGURES, PAPER)}
    heads, names = found["accuracy"]["rules"], found["accuracy"]["attacks"]
    marks = _mostly_honest(rows, "attack", "rule")
    return {
        "name": name,
        "rules": heads,
        "attacks": names,
        "runs": len(rows),
        "figures": [
            {"figure": name, "title": words, "values": found[name]["values"]}
            for name, words in FIGURES.items()
            if any(value is not None for line in found[name]["values"] for value in line)
        ],
        "paper": found[PAPER]["values"] if any(row.get(PAPER) for row in rows) else None,
        "marked": [[(name, head) in marks for head in heads] for name in names],
        "note": HONEST if marks else "",
    }


def read_rows(path: Path) -> list[dict[str, str]]:
    """A table as it was written; a line that is too short or too long is an error."""
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} can't be read: {error}") from error
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise _damaged(path, f"line {number} has not as many values as there are columns")
    return rows


def _damaged(path: Path, why: object) -> DataError:
    return DataError(f"{path} is not as it was written: {why}; put a copy back, delete it, or name another --out")


def _rows(path: Path) -> list[dict[str, str]]:
    rows = read_rows(path)
    missing = {"rule", "attack", "accuracy"} - set(rows[0] if rows else ())
    if missing:
        raise DataError(f"{path} has no {', '.join(sorted(missing))}: a grid's matrix needs rule, attack and accuracy")
    return rows


def _matrix(rows: Sequence[dict[str, str]], figure: str) -> dict[str, Any]:
    heads, lines = tables.matrix(rows, down="attack", across="rule", value=figure)
    return {"rules": heads[1:], "attacks": [line[0] for line in lines], "values": [line[1:] for line in lines]}


def write(rows: Sequence[Mapping[str, Any]], varied: Sequence[str], out: Path) -> tuple[str, list[Path]]:
    """Leave the tables and pictures of a grid in `out`; the cross tables as text, and the files. No rows, no files."""
    if not rows:
        return "", []
    out.mkdir(parents=True, exist_ok=True)
    tables.write_csv(rows, out / "results.csv")
    files = [out / "results.csv"]
    if tables.write_parquet(rows, out / "results.parquet"):
        files.append(out / "results.parquet")
    axes = crossed(varied)
    if axes is None:
        return "", files
    down, across = axes
    title = f"final accuracy (%), {down} × {across}"
    parts, pictured = [], []
    for what, together in apart(rows, [key for key in varied if key not in (down, across, "seed")]).items():
        heads, lines = tables.matrix(together, down=down, across=across, value="accuracy")
        honest = _mostly_honest(together, down, across)
        cells = [_marked(line, heads, honest) for line in lines]
        worst = _worst(cells) if down == "attack" else []
        table = tables.markdown(heads, [[line[0], *map(_percent, line[1:])] for line in [*cells, *worst]])
        table += f"\n{HONEST}\n" if honest else ""
        parts.append(f"## {what}\n\n{table}" if what else table)
        words = f"{title}; {what}" if what else title
        pictured.append(plots.Cross(words, heads, lines, marked=honest, note=HONEST if honest else ""))
    text = "\n".join(parts)
    (out / "results.md").write_text(text.replace(HONEST, f"\\{HONEST}"))  # or Markdown makes a list of it
    pictures = [out / "results.png", out / "results.svg"]
    plots.heat_maps(pictured, pictures)
    return text, [*files, out / "results.md", *pictures]


def apart(rows: Sequence[Any], keys: Sequence[str]) -> dict[str, list[Any]]:
    """The rows that agree in all of `keys` together, under words that say in what they do; "" if all of them do.

    >>> apart([{"lr": 0.1, "f": 2}, {"lr": 0.2, "f": 2}], ["lr", "f"])
    {'lr 0.1': [{'lr': 0.1, 'f': 2}], 'lr 0.2': [{'lr': 0.2, 'f': 2}]}
    """
    differ = [key for key in keys if len({str(row[key]) for row in rows}) > 1]
    groups: dict[str, list[Any]] = {}
    for row in rows:
        groups.setdefault(", ".join(f"{key} {row[key]}" for key in differ), []).append(row)
    return groups


def crossed(varied: Sequence[str]) -> tuple[str, str] | None:
    """What goes down and what across: attacks and rules, where they vary, else what varies last besides the seed.

    >>> crossed(["clients", "partition", "rule", "seed"]), crossed(["clients", "lr"]), crossed(["lr", "seed"])
    (('partition', 'rule'), ('clients', 'lr'), None)
    """
    others = [key for key in varied if key != "seed"]
    if len(others) < 2:
        return None
    across = "rule" if "rule" in others else next(key for key in reversed(others) if key != "attack")
    others.remove(across)
    return ("attack" if "attack" in others else others[-1]), across


def _mostly_honest(rows: Iterable[Mapping[str, Any]], down: str, across: str) -> set[tuple[str, str]]:
    """Where in a cross table an attacker, of one seed at least, behaved in more than half of the rounds."""
    return {
        (str(row[down]), str(row[across]))
        for row in rows
        for idle in tables.finite(row.get("not_attacked"))
        for rounds in tables.finite(row.get("rounds"))
        if 2 * idle > rounds
    }


def _marked(line: Sequence[Any], heads: Sequence[str], marks: Set[tuple[str, str]]) -> list[Any]:
    """The name of a line, and each of its values with whether it is marked."""
    name, *values = line
    return [name, *((value, (name, head) in marks) for value, head in zip(values, heads[1:], strict=True))]


def _worst(lines: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """A line more, where there are several attacks: the least accuracy under any of them."""
    attacked = [line[1:] for line in lines if line[0] != "none"]
    if len(attacked) < 2:
        return []
    known = [[cell for cell in column if cell[0] is not None] for column in zip(*attacked, strict=True)]
    return [["**worst**", *(min(column, default=(None, False)) for column in known)]]


def _percent(cell: tuple[float | None, bool]) -> str | None:
    value, marked = cell
    return None if value is None else f"{100 * value:.2f}{'*' if marked else ''}"
