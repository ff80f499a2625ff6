"""`tesseract-fl demo`: the attack and the defence, seen in a few minutes."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command("demo")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("demo"), show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything random.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON, and no progress.")
def command(out: Path, seed: int, as_json: bool) -> None:
    """Train four small federations on 5,000 real MNIST images: no attack, attacked, attacked and defended.

    40 clients, 8 of them malicious. Ends with a table and two pictures. Runs that are already in --out are
    shown again, or gone on with; another --out starts over.
    """
    from tesseract_fl.cli.progress import rounds
    from tesseract_fl.experiments.demo import SETTINGS, run_demo
    from tesseract_fl.reports import figures

    with rounds(quiet=as_json) as start:
        results = run_demo(out, seed, start)
    runs = {cell.label: home for cell, (home, _) in results.items()}
    defended = {cell.label.split(", ")[1]: home for cell, (home, _) in results.items() if cell.rule == "tesseract"}
    pictures = {"accuracy": out / "accuracy.png", "weights": out / "weights.png"}
    setting = f"{SETTINGS['clients']} clients, {SETTINGS['malicious']} malicious, 5,000 MNIST images"
    figures.accuracy_over_rounds(runs, pictures["accuracy"], f"Test accuracy: {setting}")
    figures.weights_over_rounds(defended, pictures["weights"], f"What a client weighs under Tesseract: {setting}")

    rows = [
        {
            "run": cell.label,
            "rule": cell.rule,
            "attack": cell.attack,
            "accuracy": summary["accuracy"],
            "malicious_weight": summary["detection"]["malicious_weight"] if "detection" in summary else None,
        }
        for cell, (_, summary) in results.items()
    ]
    if as_json:
        click.echo(json.dumps({"runs": rows, "pictures": {k: str(v) for k, v in pictures.items()}}))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{setting}, {SETTINGS['rounds']} rounds", title_justify="left", title_style="bold")
    table.add_column("run")
    table.add_column("test accuracy", justify="right")
    table.add_column("weight of the malicious clients\nin the last round, together", justify="right")
    for row in rows:
        weight = "—" if row["malicious_weight"] is None else f"{row['malicious_weight']:.2%}"
        table.add_row(row["run"], f"{row['accuracy']:.1%}", weight)
    Console().print(table)
    for picture in pictures.values():
        click.echo(f"picture: {picture}")
