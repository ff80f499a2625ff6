"""Progress on the terminal: a bar with an estimate and a small table for people, plain lines for logs."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from tesseract_fl.reports.journal import suspected

Report = Callable[[dict[str, Any], float], None]


@contextmanager
def cells(title: str, total: int, quiet: bool = False) -> Iterator[tuple[Callable[..., None], Callable[[str], None]]]:
    """One bar for many runs; yields what advances it by some rounds, and what prints a line above it.

    Rounds that were not played just now, because they are in the store, say nothing about how long the others take.
    """
    console = Console(file=sys.stderr, quiet=quiet)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TextColumn("rounds"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
    )
    with Progress(
        *columns, console=console, disable=quiet or not console.is_terminal, speed_estimate_period=600
    ) as bar:
        task = bar.add_task(title, total=total)

        def on_round(rounds: int, played: bool = True) -> None:
            if played:
                bar.advance(task, rounds)
            else:
                bar.tasks[0].completed += rounds  # not through `advance`, which measures the speed

        yield on_round, lambda line: bar.console.print(line, markup=False)


class Board:
    """A small table of the last evaluated rounds, and of the one that was just played."""

    def __init__(self, rows: int = 6) -> None:
        self._rows: deque[tuple[str, ...]] = deque(maxlen=rows)
        self._now: tuple[str, ...] | None = None

    def start(self) -> None:
        self._rows.clear()
        self._now = None

    def add(self, record: dict[str, Any], seconds: float) -> None:
        accuracy = record.get("accuracy")
        quality = "" if accuracy is None else f"{accuracy:.1%}"
        row = (str(record["round"]), quality, str(suspected(record)), f"{seconds:.2f}")
        self._now = row
        if accuracy is not None:
            self._rows.append(row)

    def __rich__(self) -> Table:
        table = Table("round", "accuracy", "suspected clients", "seconds a round", box=None, header_style="dim")
        for column in table.columns:
            column.justify = "right"
        shown = [*self._rows, *([self._now] if self._now and self._now not in self._rows else [])]
        for row in shown:
            table.add_row(*row, style="bold" if row is shown[-1] else "dim")
        return table


@contextmanager
def rounds(quiet: bool = False) -> Iterator[Callable[[str, int, int], Report]]:
    """Yields a function that starts the bar of a run, `(title, total, done)`, and gives its callback."""
    console = Console(file=sys.stderr, quiet=quiet)
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[quality]:>9}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=console)
    board = Board()

    def start(title: str, total: int, done: int = 0) -> Report:
        task = progress.add_task(title, total=total, completed=done, quality="")
        began = time.monotonic()
        board.start()

        def report(record: dict[str, Any], seconds: float) -> None:
            accuracy = record.get("accuracy")
            if accuracy is not None:
                progress.update(task, quality=f"{accuracy:.1%}")
            progress.advance(task)
            board.add(record, seconds)
            if "skipped" in record:
                console.print(f"skipped: {record['skipped']}", markup=False, highlight=False)
            elif accuracy is not None and not console.is_terminal and not quiet:
                pace = (time.monotonic() - began) / (record["round"] - done)
                print(
                    f"{title}: round {record['round']}/{total}, accuracy {accuracy:.1%}, "
                    f"{suspected(record)} suspected, {pace:.2f} s a round, "
                    f"about {pace * (total - record['round']):.0f} s left",
                    file=sys.stderr,
                    flush=True,
                )

        return report

    live = Live(Group(progress, board), console=console, refresh_per_second=4)
    with live if console.is_terminal and not quiet else nullcontext():
        yield start
