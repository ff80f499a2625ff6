"""`tesseract-fl report`: runs, federations and grids as one page."""

from __future__ import annotations

import shlex
from pathlib import Path

import click


@click.command("report")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), default=Path("report.html"), show_default=True,
    help="The page.",
)  # fmt: skip
@click.option(
    "--figures", type=click.Path(file_okay=False, path_type=Path), help="Also leave every picture here, as PNG and SVG."
)
def command(runs: tuple[Path, ...], out: Path, figures: Path | None) -> None:
    """Show runs in one HTML file that opens from disk and loads nothing from anywhere.

    RUN is a run directory, the folder of a Flower federation's ledger, or what a sweep left. Several are compared.
    The page has accuracy and loss, flip-scores, weights and reputations of every client, who was turned away and why,
    detection figures and the configuration.

    \b
    Examples:
      tesseract-fl report runs/mine
      tesseract-fl report demo/*/ --out demo.html --figures pictures
      tesseract-fl report results/attacks-small
    """
    from tesseract_fl.reports.page import write_report

    made_by = ["tesseract-fl", "report", *map(str, runs), "--out", str(out)]
    write_report(runs, out, shlex.join([*made_by, *(["--figures", str(figures)] if figures else [])]))
    click.echo(f"report: {out} ({out.stat().st_size / 1e6:.1f} MB)")
    if figures:
        from tesseract_fl.reports.figures import draw_all

        for picture in draw_all(runs, figures):
            click.echo(f"picture: {picture}")
