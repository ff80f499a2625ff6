"""A run in a directory: what it was, what happened in each round, where it stands.

config.toml       the complete configuration; `tesseract-fl run` takes it again
metrics.jsonl     one JSON line per round; two runs of one seed have the same bytes
timings.jsonl     seconds per round: what no two runs agree on
checkpoint.safetensors   model, rule state and round: where --resume goes on
model.safetensors the final model: parameters and buffers by name
summary.json      the end of it
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numba
import tomli_w
import torch
from safetensors.numpy import save

from tesseract_fl import __version__, registry
from tesseract_fl.checkpoint import read, write_atomically
from tesseract_fl.data.base import Dataset
from tesseract_fl.simulation import detection
from tesseract_fl.simulation.config import Config
from tesseract_fl.simulation.engine import Record, Simulation
from tesseract_fl.types import CheckpointError, ConfigError

OnRound = Callable[[Record, float], None]
OnStart = Callable[[str, int, int], OnRound]  # title, rounds in all, rounds done


def run(
    config: Config,
    dataset: Dataset,
    directory: Path | None = None,
    *,
    resume: bool = False,
    wait: bool = False,
    on_start: OnStart = lambda title, total, done: lambda record, seconds: None,
) -> dict[str, Any]:
    """Play all rounds and return the summary; with a directory, leave a run behind that can be resumed.

    Where another process is playing in that directory, `wait` for it instead of raising ConfigError.
    """
    with alone(directory, wait) if directory else nullcontext():
        return _run(config, dataset, directory, resume, on_start)


def _run(config: Config, dataset: Dataset, directory: Path | None, resume: bool, on_start: OnStart) -> dict[str, Any]:
    simulation = Simulation(config, dataset)
    journal = Journal(directory, simulation, resume) if directory else None
    history = journal.history() if journal else []
    on_round = on_start(title_of(config), config.rounds, simulation.round)
    while simulation.round < config.rounds:
        start = time.perf_counter()
        record = simulation.step()
        seconds = time.perf_counter() - start
        if journal:
            journal.append(record, seconds)
        history.append(_brief(record))
        on_round(record, seconds)
    summary = {
        "accuracy": _last(history, "accuracy"),
        "test_loss": _last(history, "test_loss"),
        "rounds": simulation.round,
        "skipped": sum("skipped" in brief for brief in history),
        **_against(config, history),
        "parameters": simulation.model.layout.d,
        "data": dataset.name,
        "data_sha256": dataset.checksum,
        "version": __version__,
    }
    if journal:
        journal.finish(summary)
    return summary


@contextmanager
def alone(directory: Path, wait: bool) -> Iterator[None]:
    """Two processes that write one journal would leave a run that never was.

    The directory itself is locked, where the system can do that, and nothing has to be cleared away after a kill.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield
        return
    import fcntl

    held = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            try:
                fcntl.flock(held, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError as error:
                raise ConfigError(f"another process is playing the run in {directory}; name another --out") from error
        yield
    finally:
        os.close(held)


def title_of(config: Config) -> str:
    """tesseract + full_trim"""
    table = config.to_table()
    return f"{registry.title(table['rule'])} + {registry.title(table['attack'])}"


def name_of(config: Config) -> str:
    """What a run's directory is called if nobody says: data, rule, attack and seed."""
    table = config.to_table()
    names = [registry.title(table[kind]) for kind in ("data", "rule", "attack")]
    return "-".join([*names, f"seed{config.seed}"])


def use_threads(count: int | None) -> None:
    """How many CPU threads this process uses from now on."""
    if count is not None:
        torch.set_num_threads(count)
        numba.set_num_threads(min(count, numba.get_num_threads()))


def _against(config: Config, history: list[Record]) -> dict[str, Any]:
    """What the summary says about the attack: whether it got what it wanted, in how many rounds the malicious clients
    behaved honestly, and who was caught."""
    if not config.attacked:
        return {}
    success = _last(history, "attack_success")
    return {
        **({} if success is None else {"attack_success": success}),
        "not_attacked": sum("not_attacked" in brief for brief in history),
        "detection": detection.of_run(history),
    }


def _last(history: list[Record], figure: str) -> Any:
    return next((brief[figure] for brief in reversed(history) if figure in brief), None)


_BRIEF = ("round", "accuracy", "test_loss", "skipped", "attack_success", "not_attacked", *detection.FIGURES)


def _brief(record: Record) -> Record:
    return {key: record[key] for key in _BRIEF if key in record}


class Journal:
    """Writes a run directory. A round is in `metrics.jsonl` before it is in the checkpoint: after a kill,
    lines that the checkpoint does not know are cut off and their rounds played again, bit for bit."""

    def __init__(self, directory: Path, simulation: Simulation, resume: bool) -> None:
        self.directory = directory
        self.simulation = simulation
        self.checkpoint = directory / "checkpoint.safetensors"
        self.metrics = directory / "metrics.jsonl"
        self.timings = directory / "timings.jsonl"
        if resume and self.checkpoint.exists():
            self._check_same_config()
            simulation.load(self.checkpoint)
        elif not resume and any(directory.iterdir()):
            raise ConfigError(f"{directory} is not empty: name another --out, or go on with --resume")
        if simulation.round < simulation.config.rounds:
            (directory / "summary.json").unlink(missing_ok=True)  # the end of fewer rounds is not the end any more
        config = tomli_w.dumps(simulation.table)
        write_atomically(directory / "config.toml", config.encode())
        for path in (self.metrics, self.timings):
            self._keep_lines(path, simulation.round)

    def append(self, record: Record, seconds: float) -> None:
        for path, line in ((self.metrics, record), (self.timings, {"seconds": seconds})):
            with path.open("a") as file:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
        if self.simulation.round % self.simulation.config.checkpoint_every == 0:
            self._save()

    def _save(self) -> None:
        """The journals are on disk before the checkpoint that counts on them is, also if the machine fails."""
        for path in (self.metrics, self.timings):
            with path.open("ab") as file:
                os.fsync(file.fileno())
        self.simulation.save(self.checkpoint)

    def history(self) -> list[Record]:
        """The rounds that an earlier process played, in brief."""
        try:
            briefs = [_brief(json.loads(line)) for line in self.metrics.read_text().splitlines()]
        except (ValueError, TypeError) as error:
            raise CheckpointError(f"{self.metrics} is damaged ({error}); {self._remedy}") from error
        if [brief.get("round") for brief in briefs] != list(range(1, len(briefs) + 1)):
            raise CheckpointError(f"{self.metrics} is damaged: its rounds are not 1, 2, …; {self._remedy}")
        return briefs

    @property
    def _remedy(self) -> str:
        return f"delete {self.directory} to play the run again"

    def finish(self, summary: dict[str, Any]) -> None:
        model = self.simulation.model
        self._save()
        write_atomically(self.directory / "model.safetensors", save(model.arrays()))
        write_atomically(self.directory / "summary.json", (json.dumps(summary, indent=2) + "\n").encode())

    def _check_same_config(self) -> None:
        try:
            meta = read(self.checkpoint)[1]
        except CheckpointError as error:
            raise CheckpointError(f"{error}; {self._remedy}") from error
        stored = meta["config"]
        if meta.get("numerics") != self.simulation.numerics:
            raise CheckpointError(f"{self.directory} was begun by code with other numerics; {self._remedy}")
        if meta["data"] != self.simulation.data_checksum:
            raise CheckpointError(f"{self.directory} holds a run on other data; name its --data-dir again")
        wanted = self.simulation.table
        free = "rounds" if self.simulation.config.schedule == "constant" else ""  # else the rate depends on them
        changed = [key for key in {**stored, **wanted} if key != free and stored.get(key) != wanted.get(key)]
        if wanted["rounds"] < meta["round"]:
            raise CheckpointError(
                f"{self.directory} is at round {meta['round']} already: ask for as many at least, or name another --out"
            )
        if changed:
            raise CheckpointError(
                f"{self.directory} holds a run with another {', '.join(changed)}; "
                "resume with the settings in its config.toml, or name another --out"
            )

    def _keep_lines(self, path: Path, count: int) -> None:
        """Cut off what was written after the checkpoint, a torn last line included."""
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        if len(lines) < count:
            missing = f"{path} has {len(lines)} rounds but the checkpoint is at round {count}"
            raise CheckpointError(f"{missing}; {self._remedy}")
        write_atomically(path, b"".join(lines[:count]))
