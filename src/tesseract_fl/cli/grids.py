"""What commands that play grids have in common: their options, and one progress display for all runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tesseract_fl.experiments.sweep import Cell
    from tesseract_fl.types import TesseractError

Played = tuple["Cell", Path, dict[str, Any]]  # a run of a grid, its directory and its summary

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
    click.option("--stored", is_flag=True, help="Run nothing: show what the store, or the table that is there, has."),
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
    known: Mapping[str, dict[str, Any]] | None = None,
) -> tuple[list[Played], list[str]]:
    """Play a grid: what was played, in its order, and why the rest could not be. `known` is what needs no playing."""
    from tesseract_fl.cli.progress import cells as progress
    from tesseract_fl.experiments.store import Store
    from tesseract_fl.experiments.sweep import cores, run_cells

    found: dict[int, Played] = {}
    failed: dict[str, TesseractError] = {}
    rounds: Counter[str] = Counter()
    for cell in grid:
        rounds[cell.kind] += cell.config.rounds
    with progress(f"{len(grid)} runs", rounds, quiet=as_json) as (on_round, say):

        def on_failure(cell: Cell, error: TesseractError) -> None:
            failed[named(cell)] = error
            say(f"{named(cell)}: {error}")

        finished = run_cells(
            grid, Store(store, known or {}), data_dir=data_dir, workers=workers or cores(), on_round=on_round,
            on_failure=on_failure, only_stored=stored, ray=ray,
        )  # fmt: skip
        for cell, home, summary in finished:
            say(f"{named(cell)}: {quality(summary)}")
            found[id(cell)] = cell, home, summary
    if failed and not found:
        raise next(iter(failed.values()))
    return [found[id(cell)] for cell in grid if id(cell) in found], [f"{name}: {why}" for name, why in failed.items()]


def named(cell: Cell) -> str:
    return ", ".join(map(str, cell.labels.values()))


def row(cell: Cell, home: Path, summary: dict[str, Any]) -> dict[str, Any]:
    """What was varied, what came out as far as it is known, the paper's number; what was varied keeps its column."""
    from tesseract_fl.experiments.paper import beside

    found = {**cell.labels, **_flat(summary)}
    theirs = beside(cell.config, summary["data"])
    if theirs is not None:
        found["paper"] = theirs
    if "data" in cell.labels:
        found["data_read"] = summary["data"]  # may be a stand-in
    return {**found, "directory": home.name, **cell.labels}


def _flat(summary: dict[str, Any]) -> dict[str, Any]:
    flat = {key: value for key, value in summary.items() if key != "detection"} | dict(summary.get("detection", {}))
    return {key: value for key, value in flat.items() if value is not None or key in ("accuracy", "test_loss")}


def from_table(found: list[Played]) -> int:
    """How many runs were not played here: an earlier table knew them."""
    return sum(not (home / "summary.json").exists() for _, home, _ in found)


def report(failed: list[str]) -> None:
    """End a command some of whose runs failed, after it has shown the others."""
    if failed:
        raise click.ClickException("\n  ".join([f"{len(failed)} runs could not be played:", *failed]))


def quality(summary: dict[str, Any]) -> str:
    loss = summary.get("test_loss")
    return f"accuracy {percent(summary['accuracy'])}{'' if loss is None else f', loss {loss:.3f}'}"


def percent(accuracy: float | None) -> str:
    return "unknown" if accuracy is None else f"{100 * accuracy:.2f}"
