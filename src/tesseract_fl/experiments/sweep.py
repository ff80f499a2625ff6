"""A grid of runs: every combination of the listed settings, in parallel processes, resumed where it stopped."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import socket
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tesseract_fl import registry
from tesseract_fl.checkpoint import write_atomically
from tesseract_fl.data.base import Dataset, needs_extra
from tesseract_fl.experiments.presets import settings_of
from tesseract_fl.experiments.store import Store
from tesseract_fl.simulation.config import COMPONENTS, Config, merged, nested
from tesseract_fl.simulation.run import alone, run, use_threads
from tesseract_fl.types import ConfigError, DataError, TesseractError

# of this kind of run so many rounds more are done, in so many seconds; None: they were not played just now
OnRound = Callable[[str, int, float | None], None]
OnFailure = Callable[["Cell", TesseractError], None]
BLAS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Cell:
    """One run of a grid: what was varied, and its complete configuration."""

    varied: dict[str, Any]
    config: Config

    @property
    def labels(self) -> dict[str, Any]:
        """What was varied: a component with parameters by its name and those that were given, a number as it is."""
        return {key: label(value) for key, value in self.varied.items()}

    @property
    def kind(self) -> str:
        """Runs of one kind take about as long for a round."""
        return _kind(self.config.to_table())


def label(value: Any) -> Any:
    """
    >>> label({"name": "sleeper", "until": 250, "inner": "full_trim"})
    'sleeper(until=250)+full_trim'
    """
    if not isinstance(value, Mapping):
        return value
    given = ", ".join(f"{key}={label(item)}" for key, item in value.items() if key not in ("name", "inner"))
    inner = f"+{label(value['inner'])}" if "inner" in value else ""
    return f"{value.get('name', '')}{f'({given})' if given else ''}{inner}"


def cells(table: Mapping[str, Any]) -> list[Cell]:
    """Every combination of what `[grid]` lists, on top of `[base]`.

    >>> [cell.varied for cell in cells({"grid": {"rule": ["krum", "fedsgd"], "seed": [0, 1]}})][:2]
    [{'rule': 'krum', 'seed': 0}, {'rule': 'krum', 'seed': 1}]
    """
    for key, settings in table.items():
        if key not in ("base", "grid"):
            raise ConfigError(f"a sweep has the tables [base] and [grid], not {key!r}")
        if not isinstance(settings, Mapping):
            raise ConfigError(f"{key} must be a table of settings, got {settings!r}")
    base = dict(table.get("base", {}))
    grid = table.get("grid", {})
    for key, values in grid.items():
        if isinstance(values, Mapping):
            inside = next(iter(values), "name")
            raise ConfigError(f'grid.{key} is a table; put the whole name in quotes: "{key}.{inside}" = […]')
        if not isinstance(values, list) or not values:
            raise ConfigError(f"grid.{key} must be a list of values, got {values!r}")
    found = []
    for values in itertools.product(*grid.values()):
        varied = dict(zip(grid, values, strict=True))
        found.append(Cell(varied, Config.from_table(_settings(base, varied))))
    return found


def _settings(base: Mapping[str, Any], varied: Mapping[str, Any]) -> dict[str, Any]:
    """What varies, on top of the base, on top of the preset that one of them names."""
    named, preset = {**base, **varied}, {}
    if "preset" in named:
        preset = settings_of(named["preset"], named.get("scale", "paper"))
        base, varied = (
            {key: given[key] for key in given if key not in ("preset", "scale")} for given in (base, varied)
        )
    return _on_top(_on_top(preset, base), varied)


def _on_top(settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` wins, `rule.decay` over `rule`, whichever comes first."""
    settings = dict(settings)
    for key in sorted(given, key=lambda key: key.count(".")):
        settings = merged(settings, nested(key, given[key]))
    return settings


def run_cells(
    grid: list[Cell],
    store: Store,
    *,
    data_dir: Path | None = None,
    workers: int = 1,
    on_round: OnRound = lambda kind, rounds, seconds: None,
    on_failure: OnFailure | None = None,
    only_stored: bool = False,
    ray: str | None = None,
) -> Iterator[tuple[Cell, Path, dict[str, Any]]]:
    """Play what is not in the store yet, `workers` at a time, and yield each cell as it is finished.

    The cores are shared out among the workers. A cell that was interrupted goes on from its last round. With the
    address of a Ray cluster, cells are tasks there, and what they leave is brought to the store when they are finished.
    With `on_failure`, a cell that can't be played is told to it, and the others are played all the same.
    """
    known = checksums(grid, data_dir)
    missing: dict[Path, Job] = {}
    same: dict[Path, list[Cell]] = {}  # cells that are one and the same run, under different names
    for cell in grid:
        checksum = known[_reader(cell)]
        home = store.home(cell.config, checksum)
        summary = store.summary(home)
        if summary is not None:
            on_round(cell.kind, cell.config.rounds, None)
            yield cell, home, summary
        elif not only_stored:
            missing.setdefault(home, Job(cell.config.to_table(), data_dir, checksum))
            same.setdefault(home, []).append(cell)
    workers = min(workers, len(missing))
    finished: Finished
    if ray is not None and missing:
        finished = _play_on_ray(ray, missing, on_round)
    elif workers > 1:
        finished = _play_in_processes(workers, missing, on_round)
    else:
        finished = ((home, _attempt(job, home, on_round)) for home, job in missing.items())
    for home, outcome in finished:
        for cell in same[home][1:]:
            on_round(cell.kind, cell.config.rounds, None)
        for cell in same[home]:
            if not isinstance(outcome, TesseractError):
                yield cell, home, outcome
            elif on_failure is None:
                raise outcome
            else:
                on_failure(cell, outcome)


@dataclass(frozen=True)
class Job:
    """A run, and the data that it is stored under."""

    table: dict[str, Any]
    data_dir: Path | None
    checksum: str


Outcome = dict[str, Any] | TesseractError  # a summary, or why there is none
Finished = Iterator[tuple[Path, Outcome]]


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _play_in_processes(workers: int, missing: Mapping[Path, Job], on_round: OnRound) -> Finished:
    context = multiprocessing.get_context("spawn")
    told = context.SimpleQueue()
    threads = max(1, cores() // workers)
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(threads, told))
    try:
        with _blas_threads(threads):  # a worker starts with the first job that finds none idle
            jobs: dict[Future[Outcome], Path] = {
                pool.submit(_play_and_tell, job, home): home for home, job in missing.items()
            }
        while jobs:
            done, _ = wait(jobs, timeout=0.5, return_when=FIRST_COMPLETED)
            while not told.empty():
                on_round(*told.get())
            for job in done:
                yield jobs.pop(job), job.result()
    except BrokenProcessPool as error:
        raise TesseractError(
            f"one of {workers} worker processes was killed, most likely because memory ran out; take fewer with "
            "--workers, and the same command goes on where this one stopped"
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()


@contextmanager
def _blas_threads(count: int) -> Iterator[None]:
    """Processes that start now use so many threads for linear algebra, unless the user has said otherwise."""
    ours = [name for name in BLAS if name not in os.environ]
    os.environ.update(dict.fromkeys(ours, str(count)))
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


def _play_on_ray(address: str, missing: Mapping[Path, Job], on_round: OnRound) -> Finished:
    """Each cell is a task with a core of its own; its directory is made there and comes back as bytes."""
    try:
        import ray
    except ImportError as error:
        raise needs_extra("Ray", "ray") from error
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False)
    task = ray.remote(num_cpus=1, max_retries=3)(_play_elsewhere)
    jobs = {task.remote(job): home for home, job in missing.items()}
    while jobs:
        (done,), _ = ray.wait(list(jobs))
        home = jobs.pop(done)
        try:
            left = ray.get(done)
        except ray.exceptions.RayError as error:  # the task's machine or memory: the others go on
            left = TesseractError(f"a task of the Ray cluster was lost: {str(error).strip().splitlines()[0]}")
        if isinstance(left, TesseractError):
            yield home, left
            continue
        home.mkdir(parents=True, exist_ok=True)
        with alone(home, wait=True):  # a process here may be playing the same cell
            if not (home / "summary.json").exists():
                for name in sorted(left, key=lambda name: name == "summary.json"):  # the last one says: all is there
                    write_atomically(home / name, left[name])
        seconds = sum(json.loads(line)["seconds"] for line in left["timings.jsonl"].splitlines())
        on_round(_kind(missing[home].table), missing[home].table["rounds"], seconds)
        yield home, json.loads(left["summary.json"])


def _play_elsewhere(job: Job) -> dict[str, bytes] | TesseractError:
    use_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        outcome = _attempt(job, Path(directory), lambda kind, rounds, seconds: None)
        if isinstance(outcome, TesseractError):
            return outcome
        return {path.name: path.read_bytes() for path in Path(directory).iterdir()}


def _kind(table: Mapping[str, Any]) -> str:
    return f"{table['data']['name']} {table['model']}, {table['clients']} clients, batch {table['batch']}"


def _reader(cell: Cell) -> str:
    return str(registry.describe(COMPONENTS["data"][0], cell.config.data))


def checksums(grid: list[Cell], data_dir: Path | None) -> dict[str, str]:
    """Of every data set; DataError says all that are missing, not only the first."""
    known, missing = {}, []
    for name, reader in {_reader(cell): cell.config.data for cell in grid}.items():
        try:
            known[name] = reader.read(data_dir).checksum
        except DataError as error:
            missing.append(str(error))
    if missing:
        raise DataError("\n".join(missing))
    return known


_told: Any = None  # in a worker: the queue on which it tells what OnRound takes
_datasets: dict[tuple[Any, ...], Dataset] = {}


def _start(threads: int, told: Any) -> None:
    global _told
    _told = told
    use_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would play on, while the same grid is perhaps being resumed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _play_and_tell(job: Job, home: Path) -> Outcome:
    return _attempt(job, home, lambda *told: _told.put(told))


def _attempt(job: Job, home: Path, on_round: OnRound) -> Outcome:
    try:
        return _play(job, home, on_round)
    except TesseractError as error:
        return error
    except Exception as error:  # a mistake in somebody's rule, attack or model is no reason not to play the others
        where = traceback.extract_tb(error.__traceback__)[-1]
        return TesseractError(f"{type(error).__name__}: {error} ({where.filename}, line {where.lineno})")


def _play(job: Job, home: Path, on_round: OnRound) -> dict[str, Any]:
    config = Config.from_table(job.table)

    kind = _kind(job.table)

    def start(title: str, total: int, done: int) -> Callable[[Any, float], None]:
        on_round(kind, done, None)
        return lambda record, seconds: on_round(kind, 1, seconds)

    return run(config, _dataset(config, job), home, resume=True, wait=True, on_start=start)


def _dataset(config: Config, job: Job) -> Dataset:
    """The data that a run is stored under; another machine, or a file that has changed since, may have other data."""
    key = (str(job.table["data"]), job.data_dir, job.checksum)
    if key not in _datasets:
        _datasets.clear()  # one at a time is kept
        read = config.data.read(job.data_dir)
        if read.checksum != job.checksum:
            raise DataError(
                f"the {read.name} that {socket.gethostname()} has is not the one that the grid was started with: its "
                f"checksum is {read.checksum[:12]}…, not {job.checksum[:12]}…; every machine must have the same files"
            )
        _datasets[key] = read
    return _datasets[key]
