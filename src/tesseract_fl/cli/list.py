"""`tesseract-fl list`: what there is, by name."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import click

KINDS = ("rules", "attacks", "data", "partitions", "models")


@click.command("list")
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def command(kind: str, as_json: bool) -> None:
    """Name every rule, attack, data set, partition or model, each in one line."""
    from tesseract_fl import registry

    entries: list[dict[str, Any]] = []
    for name in registry.table(kind):
        cls = registry.lookup(kind, name)
        text = (cls.__doc__ or "").strip().splitlines()
        entry: dict[str, Any] = {"name": name, "summary": text[0] if text else "", "parameters": _parameters(cls)}
        entries.append(entry | ({"needs": _needs(cls)} if kind == "attacks" else {}))
    if as_json:
        click.echo(json.dumps(entries, indent=2))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold cyan")
    table.add_column()
    for entry in entries:
        cell = Text(entry["summary"])
        given = [name if value is None else f"{name}={value}" for name, value in entry["parameters"].items()]
        if given:
            cell.append(f"\n{', '.join(given)}", style="dim")
        if "needs" in entry:
            needs = entry["needs"] or {"updates": "as its attack"}
            cell.append(f"\nneeds {', '.join(f'{what}: {level}' for what, level in needs.items())}", style="dim")
        table.add_row(entry["name"], cell)
    Console().print(table)


def _needs(attack: Any) -> dict[str, str] | None:
    """The knowledge that an attack must be granted; None for one that needs what the attack inside of it needs."""
    wraps = any(field.name == "inner" for field in dataclasses.fields(attack))
    return None if wraps else dataclasses.asdict(attack.requires)


def _parameters(cls: type[Any]) -> dict[str, Any]:
    missing = dataclasses.MISSING
    return {field.name: None if field.default is missing else field.default for field in dataclasses.fields(cls)}
