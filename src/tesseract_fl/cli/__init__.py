"""The command line: one file per command, imported when it is called, so that --help is quick.

Exit codes: 0 done · 1 it failed · 2 what you asked for is wrong (the message says what is right)
· 3 data is missing or damaged · 4 a stored run can't be continued · 130 interrupted, `--resume` goes on.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

import click

from tesseract_fl import __version__

COMMANDS = {
    "run": "tesseract_fl.cli.run",
    "sweep": "tesseract_fl.cli.sweep",
    "reproduce": "tesseract_fl.cli.reproduce",
    "demo": "tesseract_fl.cli.demo",
    "list": "tesseract_fl.cli.list",
    "ledger": "tesseract_fl.cli.ledger",
    "report": "tesseract_fl.cli.report",
    "watch": "tesseract_fl.cli.watch",
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name]).command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        from tesseract_fl.registry import nearest

        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise click.UsageError(f"no command named {args[0]!r}; {nearest(args[0], COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 it failed, 2 what was asked for is wrong, 3 data is missing or damaged, "
    "4 a stored run can't be continued, 130 interrupted.",
)
@click.version_option(__version__, prog_name="tesseract-fl")
def cli() -> None:
    """Federated learning that keeps working when some of the clients are malicious."""


def main(argv: list[str] | None = None) -> None:
    """The entry point: runs a command and turns our errors into a message and an exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        status = cli.main(arguments, prog_name="tesseract-fl", standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        if "--json" in arguments:
            _say(error.format_message(), as_json=True)
        else:
            error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except Exception as error:
        code = _exit_code(error)
        if code is None:
            raise
        _say(str(error), as_json="--json" in arguments)
        sys.exit(code)


def _say(message: str, as_json: bool) -> None:
    click.echo(json.dumps({"error": message}) if as_json else f"Error: {message}", err=True)


def _exit_code(error: Exception) -> int | None:
    from tesseract_fl.types import CheckpointError, ConfigError, DataError, TesseractError

    codes = ((ConfigError, 2), (DataError, 3), (CheckpointError, 4), (TesseractError, 1), (OSError, 1))
    return next((code for kind, code in codes if isinstance(error, kind)), None)
