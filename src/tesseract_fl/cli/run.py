"""`tesseract-fl run`: one simulated federation."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from tesseract_fl.experiments.presets import PRESETS, settings_of


def number(text: str) -> int | float:
    """20 is a number of clients, 0.2 a share of them."""
    return int(text) if text.strip().isdigit() else float(text)


_SETTINGS = (
    ("--data", str, "Data set (`tesseract-fl list data`)."),
    ("--partition", str, "How data is dealt out to clients (`list partitions`)."),
    ("--model", str, "Model (`list models`)."),
    ("--rule", str, "Aggregation rule (`list rules`)."),
    ("--attack", str, "What malicious clients do (`list attacks`)."),
    ("--clients", int, "Number of clients, n."),
    ("--malicious", int, "How many of them are malicious, c."),
    ("--f", number, "How many (or which share) the rule takes for malicious; if not given, --malicious."),
    ("--knowledge", click.Choice(["full", "partial"]), "What attackers see: everything, or only what is their own."),
    ("--participation", float, "Share of the clients that takes part in a round."),
    ("--rounds", int, "Number of rounds."),
    ("--batch", int, "Samples per local step."),
    ("--lr", float, "Learning rate."),
    ("--schedule", click.Choice(["constant", "cifar"]), "How the learning rate changes over the rounds."),
    ("--optimiser", click.Choice(["sgd", "adam"]), "What a local step is."),
    ("--local-steps", int, "Local steps per round."),
    ("--local-epochs", int, "Passes over a client's own data per round, instead of --local-steps."),
    ("--eval-every", int, "Rounds between evaluations on the test set."),
    ("--eval-samples", int, "How many test samples to evaluate on; 0: all of them."),
    ("--checkpoint-every", int, "Rounds between checkpoints; a killed run repeats at most that many."),
    ("--root", int, "Samples in the server's clean root set, for rules that need one."),
    ("--seed", int, "Seed of everything random."),
)


def _settings(function: Any) -> Any:
    for flag, kind, text in reversed(_SETTINGS):
        function = click.option(flag, type=kind, default=None, help=text)(function)
    return function


@click.command("run")
@click.option(
    "--preset", type=click.Choice(list(PRESETS)), help="The paper's settings, or ours where it has none; options win."
)
@click.option("--scale", type=click.Choice(["paper", "cpu"]), default="paper", show_default=True, help="Of the preset.")
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), help="Settings in a TOML file.")
@_settings
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any setting, as rule.decay=0.9.")
@click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Where your data sets are.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Run directory.")
@click.option("--resume", is_flag=True, help="Go on with the run in --out; it is started if there is none.")
@click.option("--tensorboard", is_flag=True, help="Also write event files for TensorBoard into the run directory.")
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads; all cores if not given.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON, and no progress.")
def command(
    preset: str | None,
    scale: str,
    config: Path | None,
    assignments: tuple[str, ...],
    data_dir: Path | None,
    out: Path | None,
    resume: bool,
    tensorboard: bool,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a federation in simulation, attacked and defended as you say.

    Without options: 5,000 MNIST images, 100 clients, 20 of them malicious but idle, the Tesseract rule.
    What a run leaves in its directory: config.toml, metrics.jsonl, timings.jsonl, model.safetensors,
    summary.json and a checkpoint.

    \b
    Examples:
      tesseract-fl run --attack full_trim --clients 20 --malicious 4 --lr 0.05 --rounds 100
      tesseract-fl run --preset cifar10 --scale cpu --data-dir ~/datasets --attack full_trim
      tesseract-fl run --config runs/mine/config.toml --set rule.decay=0.9 --out runs/other
      tesseract-fl run --out runs/mine --resume
    """
    from tesseract_fl.simulation.config import Config, merged

    if resume and out is None:
        raise click.UsageError("--resume needs --out, the directory of the run to go on with")
    stored = out / "config.toml" if resume and out else None
    table = read_table(config) if config else read_table(stored) if stored and stored.exists() else {}
    table = merged(settings_of(preset, scale) if preset else {}, table)
    table = merged(table, {key: value for key, value in options.items() if value is not None})
    for assignment in assignments:
        table = merged(table, _assignment(assignment))

    from tesseract_fl.cli.progress import rounds
    from tesseract_fl.simulation.run import name_of, run, use_threads

    use_threads(threads)
    settings = Config.from_table(table)
    out = out or Path("runs") / name_of(settings)
    dataset = settings.data.read(data_dir)
    with ExitStack() as stack:
        start = stack.enter_context(rounds(quiet=as_json))
        if tensorboard:
            from tesseract_fl.reports.tensorboard import recording

            start = stack.enter_context(recording(out / "tensorboard", start))
        summary = run(settings, dataset, out, resume=resume, on_start=start)
    if as_json:
        click.echo(json.dumps(summary | {"directory": str(out)}))
    else:
        accuracy = summary["accuracy"]
        click.echo(f"accuracy {'unknown' if accuracy is None else f'{accuracy:.2%}'} after {summary['rounds']} rounds")
        for line in _about_the_attack(summary):
            click.echo(line)
        if summary["skipped"]:
            click.echo(f"{summary['skipped']} rounds were skipped; why is in {out / 'metrics.jsonl'}")
        click.echo(f"everything about it is in {out}")


def _about_the_attack(summary: Mapping[str, Any]) -> Iterator[str]:
    if "attack_success" in summary:
        yield f"the attack got what it wanted on {summary['attack_success']:.2%} of its targets"
    if summary.get("not_attacked"):
        yield f"the malicious clients behaved honestly in {summary['not_attacked']} of {summary['rounds']} rounds"
    found = summary.get("detection", {})
    rates = [
        f"{found[rate]:.0%} of the {camp} clients"
        for rate, camp in (("true_positive_rate", "malicious"), ("false_positive_rate", "honest"))
        if found.get(rate) is not None
    ]
    if rates:
        yield f"caught per round: {', '.join(rates)}"
    if found.get("malicious_weight") is not None:
        since = found["cut_off_since"]
        yield f"the malicious clients weigh {found['malicious_weight']:.2g} in the end" + (
            f"; each less than 1e-4 since round {since}" if since else ""
        )


def read_table(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise click.UsageError(f"{path} can't be read as TOML: {error}") from error


def _assignment(text: str) -> dict[str, Any]:
    """`rule.decay=0.9` → {"rule": {"decay": 0.9}}; a value that is not TOML is a string."""
    from tesseract_fl.simulation.config import nested

    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise click.UsageError(f"--set takes KEY=VALUE, as rule.decay=0.9, got {text!r}")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    return nested(key.strip(), parsed)
