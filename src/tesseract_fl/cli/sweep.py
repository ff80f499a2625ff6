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
    A sweep that was interrupted goes on where it stopped, and a run that is in the store, or in the table that an
    earlier sweep left in --out, is not run again, unless one of its settings, the data, or how we compute has changed;
    to run all of it again, name another --out and another --store. Leaves results.csv and results.parquet in --out, a
    line for each run, and results.md, results.png and results.svg: rules across, attacks down (where they vary, else
    whatever FILE lists last), means over seeds; a table for each combination of whatever else varies. --stored
    replaces a table with runs that are neither played nor asked for any more only if --out names it.

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
    from tesseract_fl.reports.sources import GRID

    grid = cells(read_table(file))
    usual = file.with_suffix("")
    if out is None and usual == file:
        raise click.UsageError(f"{file} has no suffix, so its results can't have its name: name a folder with --out")
    found, failed = grids.played(grid, as_json=as_json, known=results.summaries((out or usual) / GRID), **how)
    rows = [grids.row(*played) for played in found]
    if how["stored"] and out is None and 0 < len(rows) < results.runs_in(usual):
        raise click.UsageError(
            f"{usual} has a table of {results.runs_in(usual)} runs and {len(rows)} of them would be left: name another "
            f"--out, or --out {usual} to replace it"
        )
    text, files = results.write(rows, list(grid[0].varied), out or usual)
    earlier = grids.from_table(found)
    if as_json:
        csv = str(files[0]) if files else None
        told = {"runs": rows, "csv": csv, "files": [str(path) for path in files], "failed": failed}
        click.echo(json.dumps(told | {"from_table": earlier}))
        grids.report(failed)
        return
    click.echo(text, nl=False)
    written = ", ".join(str(path) for path in files)
    note = f"; {earlier} of them are from the table that was there" if earlier else ""
    click.echo(f"{len(rows)} of {len(grid)} runs are in {written}{note}" if rows else "nothing is in the store")
    grids.report(failed)
