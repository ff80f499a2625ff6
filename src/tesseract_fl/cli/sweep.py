"""`tesseract-fl sweep`: a grid of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tesseract_fl.cli import grids
from tesseract_fl.cli.run import read_table


@click.command("sweep")
@click.argument("file", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Where the tables go; FILE without .toml."
)
@grids.options
def command(file: Path, out: Path | None, as_json: bool, **how: Any) -> None:
    """Run every combination of the settings that FILE lists, several at a time.

    FILE is TOML: [base] holds settings as `run` takes them, [grid] a list of values for each setting that varies.
    A sweep that was interrupted goes on where it stopped, and a run that is in the store is not run again, unless
    one of its settings, the data, or how we compute has changed. Leaves results.csv and results.parquet in --out, a
    line for each run, and results.md, results.png and results.svg: rules across, attacks down (or the two settings
    that vary), means over seeds; a table for each combination of whatever else varies. --stored replaces a table that
    has more runs than the store only if --out names it.

    \b
    Example of a FILE:
      [base]
      preset = "mnist"           # the paper's settings, as `run --preset`, may vary in [grid]; or a data set:
      # data = "mnist_5k"
      [grid]
      rule = ["fedsgd", "krum", {name = "tesseract", decay = 0.95}]
      attack = ["none", "full_trim", {name = "sleeper+full_trim", until = 50}]
      seed = [0, 1, 2]
      # "rule.decay" = [0.9, 0.99]   a name with a dot in quotes: one parameter
    """
    from tesseract_fl.experiments.sweep import cells
    from tesseract_fl.reports import grid as results

    grid = cells(read_table(file))
    found, failed = grids.played(grid, as_json=as_json, **how)
    rows = [_row(*played) for played in found]
    usual = file.with_suffix("")
    if how["stored"] and out is None and 0 < len(rows) < results.runs_in(usual):
        raise click.UsageError(
            f"{usual} has a table of {results.runs_in(usual)} runs and the store has {len(rows)}: name another --out, "
            f"or --out {usual} to replace it"
        )
    text, files = results.write(rows, list(grid[0].varied), out or usual)
    if as_json:
        csv = str(files[0]) if files else None
        click.echo(json.dumps({"runs": rows, "csv": csv, "files": [str(path) for path in files], "failed": failed}))
        grids.report(failed)
        return
    click.echo(text, nl=False)
    written = ", ".join(str(path) for path in files)
    click.echo(f"{len(rows)} of {len(grid)} runs are in {written}" if rows else "nothing is in the store")
    grids.report(failed)


def _row(cell: Any, home: Path, summary: dict[str, Any]) -> dict[str, Any]:
    """What was varied, what came out, the paper's number; what was varied keeps its column."""
    from tesseract_fl.experiments.paper import beside

    row = {**cell.labels, **_flat(summary)}
    theirs = beside(cell.config, summary["data"])
    if theirs is not None:
        row["paper"] = theirs
    if "data" in cell.labels:
        row["data_read"] = summary["data"]  # may be a stand-in
    return {**row, "directory": home.name, **cell.labels}


def _flat(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in summary.items() if key != "detection"} | dict(summary.get("detection", {}))
