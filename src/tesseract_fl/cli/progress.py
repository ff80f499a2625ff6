"""Progress on the terminal: a bar with an estimate for people, plain lines for logs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

Report = Callable[[dict[str, Any], float], None]


@contextmanager
def cells(title: str, total: int, quiet: bool = False) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """One bar for many runs; yields what advances it by some rounds, and what prints a line above it."""
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
        yield lambda rounds: bar.advance(task, rounds), lambda line: bar.console.print(line, markup=False)


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
    progress = Progress(*columns, console=console, disable=quiet or not console.is_terminal)

    def start(title: str, total: int, done: int = 0) -> Report:
        task = progress.add_task(title, total=total, completed=done, quality="")
        began = time.monotonic()

        def report(record: dict[str, Any], seconds: float) -> None:
            accuracy = record.get("accuracy")
            if accuracy is not None:
                progress.update(task, quality=f"{accuracy:.1%}")
            progress.advance(task)
            if "skipped" in record:
                progress.console.print(f"skipped: {record['skipped']}", markup=False)
            elif accuracy is not None and not console.is_terminal and not quiet:
                pace = (time.monotonic() - began) / (record["round"] - done)
                print(
                    f"{title}: round {record['round']}/{total}, accuracy {accuracy:.1%}, "
                    f"{pace:.2f} s a round, about {pace * (total - record['round']):.0f} s left",
                    file=sys.stderr,
                    flush=True,
                )

        return report

    with progress:
        yield start
