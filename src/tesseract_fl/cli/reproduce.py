"""`tesseract-fl reproduce`: the paper's tables and figures."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from tesseract_fl.cli import grids
from tesseract_fl.experiments.presets import SCALES

NAMES = (
    "accuracy", "weights", "intuition", "shakespeare-loss", "faba-30", "reputation", "adaptive", "label-flip",
    "convergence",
)  # fmt: skip


def _listed(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> list[str]:
    """Options that may be given several times, or once with commas."""
    return [name for part in value for name in part.split(",") if name]


@click.command("reproduce")
@click.argument("names", nargs=-1, required=True, type=click.Choice([*NAMES, "all"]), metavar="EXPERIMENT…")
@click.option("--scale", type=click.Choice(SCALES), default="paper", show_default=True, help="The paper's setting, or "
              "one for a machine without a GPU: fewer rounds, narrower ResNet, part of the test set.")  # fmt: skip
@click.option("--data", multiple=True, callback=_listed, help="Only these data sets.")
@click.option("--rules", multiple=True, callback=_listed, help="These rules instead of those that the paper has.")
@click.option("--attacks", multiple=True, callback=_listed, help="Only these attacks.")
@click.option("--seeds", type=click.IntRange(min=1), help="How many seeds: 0, 1, …; one, for convergence three.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("reproduced"), show_default=True,
    help="Where tables and figures go, in a folder named after the scale.",
)  # fmt: skip
@grids.options
def command(names: tuple[str, ...], scale: str, out: Path, as_json: bool, **options: Any) -> None:
    """Run an experiment of the paper and set our numbers beside the paper's.

    \b
    accuracy          table: every rule on four data sets, unattacked and under Full-Krum and Full-Trim
    weights           table: share of benign and malicious clients with a weight above 1e-4
    intuition         figure: flip-scores of both camps while only one of them is aggregated
    shakespeare-loss  figure: test loss over rounds under Full-Krum
    faba-30           table: FABA and Tesseract at 30 % malicious clients, three more data sets
    reputation        figure: mean weight of benign and malicious clients over rounds
    adaptive          figure: accuracy over rounds under the adaptive white-box attacks
    label-flip        figure: accuracy over rounds under label flipping
    convergence       figure: the gap of a convex problem under the bound of the paper's theorem
    all               all of them

    Several names and `--data a,b` are fine. An experiment that was interrupted goes on where it stopped; runs that
    two experiments share are run once. Figures come as PNG and SVG with their points as CSV, tables as CSV and
    Markdown; where curves of accuracy end is a table too. Of several seeds there are means with 95 % confidence
    intervals; intuition and reputation have one seed. What has rows, seeds or curves beyond what was asked for is not
    replaced.
    Beside accuracy and faba-30 is a table of their runs, each of which is run again only if something about it has
    changed; to run all of it again, name another --out and another --store.
    convergence is computed anew each time, in two minutes, and is never in the store.
    """
    from tesseract_fl.experiments.reproduce import Choice, planned
    from tesseract_fl.experiments.sweep import checksums
    from tesseract_fl.reports.reproductions import check_kept
    from tesseract_fl.types import DataError

    chosen = list(NAMES) if "all" in names else list(dict.fromkeys(names))
    how = {key: options.pop(key) for key in ("store", "data_dir", "workers", "ray", "stored")}
    seeds = options.pop("seeds")
    plans, left_out = planned(
        [name for name in chosen if name != "convergence"], Choice(scale, seeds=seeds or 1, **options)
    )
    for name, grid in plans.items():
        of_each = {"seeds": len({cell.labels["seed"] for cell in grid})}
        for table in (f"{name}.csv", f"{name}-runs.csv"):
            check_kept([cell.labels | of_each for cell in grid], out / scale / table)
    try:
        checksums([cell for grid in plans.values() for cell in grid], how["data_dir"])
    except DataError as error:
        raise DataError(f"{error}\nTo leave a data set out, name the others with --data") from error
    for line in left_out:
        click.echo(line, err=True)
    written: dict[str, list[str]] = {}
    failed: list[str] = []
    for name in chosen:
        if name in plans:
            text, files, why = _experiment(name, plans[name], scale, out / scale, how, as_json)
            failed += why
        else:
            text, files = _convergence(seeds or 3, out / scale, how["stored"], as_json)
        written[name] = [str(path) for path in files]
        if not as_json:
            nothing = "nothing is in the store" if how["stored"] else "it has nothing of what was asked for"
            click.echo(f"\n{text}{', '.join(written[name]) or nothing}")
    if as_json:
        click.echo(json.dumps(written))
    grids.report(failed)


def _experiment(
    name: str, grid: list[Any], scale: str, out: Path, how: dict[str, Any], as_json: bool
) -> tuple[str, list[Path], list[str]]:
    from tesseract_fl.experiments.reproduce import EXPERIMENTS
    from tesseract_fl.reports import tables
    from tesseract_fl.reports.grid import summaries
    from tesseract_fl.reports.journal import Run
    from tesseract_fl.reports.reproductions import FROM_SUMMARIES, Played, write
    from tesseract_fl.types import ConfigError

    runs = out / f"{name}-runs.csv"
    found, failed = grids.played(grid, as_json=as_json, known=summaries(runs), **how)
    done = [Played(**cell.labels, summary=summary, run=Run(home)) for cell, home, summary in found]
    if not done:
        return f"{name}\n", [], failed
    part = f" {len(done)} of {len(grid)} runs." if len(done) < len(grid) else ""
    try:
        text, files = write(name, done, out, f"{EXPERIMENTS[name].about} {_setting(done, scale)}{part}")
    except ConfigError as error:  # what is missing here is there: the runs that failed are worth more to tell
        return f"{name}:{part} {error}\n", [], [*failed, f"{name}: {error}"]
    if name in FROM_SUMMARIES:
        tables.write_csv([grids.row(*played) for played in found], runs)
        files.append(runs)
    earlier = grids.from_table(found)
    return text + (f"{earlier} of the runs are from {runs}, as it was.\n" if earlier else ""), files, failed


def _setting(played: list[Any], scale: str) -> str:
    """What stands beside numbers, by how far they were made in the paper's setting."""
    from tesseract_fl.experiments.presets import CPU, OURS
    from tesseract_fl.experiments.sweep import label

    held = {each.data: each.held for each in played}
    smaller = {data: CPU[data] for data in held if scale == "cpu" and data in CPU}
    said = [
        f"{data} is scaled down, not the paper's setting: "
        + ", ".join(f"{key} {label(value)}" for key, value in settings.items())
        + "."
        for data, settings in smaller.items()
    ]
    own = "; ".join(
        f"{data}: {OURS[data]['clients']} clients, batch {OURS[data]['batch']}, rate {OURS[data]['lr']}"
        for data in held if data in OURS
    )  # fmt: skip
    if own:
        said.append(f"The paper does not give all settings; ours are {own}.")
    said += [f"{data} is not to be had: {name} stands in." for data, name in held.items() if name != data]
    return " ".join(said) or "The paper's setting."


def _convergence(seeds: int, out: Path, stored: bool, as_json: bool) -> tuple[str, list[Path]]:
    from tesseract_fl.cli.progress import cells as progress
    from tesseract_fl.experiments.convergence import RUNS, measure
    from tesseract_fl.reports.convergence import write
    from tesseract_fl.simulation.run import use_threads

    if stored:
        return "convergence\n", []
    use_threads(1)  # 31 parameters: to share them out among threads would take longer than the arithmetic
    rounds, last = 4000, time.perf_counter()
    with progress("convergence", {"convergence": RUNS * seeds * rounds}, quiet=as_json) as (on_round, _):

        def more(done: int) -> None:
            nonlocal last
            before, last = last, time.perf_counter()
            on_round("convergence", done, last - before)

        found = measure(rounds, seeds, more)
    return write(found, out)
