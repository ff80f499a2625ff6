"""`tesseract-fl sweep`: a grid of runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from tesseract_fl.cli.run import read_table


@click.command("sweep")
@click.argument("file", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Where the tables go; FILE without .toml."
)
@click.option(
    "--store", type=click.Path(file_okay=False, path_type=Path), default=Path("runs/store"), show_default=True,
    help="Where finished runs are kept and found again.",
)  # fmt: skip
@click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Where your data sets are.")
@click.option(
    "--workers", type=click.IntRange(min=1), help="Runs at a time, each with its share of the cores; one per core."
)
@click.option("--stored", is_flag=True, help="Run nothing: the tables of what is in the store.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON, and no progress.")
def command(
    file: Path, out: Path | None, store: Path, data_dir: Path | None, workers: int | None, stored: bool, as_json: bool
) -> None:
    """Run every combination of the settings that FILE lists, several at a time.

    FILE is TOML: [base] holds settings as `run` takes them, [grid] a list of values for each setting that varies.
    A sweep that was interrupted goes on where it stopped, and a run that is in the store is not run again, unless
    one of its settings, the data, or how we compute has changed. Leaves results.csv and results.md in --out.

    \b
    Example of a FILE:
      [base]
      data = "mnist_5k"
      [grid]
      rule = ["fedsgd", "krum", {name = "tesseract", decay = 0.95}]
      attack = ["none", "full_trim", {name = "sleeper+full_trim", until = 50}]
      seed = [0, 1, 2]
    """
    from tesseract_fl.cli.progress import cells as progress
    from tesseract_fl.experiments.store import Store
    from tesseract_fl.experiments.sweep import cells, run_cells
    from tesseract_fl.reports import tables

    grid = cells(read_table(file))
    out = out or file.with_suffix("")
    rows: list[dict[str, Any]] = []
    with progress(f"{len(grid)} runs", sum(cell.config.rounds for cell in grid), quiet=as_json) as (on_round, say):
        finished = run_cells(
            grid, Store(store), data_dir=data_dir, workers=workers or os.cpu_count() or 1, on_round=on_round,
            only_stored=stored,
        )  # fmt: skip
        order = {id(cell): number for number, cell in enumerate(grid)}
        for cell, home, summary in finished:
            rows.append({"cell": order[id(cell)], **cell.labels, **_flat(summary), "directory": home.name})
            say(f"{', '.join(cell.labels.values())}: accuracy {_percent(summary['accuracy'])}")
    rows.sort(key=lambda row: row.pop("cell"))
    out.mkdir(parents=True, exist_ok=True)
    tables.write_csv(rows, out / "results.csv")
    if as_json:
        click.echo(json.dumps({"runs": rows, "csv": str(out / "results.csv")}))
        return
    if rows and {"rule", "attack"} <= set(rows[0]):
        shown = [row | {"accuracy": _percent(row["accuracy"])} for row in rows]
        text = tables.markdown(*tables.matrix(shown, down="attack", across="rule", value="accuracy"))
        (out / "results.md").write_text(text)
        click.echo(text, nl=False)
    click.echo(f"{len(rows)} of {len(grid)} runs are in {out / 'results.csv'}")


def _flat(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in summary.items() if key != "detection"} | dict(summary.get("detection", {}))


def _percent(accuracy: float | None) -> str:
    return "unknown" if accuracy is None else f"{100 * accuracy:.2f}"
