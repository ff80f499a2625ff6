"""A grid of runs: every combination of the listed settings, in parallel processes, resumed where it stopped."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tesseract_fl import registry
from tesseract_fl.checkpoint import write_atomically
from tesseract_fl.data.base import Dataset, needs_extra
from tesseract_fl.experiments.presets import settings_of
from tesseract_fl.experiments.store import Store
from tesseract_fl.simulation.config import COMPONENTS, Config, merged, nested
from tesseract_fl.simulation.run import run, use_threads
from tesseract_fl.types import ConfigError

OnRound = Callable[[int], None]  # how many rounds were played since the last call


@dataclass(frozen=True)
class Cell:
    """One run of a grid: what was varied, and its complete configuration."""

    varied: dict[str, Any]
    config: Config

    @property
    def labels(self) -> dict[str, str]:
        """What was varied, in words: a component with parameters by its name and those that were given."""
        return {key: label(value) for key, value in self.varied.items()}


def label(value: Any) -> str:
    """
    >>> label({"name": "sleeper", "until": 250, "inner": "full_trim"})
    'sleeper(until=250)+full_trim'
    """
    if not isinstance(value, Mapping):
        return str(value)
    given = ", ".join(f"{key}={label(item)}" for key, item in value.items() if key not in ("name", "inner"))
    inner = f"+{label(value['inner'])}" if "inner" in value else ""
    return f"{value.get('name', '')}{f'({given})' if given else ''}{inner}"


def cells(table: Mapping[str, Any]) -> list[Cell]:
    """Every combination of what `[grid]` lists, on top of `[base]`.

    >>> [cell.varied for cell in cells({"grid": {"rule": ["krum", "fedsgd"], "seed": [0, 1]}})][:2]
    [{'rule': 'krum', 'seed': 0}, {'rule': 'krum', 'seed': 1}]
    """
    for key in table:
        if key not in ("base", "grid"):
            raise ConfigError(f"a sweep has the tables [base] and [grid], not {key!r}")
    base = dict(table.get("base", {}))
    if "preset" in base:
        base = settings_of(base.pop("preset"), base.pop("scale", "paper")) | base
    grid = table.get("grid", {})
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"grid.{key} must be a list of values, got {values!r}")
    found = []
    for values in itertools.product(*grid.values()):
        varied = dict(zip(grid, values, strict=True))
        settings = base
        for key, value in varied.items():
            settings = merged(settings, nested(key, value))
        found.append(Cell(varied, Config.from_table(settings)))
    return found


def run_cells(
    grid: list[Cell],
    store: Store,
    *,
    data_dir: Path | None = None,
    workers: int = 1,
    on_round: OnRound = lambda rounds: None,
    only_stored: bool = False,
    ray: str | None = None,
) -> Iterator[tuple[Cell, Path, dict[str, Any]]]:
    """Play what is not in the store yet, `workers` at a time, and yield each cell as it is finished.

    The cores are shared out among the workers. A cell that was interrupted goes on from its last round. With the
    address of a Ray cluster, cells are tasks there, and what they leave is brought to the store when they are finished.
    """
    checksums = _checksums(grid, data_dir)
    homes = [store.home(cell.config, checksums[_reader(cell)]) for cell in grid]
    missing: dict[Path, Cell] = {}
    same: dict[Path, list[Cell]] = {}  # cells that are one and the same run, under different names
    for cell, home in zip(grid, homes, strict=True):
        summary = store.summary(home)
        if summary is not None:
            on_round(cell.config.rounds)
            yield cell, home, summary
        elif not only_stored:
            missing.setdefault(home, cell)
            same.setdefault(home, []).append(cell)
    if ray is not None:
        play: Play = partial(_play_on_ray, ray)
    else:
        play = _play_in_processes if workers > 1 else _play_here
    for home, summary in play(missing, data_dir, workers, on_round):
        on_round(sum(cell.config.rounds for cell in same[home][1:]))
        for cell in same[home]:
            yield cell, home, summary


Finished = Iterator[tuple[Path, dict[str, Any]]]
Play = Callable[[Mapping[Path, Cell], Path | None, int, OnRound], Finished]


def _play_here(missing: Mapping[Path, Cell], data_dir: Path | None, workers: int, on_round: OnRound) -> Finished:
    for home, cell in missing.items():
        yield home, _play(cell.config.to_table(), home, data_dir, on_round)


def _play_in_processes(
    missing: Mapping[Path, Cell], data_dir: Path | None, workers: int, on_round: OnRound
) -> Finished:
    context = multiprocessing.get_context("spawn")
    played = context.SimpleQueue()
    threads = max(1, (os.cpu_count() or 1) // workers)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(threads, played))
    try:
        jobs: dict[Future[dict[str, Any]], Path] = {
            pool.submit(_play_and_tell, cell.config.to_table(), home, data_dir): home for home, cell in missing.items()
        }
        while jobs:
            done, _ = wait(jobs, timeout=0.5, return_when=FIRST_COMPLETED)
            while not played.empty():
                on_round(played.get())
            for job in done:
                yield jobs.pop(job), job.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()


def _play_on_ray(
    address: str, missing: Mapping[Path, Cell], data_dir: Path | None, workers: int, on_round: OnRound
) -> Finished:
    """Each cell is a task with a core of its own; its directory is made there and comes back as bytes."""
    try:
        import ray
    except ImportError as error:
        raise needs_extra("Ray", "ray") from error
    if not ray.is_initialized():
        ray.init(address=None if address == "local" else address, log_to_driver=False)
    task = ray.remote(num_cpus=1, max_retries=3)(_play_elsewhere)
    jobs = {task.remote(cell.config.to_table(), data_dir): home for home, cell in missing.items()}
    while jobs:
        (done,), _ = ray.wait(list(jobs))
        home = jobs.pop(done)
        left = ray.get(done)
        home.mkdir(parents=True, exist_ok=True)
        for name in sorted(left, key=lambda name: name == "summary.json"):  # last, because it says that all is there
            write_atomically(home / name, left[name])
        on_round(missing[home].config.rounds)
        yield home, json.loads(left["summary.json"])


def _play_elsewhere(table: dict[str, Any], data_dir: Path | None) -> dict[str, bytes]:
    use_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        _play(table, Path(directory), data_dir, lambda rounds: None)
        return {path.name: path.read_bytes() for path in Path(directory).iterdir()}


def _reader(cell: Cell) -> str:
    return str(registry.describe(COMPONENTS["data"][0], cell.config.data))


def _checksums(grid: list[Cell], data_dir: Path | None) -> dict[str, str]:
    readers = {_reader(cell): cell.config.data for cell in grid}
    return {name: reader.read(data_dir).checksum for name, reader in readers.items()}


_played: Any = None  # in a worker: the queue on which it tells how many rounds it has played
_datasets: dict[str, Dataset] = {}


def _start(threads: int, played: Any) -> None:
    global _played
    _played = played
    use_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would play on, while the same grid is perhaps being resumed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _play_and_tell(table: dict[str, Any], home: Path, data_dir: Path | None) -> dict[str, Any]:
    return _play(table, home, data_dir, _played.put)


def _play(table: dict[str, Any], home: Path, data_dir: Path | None, on_round: OnRound) -> dict[str, Any]:
    config = Config.from_table(table)
    name = str(table["data"])
    if name not in _datasets:
        _datasets.clear()  # one at a time is kept
        _datasets[name] = config.data.read(data_dir)

    def start(title: str, total: int, done: int) -> Callable[[Any, float], None]:
        on_round(done)
        return lambda record, seconds: on_round(1)

    return run(config, _datasets[name], home, resume=True, on_start=start)
