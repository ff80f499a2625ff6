"""Progress on the terminal: a bar with an estimate and a small table for people, plain lines for logs."""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
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


class Estimate:
    """How long a grid will still take. A round of one kind of run says little about a round of another kind.

    >>> estimate = Estimate({"mnist": 4, "cifar10": 2}, now=iter([0, 30, 60]).__next__)
    >>> estimate.add("mnist", 2, seconds=60)  # two at a time: a minute of work in half a minute
    >>> str(estimate)
    'over 30 s left'
    >>> estimate.add("cifar10", 1, seconds=60)
    >>> str(estimate)
    '60 s left'
    """

    def __init__(self, rounds: Mapping[str, int], now: Callable[[], float] = time.monotonic) -> None:
        self._left = Counter(rounds)
        self._played: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._now, self._began = now, now()

    def add(self, kind: str, rounds: int, seconds: float | None) -> None:
        """So many more are done, in so many seconds; None: earlier, or for another run, which says nothing."""
        self._left[kind] -= rounds
        if seconds is not None:
            self._played[kind] += rounds
            self._seconds[kind] += seconds

    def __str__(self) -> str:
        done = sum(self._seconds.values())
        if not done:
            return ""
        work = sum(
            left * self._seconds[kind] / self._played[kind]
            for kind, left in self._left.items()
            if kind in self._seconds
        )
        unknown = any(left > 0 for kind, left in self._left.items() if kind not in self._seconds)
        return f"{'over ' if unknown else ''}{duration((self._now() - self._began) * work / done)} left"


def duration(seconds: float) -> str:
    """
    >>> duration(7.2), duration(754), duration(40000), duration(400000)
    ('7 s', '13 min', '11.1 h', '4.6 days')
    """
    for limit, unit, words, digits in ((90, 1, "s", 0), (5400, 60, "min", 0), (172800, 3600, "h", 1)):
        if seconds < limit:
            return f"{seconds / unit:.{digits}f} {words}"
    return f"{seconds / 86400:.1f} days"


@contextmanager
def cells(
    title: str, rounds: Mapping[str, int], quiet: bool = False
) -> Iterator[tuple[Callable[[str, int, float | None], None], Callable[[str], None]]]:
    """One bar for many runs, of which there are so many rounds of each kind; yields what advances it, as `Estimate.add`
    does, and what prints a line: above the bar, or, where there is no terminal, with the estimate."""
    console = Console(file=sys.stderr, quiet=quiet)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TextColumn("rounds"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    estimate = Estimate(rounds)
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task(title, total=sum(rounds.values()), left="")

        def on_round(kind: str, rounds: int, seconds: float | None) -> None:
            estimate.add(kind, rounds, seconds)
            bar.update(task, advance=rounds, left=str(estimate))

        def say(line: str) -> None:
            left = "" if console.is_terminal else str(estimate)
            bar.console.print(f"{line}{left and f' ({left})'}", markup=False)

        yield on_round, say


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
