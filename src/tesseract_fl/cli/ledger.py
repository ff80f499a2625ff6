"""`tesseract-fl ledger`: who is suspected and why, and what an operator decides about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tesseract_fl.reputation.ledger import Ledger

FOLDER = click.argument("run", type=click.Path(path_type=Path))


@click.group("ledger")
def command() -> None:
    """Look into the ledger of a federation, and ban or pardon its clients.

    RUN is the folder that the ServerApp keeps its ledger in. It may be running: what you decide counts from its
    next round on.

    \b
    Examples:
      tesseract-fl ledger show /var/lib/federation
      tesseract-fl ledger why /var/lib/federation key:0f77dd29 12
      tesseract-fl ledger ban /var/lib/federation key:0f77dd29 --reason "attacks since round 8"
    """


@command.command()
@FOLDER
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def show(run: Path, as_json: bool) -> None:
    """List the clients, the most suspicious first, and since when they are."""
    from tesseract_fl.reports.overview import suspects
    from tesseract_fl.reports.sources import Federation

    federation = Federation(run)
    federation.read()
    found = suspects(federation)
    if as_json:
        click.echo(json.dumps({"round": federation.history.round, "clients": found}))
        return
    click.echo(f"round {federation.history.round}, {federation.about['rule']}")
    click.echo(f"{'client':40} {'standing':12} {'since':>5} {'weight':>9} {'reputation':>10}  last reason")
    for one in found:
        weight = "—" if one["weight"] is None else f"{one['weight']:.2g}"
        reputation = "—" if one["reputation"] is None else f"{one['reputation']:+.2f}"
        told = f"{one['client']:40} {one['standing']:12} {one['since'] or '':>5} {weight:>9} {reputation:>10}"
        click.echo(f"{told}  {one['reason']}")


@command.command()
@FOLDER
@click.argument("client")
@click.argument("round", type=int)
def why(run: Path, client: str, round: int) -> None:
    """Explain what CLIENT weighed in ROUND, in words and numbers. The beginning of a client's name is enough."""
    from tesseract_fl.reputation.suspects import explained

    ledger = _opened(run)
    for line in explained(ledger, _client(ledger, client), round):
        click.echo(line)


@command.command()
@FOLDER
@click.argument("client")
@click.option("--reason", required=True, help="Why; it is recorded with the time.")
def ban(run: Path, client: str, reason: str) -> None:
    """Do not ask CLIENT any more, until it is pardoned."""
    _act(run, "ban", client, reason)


@command.command()
@FOLDER
@click.argument("client")
@click.option("--reason", required=True, help="Why; it is recorded with the time.")
def pardon(run: Path, client: str, reason: str) -> None:
    """Lift a ban on CLIENT and forget its reputation: it starts like a newcomer."""
    _act(run, "pardon", client, reason)


def _act(run: Path, action: str, client: str, reason: str) -> None:
    ledger = _opened(run)
    name = _client(ledger, client)
    ledger.act(action, name, reason)
    click.echo(f"{action} of {name} is recorded; it counts from round {ledger.round + 1} on, or from the one after")


def _opened(run: Path) -> Ledger:
    from tesseract_fl.reputation.ledger import Ledger

    return Ledger.existing(run)


def _client(ledger: Ledger, beginning: str) -> str:
    known: list[str] = sorted({client for _, _, client, *_ in ledger.rows_after(0)})
    found = [name for name in known if name.startswith(beginning)]
    if beginning in known:
        return beginning
    if len(found) != 1:
        what = "no client's name begins" if not found else f"the names of {len(found)} clients begin"
        raise click.UsageError(f"{what} with {beginning!r}; `tesseract-fl ledger show` lists them")
    return found[0]
