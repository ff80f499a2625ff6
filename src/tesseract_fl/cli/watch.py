"""`tesseract-fl watch`: a run as it goes, in a browser."""

from __future__ import annotations

import shlex
from pathlib import Path

import click


@click.command("watch")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--port", type=click.IntRange(0, 65535), default=8321, show_default=True, help="0: any that is free.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Another than loopback asks for a token.")
@click.option(
    "--token", envvar="TESSERACT_FL_TOKEN", show_envvar=True,
    help="What a reader must bring; made up where it is needed and not given. Others on this machine may see options.",
)  # fmt: skip
def command(run: Path, port: int, host: str, token: str | None) -> None:
    """Serve the page of a run while it is being written; new rounds appear by themselves.

    RUN is a run directory, or the folder of a Flower federation's ledger. Nothing in it is changed. Stop with Ctrl-C.

    \b
    Examples:
      tesseract-fl watch runs/mine
      tesseract-fl watch /var/lib/federation --port 9000
    """
    import secrets

    from tesseract_fl.reports.server import Live, Server, is_loopback

    token = token or (None if is_loopback(host) else secrets.token_urlsafe(24))
    server = Server(Live(run, shlex.join(["tesseract-fl", "watch", str(run)])), host, port, token)
    click.echo(f"watching {run} at {server.url} (Ctrl-C stops)")
    with server:
        server.serve_forever()
