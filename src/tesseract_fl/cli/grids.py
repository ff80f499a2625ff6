"""What commands that play grids have in common: their options, and one progress display for all runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tesseract_fl.experiments.sweep import Cell

_OPTIONS = (
    click.option(
        "--store", type=click.Path(file_okay=False, path_type=Path), default=Path("runs/store"), show_default=True,
        help="Where finished runs are kept and found again.",
    ),
    click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Where your data sets are."),
    click.option(
        "--workers", type=click.IntRange(min=1), help="Runs at a time, each with its share of the cores; one per core."
    ),
    click.option("--ray", metavar="ADDRESS", help="Run on this Ray cluster instead: an address, auto or local."),
    click.option("--stored", is_flag=True, help="Run nothing: show what is in the store."),
    click.option("--json", "as_json", is_flag=True, help="Print the results as JSON, and no progress."),
)  # fmt: skip


def options(function: Any) -> Any:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def played(
    grid: list[Cell],
    *,
    store: Path,
    data_dir: Path | None,
    workers: int | None,
    ray: str | None,
    stored: bool,
    as_json: bool,
) -> Iterator[tuple[int, Cell, Path, dict[str, Any]]]:
    """Play a grid; yields each cell's place in it, the cell, its run directory and its summary, as it is finished."""
    from tesseract_fl.cli.progress import cells as progress
    from tesseract_fl.experiments.store import Store
    from tesseract_fl.experiments.sweep import cores, run_cells

    places = {id(cell): place for place, cell in enumerate(grid)}
    with progress(f"{len(grid)} runs", sum(cell.config.rounds for cell in grid), quiet=as_json) as (on_round, say):
        finished = run_cells(
            grid, Store(store), data_dir=data_dir, workers=workers or cores(), on_round=on_round,
            only_stored=stored, ray=ray,
        )  # fmt: skip
        for cell, home, summary in finished:
            say(f"{', '.join(map(str, cell.labels.values()))}: accuracy {percent(summary['accuracy'])}")
            yield places[id(cell)], cell, home, summary


def percent(accuracy: float | None) -> str:
    return "unknown" if accuracy is None else f"{100 * accuracy:.2f}"
