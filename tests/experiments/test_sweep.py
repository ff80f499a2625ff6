"""Grids: every combination once, in the store by all that matters, gone on with after a kill."""

from __future__ import annotations

import contextlib
import csv
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from concurrent.futures import Future
from dataclasses import replace
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tesseract_fl.cli.grids import row as row_of
from tesseract_fl.cli.sweep import command
from tesseract_fl.data.npz import ChMnistTexture
from tesseract_fl.experiments import sweep as experiments
from tesseract_fl.experiments.store import Store
from tesseract_fl.experiments.sweep import Job, _play_elsewhere, cells, label, run_cells
from tesseract_fl.reports import grid as results
from tesseract_fl.rules.krum import Krum
from tesseract_fl.simulation.config import Config
from tesseract_fl.types import ConfigError, DataError, TesseractError

BASE: dict[str, Any] = {
    "data": "breast_cancer",
    "model": "logistic",
    "clients": 12,
    "malicious": 3,
    "rounds": 12,
    "batch": 8,
    "lr": 0.1,
    "attack": "full_trim",
}
FILE = """
[base]
data = "breast_cancer"
model = "logistic"
clients = 12
malicious = 3
rounds = {rounds}
batch = 8
lr = 0.1
[grid]
rule = ["fedsgd", {{name = "tesseract", decay = 0.9}}]
attack = ["none", {{name = "sleeper+full_trim", until = 5}}]
"""


def test_every_combination_on_top_of_the_base() -> None:
    grid = cells({"base": BASE, "grid": {"rule": ["krum", {"name": "tesseract", "decay": 0.9}], "f": [2, 3]}})
    assert [cell.labels for cell in grid][2:] == [
        {"rule": "tesseract(decay=0.9)", "f": 2},
        {"rule": "tesseract(decay=0.9)", "f": 3},
    ]
    assert [cell.config.to_table()["rule"]["f"] for cell in grid] == [2, 3, 2, 3]


def test_dotted_settings_vary_one_parameter() -> None:
    grid = cells(
        {"base": {**BASE, "rule": "tesseract"}, "grid": {"rule.decay": [0.5, 0.9], "gate.max_norm_ratio": [3.0]}}
    )
    assert [cell.config.to_table()["rule"]["decay"] for cell in grid] == [0.5, 0.9]
    assert grid[0].config.gate.max_norm_ratio == 3.0


def test_a_parameter_belongs_to_the_rule_beside_it_whichever_comes_first() -> None:
    grid = cells({"base": BASE, "grid": {"rule.decay": [0.5, 0.9], "rule": ["tesseract"]}})
    assert [cell.config.to_table()["rule"]["decay"] for cell in grid] == [0.5, 0.9]


def test_a_table_where_a_list_belongs_says_how_to_write_it() -> None:
    with pytest.raises(ConfigError, match=r'in quotes: "rule\.decay" = '):
        cells(tomllib.loads("[grid]\nrule.decay = [0.5, 0.9]"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"gird": {}},
        {"base": 3},
        {"grid": "x"},
        {"grid": {"rule": "krum"}},
        {"grid": {"rule": []}},
        {"grid": {"rule": ["krumm"]}},
    ],
)
def test_what_makes_no_sense_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        cells(wrong)


def test_labels_name_what_was_given() -> None:
    assert (
        label({"name": "on_off", "on": 2, "inner": {"name": "label_flip", "source": 1}})
        == "on_off(on=2)+label_flip(source=1)"
    )


CHANGES: list[dict[str, Any]] = [
    {"rule": {"name": "tesseract", "decay": 0.98}},
    {"rule": {"name": "tesseract", "f": 2}},
    {"rule": "fedsgd"},
    {"attack": {"name": "full_trim", "b": 3.0}},
    {"attack": {"name": "sleeper+full_trim", "until": 5}},
    {"attack": {"name": "sleeper+full_trim", "until": 6}},
    {"attack": {"name": "sleeper", "until": 6, "inner": {"name": "full_trim", "b": 3.0}}},
    {"seed": 1},
    {"lr": 0.2},
    {"rounds": 13},
    {"malicious": 2},
    {"participation": 0.5},
    {"partition": {"name": "label_biased", "bias": 0.6}},
    {"gate": {"max_norm_ratio": 3.0}},
    {"knowledge": {"updates": "all", "defence": "report"}},
]


def test_changing_any_parameter_misses_the_store() -> None:
    store = Store(Path("anywhere"))
    homes = {store.home(Config.from_table({**BASE, **change}), "data") for change in [{}, *CHANGES]}
    homes |= {store.home(Config.from_table(BASE), "other data")}
    assert len(homes) == len(CHANGES) + 2
    assert store.home(Config.from_table(BASE), "data") == store.home(Config.from_table(BASE), "data")


def test_what_is_in_the_store_is_not_played_again(tmp_path: Path) -> None:
    grid = cells({"base": BASE, "grid": {"seed": [0, 1]}})
    store = Store(tmp_path)
    first = {home: summary for _, home, summary in run_cells(grid, store, workers=2)}
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.jsonl")}
    again = {home: summary for _, home, summary in run_cells(grid, store, workers=1)}
    assert again == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.jsonl")} == stamps
    more = cells({"base": BASE, "grid": {"seed": [0, 1, 2]}})
    assert len(list(run_cells(more, store, only_stored=True))) == 2


def test_a_damaged_summary_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"accuracy": 0.')
    with pytest.raises(DataError, match="delete"):
        Store(tmp_path.parent).summary(tmp_path)


def sweep(folder: Path, *more: str, file: str = "grid.toml") -> subprocess.Popen[bytes]:
    code = "from tesseract_fl.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "sweep", file, "--workers", "1", *more],
        cwd=folder, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def test_a_killed_grid_goes_on_and_ends_with_the_same_table(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
        (folder / "grid.toml").write_text(FILE.format(rounds=40))
    assert sweep(whole).wait(timeout=120) == 0

    process = sweep(killed)
    deadline = time.monotonic() + 120
    while not list(killed.rglob("summary.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    finished = {path: path.stat().st_mtime_ns for path in killed.rglob("summary.json")}
    assert 1 <= len(finished) < 4, "it should have been killed on the way"
    assert sweep(killed).wait(timeout=120) == 0
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    for name in ("results.csv", "results.md"):
        assert (killed / "grid" / name).read_text() == (whole / "grid" / name).read_text()


def alive(group: int) -> list[str]:
    """The processes of a group that still run; zombies do not."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
            found += [path.parent.name] if int(its_group) == group and state != "Z" else []
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_workers_do_not_outlive_their_grid(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(FILE.format(rounds=100_000))
    process = sweep(tmp_path, "--workers", "2")
    try:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.rglob("metrics.jsonl"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(alive(process.pid)) >= 3
        process.kill()
        process.wait()
        while alive(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert alive(process.pid) == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_the_command_writes_tables(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(FILE.format(rounds=8))
    options = [str(file), "--store", str(tmp_path / "store"), "--workers", "1"]
    shown = CliRunner().invoke(command, options, catch_exceptions=False)
    assert "| attack | fedsgd | tesseract(decay=0.9) |" in shown.stdout
    assert "4 of 4 runs" in shown.stdout
    rows = list(csv.DictReader((tmp_path / "grid/results.csv").read_text().splitlines()))
    assert [row["attack"] for row in rows] == ["none", "sleeper+full_trim(until=5)"] * 2
    machine = CliRunner().invoke(command, [*options, "--json"], catch_exceptions=False)
    assert [str(run["accuracy"]) for run in json.loads(machine.stdout)["runs"]] == [row["accuracy"] for row in rows]


def test_a_preset_is_a_base_and_other_settings_win() -> None:
    (cell,) = cells({"base": {"preset": "femnist", "scale": "cpu", "rounds": 7}, "grid": {"seed": [3]}})
    assert (cell.config.clients, cell.config.rounds, cell.config.lr, cell.config.seed) == (35, 7, 0.1, 3)
    (cell,) = cells({"base": {"preset": "cifar10", "scale": "cpu", "model": {"width": 8}, "data.augment": False}})
    table = cell.config.to_table()
    assert table["model"] == {"name": "resnet18", "width": 8}
    assert table["data"] == {"name": "cifar10", "verify": True, "augment": False}
    for wrong in ({"preset": "mnits"}, {"preset": "mnist", "scale": "gpu"}):
        with pytest.raises(ConfigError, match=r"mnist|paper, cpu"):
            cells({"base": wrong})


@pytest.mark.parametrize("workers", [1, 2])
def test_two_names_of_one_run_are_played_once_and_both_shown(tmp_path: Path, workers: int) -> None:
    grid = cells({"base": BASE | {"rounds": 2}, "grid": {"rule": ["tesseract", {"name": "tesseract", "decay": 0.99}]}})
    rounds = {True: 0, False: 0}  # played, and already there

    def count(kind: str, more: int, seconds: float | None) -> None:
        rounds[seconds is not None] += more

    for _ in range(2):  # the second time from the store
        found = list(run_cells(grid, Store(tmp_path), workers=workers, on_round=count))
        assert sorted(cell.labels["rule"] for cell, _, _ in found) == ["tesseract", "tesseract(decay=0.99)"]
    assert len(list(tmp_path.iterdir())) == 1
    assert rounds == {True: 2, False: 6}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_can_not_be_played_does_not_keep_the_others_from_it(tmp_path: Path, workers: int) -> None:
    grid = cells({"base": BASE | {"rounds": 2}, "grid": {"model": ["dnn", "logistic"], "seed": [0, 1]}})
    failed: list[Any] = []
    found = list(run_cells(grid, Store(tmp_path), workers=workers, on_failure=lambda *told: failed.append(told)))
    assert [cell.labels["model"] for cell, _, _ in found] == ["logistic", "logistic"]
    assert [(cell.labels["model"], type(error)) for cell, error in failed] == [("dnn", ConfigError)] * 2
    with pytest.raises(ConfigError, match="dnn takes images"):
        list(run_cells(grid, Store(tmp_path), workers=workers))


def test_a_mistake_in_a_rule_is_named_and_the_others_are_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any, *args: Any) -> Any:
        raise ZeroDivisionError("of my own")

    monkeypatch.setattr(Krum, "weigh", broken)
    grid = cells({"base": BASE, "grid": {"rule": ["krum", "fedsgd"]}})
    failed: list[Any] = []
    found = list(run_cells(grid, Store(tmp_path), on_failure=lambda *told: failed.append(told)))
    assert [cell.labels["rule"] for cell, _, _ in found] == ["fedsgd"]
    ((cell, error),) = failed
    assert cell.labels["rule"] == "krum"
    assert "ZeroDivisionError: of my own" in str(error)
    assert "test_sweep.py, line" in str(error)


def test_a_worker_that_is_killed_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    grid = cells({"base": {**BASE, "rounds": 5000}, "grid": {"seed": [0, 1]}})
    others = {process.pid for process in multiprocessing.active_children()}

    def kill_one(kind: str, rounds: int, seconds: float | None) -> None:
        (first, *_) = sorted({child.pid or 0 for child in multiprocessing.active_children()} - others)
        os.kill(first, signal.SIGKILL)

    with pytest.raises(TesseractError, match="take fewer with --workers"):
        list(run_cells(grid, Store(tmp_path), workers=2, on_round=kill_one))


def test_the_command_shows_what_could_be_played_and_says_what_could_not(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(FILE.format(rounds=2) + 'model = ["dnn", "logistic"]\n')
    shown = CliRunner().invoke(command, [str(file), "--store", str(tmp_path / "store"), "--workers", "1"])
    assert shown.exit_code == 1
    assert "4 of 8 runs" in shown.stdout
    assert "4 runs could not be played" in shown.stderr
    assert "dnn takes images" in shown.stderr


def test_two_grids_on_one_store_play_a_run_once(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text(FILE.format(rounds=80))
    both = [sweep(tmp_path, "--store", "store", file=f"{name}.toml") for name in ("one", "two")]
    assert [process.wait(timeout=240) for process in both] == [0, 0]
    assert (tmp_path / "one/results.csv").read_text() == (tmp_path / "two/results.csv").read_text()
    for path in (tmp_path / "store").glob("*/metrics.jsonl"):
        rounds = [json.loads(line)["round"] for line in path.read_text().splitlines()]
        assert rounds == list(range(1, 81))


def test_presets_may_vary() -> None:
    grid = cells({"base": {"rounds": 7}, "grid": {"preset": ["mnist", "shakespeare"], "scale": ["paper", "cpu"]}})
    assert [(c.config.to_table()["model"]["name"], c.config.batch) for c in grid] == [
        ("dnn", 32), ("dnn", 32), ("gru", 100), ("gru", 20)
    ]  # fmt: skip
    assert {c.config.rounds for c in grid} == {7}


def features(folder: Path, seed: int) -> Path:
    (folder / "ch_mnist").mkdir(parents=True, exist_ok=True)
    x = np.random.default_rng(seed).normal(size=(80, 4))
    np.savez(folder / "ch_mnist/kather5000_texture74.npz", X=x, y=np.arange(80) % 8)
    return folder


def test_other_data_in_another_folder_is_another_run(tmp_path: Path) -> None:
    grid = cells({"base": BASE | {"data": "ch_mnist", "rounds": 1}})
    folders = [features(tmp_path / name, seed) for seed, name in enumerate(("one", "other"))]
    found = [next(run_cells(grid, Store(tmp_path / "store"), data_dir=folder)) for folder in folders]
    assert found[0][1] != found[1][1]
    assert found[0][2]["data_sha256"] != found[1][2]["data_sha256"]


def test_data_that_is_not_what_the_run_is_stored_under_is_not_played(tmp_path: Path) -> None:
    (cell,) = cells({"base": BASE | {"data": "ch_mnist", "rounds": 1}})
    job = Job(cell.config.to_table(), features(tmp_path, 0), ChMnistTexture().read(tmp_path).checksum)
    left = _play_elsewhere(job)
    assert not isinstance(left, TesseractError)
    assert "summary.json" in left
    told = _play_elsewhere(replace(job, checksum="0" * 64))
    assert isinstance(told, DataError)
    assert "is not the one that the grid was started with" in str(told)


def test_ray_local_is_a_new_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(address: str | None, **_: Any) -> None:
        raise ConnectionError(address)

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))
    with pytest.raises(ConnectionError, match=r"^local$"):
        list(run_cells(cells({"base": BASE}), Store(tmp_path), ray="local"))


def test_what_comes_back_from_ray_is_not_mixed_with_what_was_played_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of three tasks is lost, and one cell has been played here meanwhile."""
    grid = cells({"base": BASE | {"rounds": 1}, "grid": {"rule": ["fedsgd", "krum", "median"]}})
    here = {cell.labels["rule"]: home for cell, home, _ in run_cells(grid, Store(tmp_path / "here"))}

    class RayError(Exception):
        pass

    def remote(job: Job) -> str:
        return str(job.table["rule"]["name"])

    def get(rule: str) -> Any:
        if rule == "krum":
            raise RayError("Worker died\nmore")
        there = {path.name: path.read_bytes() for path in here[rule].iterdir()}
        if rule == "median":
            shutil.copytree(here[rule], Store(tmp_path / "store").directory / here[rule].name)
            there["summary.json"] = b"{}"
        return there

    fake = SimpleNamespace(
        is_initialized=lambda: True, remote=lambda **_: lambda task: SimpleNamespace(remote=remote), get=get,
        wait=lambda jobs: (jobs[:1], jobs[1:]), exceptions=SimpleNamespace(RayError=RayError),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "ray", fake)
    failed: list[str] = []
    found = run_cells(grid, Store(tmp_path / "store"), ray="any", on_failure=lambda _, error: failed.append(str(error)))
    assert [cell.labels["rule"] for cell, _, _ in found] == ["fedsgd", "median"]
    assert failed == ["a task of the Ray cluster was lost: Worker died"]
    for path in (*here["fedsgd"].iterdir(), *here["median"].iterdir()):
        assert (tmp_path / "store" / path.parent.name / path.name).read_bytes() == path.read_bytes()


def test_a_grid_without_a_suffix_needs_a_folder(tmp_path: Path) -> None:
    (tmp_path / "grid").write_text(FILE.format(rounds=1))
    told = CliRunner().invoke(command, [str(tmp_path / "grid")])
    assert "name a folder with --out" in told.output
    with pytest.raises(ConfigError, match="there is no preset"):
        cells({"base": {"preset": ["mnist"]}})


def test_workers_share_the_cores_and_there_are_no_more_than_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int, dict[str, str | None]]] = []

    class Pool:
        def __init__(self, workers: int, *, initargs: tuple[int, Any], **_: Any) -> None:
            self.size = workers, initargs[0]

        def submit(self, *_: Any) -> Future[dict[str, Any]]:
            asked.append((*self.size, {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}))
            done: Future[dict[str, Any]] = Future()
            done.set_result({})
            return done

        def shutdown(self, **_: Any) -> None:
            pass

    monkeypatch.setattr(experiments, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(experiments, "cores", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the user's own word stays
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    list(run_cells(cells({"base": BASE, "grid": {"seed": [0, 1]}}), Store(tmp_path), workers=8))
    assert asked == [(2, 4, {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "4"})] * 2
    assert "MKL_NUM_THREADS" not in os.environ


def test_a_sweep_ends_its_own_processes_and_nobody_else_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleeping() -> SpawnProcess:
        process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
        process.start()
        return process

    workers: list[SpawnProcess] = []

    class Pool:
        def __init__(self, *_: Any, **__: Any) -> None:
            workers.append(sleeping())

        def submit(self, *_: Any) -> Future[dict[str, Any]]:
            done: Future[dict[str, Any]] = Future()
            done.set_result({})
            return done

        def shutdown(self, **_: Any) -> None:
            pass

    monkeypatch.setattr(experiments, "ProcessPoolExecutor", Pool)
    bystander = sleeping()
    try:
        list(run_cells(cells({"base": BASE, "grid": {"seed": [0, 1]}}), Store(tmp_path), workers=2))
        workers[0].join(10)
        assert not workers[0].is_alive()
        bystander.join(0.5)
        assert bystander.is_alive()
    finally:
        bystander.terminate()
        bystander.join()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs a system that pins processes to cores")
def test_cores_are_those_that_may_be_used() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [min(allowed)])
    try:
        assert experiments.cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_a_long_name_leaves_room_for_a_single_column(tmp_path: Path) -> None:
    attack = "camouflage(boost=2.0, most=0.8, part=0.25)"
    rows = [{"attack": attack, "rule": "hardened", "accuracy": 0.9}]
    results.write(rows, ["attack", "rule"], tmp_path)  # matplotlib warns when no room is left, and warnings are errors


def test_a_grid_is_one_tidy_table_and_a_heat_map(tmp_path: Path) -> None:
    from pyarrow import parquet

    rows: list[dict[str, Any]] = [
        {"rule": "krum", "f": 2, "seed": 0, "accuracy": 0.5, "attack_success": 0.25, "mixed": 1},
        {"rule": "krum", "f": 2, "seed": 1, "accuracy": 0.7, "mixed": "full"},
        {"rule": "fedsgd", "f": 0.3, "seed": 0, "accuracy": None},
    ]
    text, files = results.write(rows, ["rule", "f", "seed"], tmp_path)
    assert text.splitlines()[2:] == ["| 2 | 60.00 |  |", "| 0.3 |  |  |"]
    assert {path.name for path in files} == {f"results.{kind}" for kind in ("csv", "parquet", "md", "png", "svg")}
    table = parquet.read_table(tmp_path / "results.parquet").to_pylist()
    assert [row["accuracy"] for row in table] == [0.5, 0.7, None]
    assert [row["attack_success"] for row in table] == [0.25, None, None]
    assert [row["seed"] for row in table] == [0, 1, 0]
    assert [row["mixed"] for row in table] == ["1", "full", None]


def test_whatever_else_varies_has_tables_of_its_own(tmp_path: Path) -> None:
    rows = [
        {"attack": "none", "rule": "krum", "data": data, "lr": lr, "f": 2, "seed": seed, "accuracy": accuracy}
        for data, lr, seed, accuracy in (("a", 0.1, 0, 0.2), ("a", 0.1, 1, 0.4), ("a", 0.2, 0, 0.5), ("b", 0.1, 0, 0.6))
    ]
    text, _ = results.write(rows, ["attack", "rule", "data", "lr", "f", "seed"], tmp_path)
    table = "| attack | krum |\n|---|---:|\n| none | {} |\n"
    assert text == "\n".join(
        f"## {what}\n\n{table.format(mean)}"
        for what, mean in (("data a, lr 0.1", "30.00"), ("data a, lr 0.2", "50.00"), ("data b, lr 0.1", "60.00"))
    )
    assert (tmp_path / "results.md").read_text() == text
    svg = (tmp_path / "results.svg").read_text()
    assert all(
        f"<!-- final accuracy (%), attack × rule; {what} -->" in svg for what in ("data a, lr 0.2", "data b, lr 0.1")
    )


def test_without_matplotlib_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"tesseract-fl\[plots\]"):
        results.write([{"attack": "none", "rule": "krum", "accuracy": 0.5}], ["attack", "rule"], tmp_path)


def test_what_was_varied_keeps_its_column_and_its_type() -> None:
    (cell,) = cells({"grid": {"data": ["femnist"], "lr": [0.1]}})
    row = row_of(cell, Path("home"), {"accuracy": 0.5, "data": "unipen62", "data_sha256": "0"})
    assert (row["data"], row["data_read"], row["lr"]) == ("femnist", "unipen62", 0.1)
    assert list(row)[:3] == ["data", "lr", "accuracy"]


def test_nothing_in_the_store_leaves_old_results_alone(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(FILE.format(rounds=8))
    (tmp_path / "results.csv").write_text("old")
    arguments = [str(tmp_path / "grid.toml"), "--out", str(tmp_path), "--store", str(tmp_path / "store"), "--stored"]
    assert CliRunner().invoke(command, arguments, catch_exceptions=False).stdout == "nothing is in the store\n"
    assert (tmp_path / "results.csv").read_text() == "old"
    machine = CliRunner().invoke(command, [*arguments, "--json"], catch_exceptions=False)
    assert json.loads(machine.stdout) == {"runs": [], "csv": None, "files": [], "failed": [], "from_table": 0}


def test_a_table_remembers_its_runs_where_the_store_is_gone(tmp_path: Path) -> None:
    file, table = tmp_path / "grid.toml", tmp_path / "grid/results.csv"
    file.write_text(FILE.format(rounds=2))
    options = [str(file), "--workers", "1", "--store"]
    CliRunner().invoke(command, [*options, str(tmp_path / "store")], catch_exceptions=False)
    whole = table.read_text()
    *kept, last = whole.splitlines(keepends=True)
    table.write_text("".join(kept))
    again = CliRunner().invoke(command, [*options, str(tmp_path / "empty")], catch_exceptions=False)
    assert table.read_text() == whole
    assert "4 of 4 runs" in again.stdout
    assert "3 of them are from the table that was there" in again.stdout
    assert [home.name in last for home in (tmp_path / "empty").iterdir()] == [True]  # only what the table had lost


def test_a_table_remembers_nothing_of_other_settings_and_says_if_it_was_damaged(tmp_path: Path) -> None:
    file, table = tmp_path / "grid.toml", tmp_path / "grid/results.csv"
    file.write_text(FILE.format(rounds=2))
    options = [str(file), "--workers", "1", "--store", str(tmp_path / "store")]
    CliRunner().invoke(command, options, catch_exceptions=False)
    file.write_text(FILE.format(rounds=3))
    nothing = [*options[:-1], str(tmp_path / "empty"), "--stored"]
    assert "nothing is in the store" in CliRunner().invoke(command, nothing, catch_exceptions=False).stdout
    whole = table.read_text()
    for damaged in (whole.replace(",2,0,", ",two,0,"), whole[: whole.rindex(",")], whole.replace("\n", ",more\n", 2)):
        table.write_text(damaged)
        with pytest.raises(DataError, match="not as it was written"):
            CliRunner().invoke(command, options, catch_exceptions=False)
    table.write_text("directory,accuracy,rounds\nabc,0.5,2\nabd,,2\n")
    assert results.summaries(table) == {}, "of which data, nobody knows"


@pytest.mark.parametrize("varied", [{"data": ["breast_cancer"]}, {"rounds": [12]}, {"lr": [0.1]}])
def test_what_a_table_remembers_is_what_the_store_knew(tmp_path: Path, varied: dict[str, Any]) -> None:
    grid = cells({"base": BASE, "grid": varied})
    ((cell, home, summary),) = run_cells(grid, Store(tmp_path / "store"))
    results.write([row_of(cell, home, summary)], list(cell.varied), tmp_path)
    remembered = Store(tmp_path / "empty", results.summaries(tmp_path / "results.csv"))
    ((_, _, known),) = run_cells(grid, remembered)
    assert (known["rounds"], known["data"]) == (12, "breast_cancer")
    assert row_of(cell, home, known) == row_of(cell, home, summary)
    assert not (tmp_path / "empty").exists()


def test_a_fuller_table_is_replaced_only_where_out_names_it(tmp_path: Path) -> None:
    file, table = tmp_path / "grid.toml", tmp_path / "grid/results.csv"
    file.write_text(FILE.format(rounds=2))
    options = [str(file), "--store", str(tmp_path / "store"), "--workers", "1"]
    CliRunner().invoke(command, options, catch_exceptions=False)
    whole = table.read_text()
    file.write_text(FILE.format(rounds=2).replace('"fedsgd", ', ""))
    refused = CliRunner().invoke(command, [*options, "--stored"], catch_exceptions=False)
    assert refused.exit_code == 2
    assert "has a table of 4 runs and 2 of them would be left" in refused.output
    assert table.read_text() == whole
    named = [*options, "--stored", "--out", str(table.parent)]
    assert CliRunner().invoke(command, named, catch_exceptions=False).exit_code == 0
    assert len(table.read_text().splitlines()) == 3


def test_the_worst_of_several_attacks_has_a_line(tmp_path: Path) -> None:
    told = {("none", "krum"): 0.3, ("ipm", "krum"): 0.8, ("alie", "krum"): 0.5, ("alie", "fedsgd"): 0.25}
    rows = [{"attack": attack, "rule": rule, "accuracy": value} for (attack, rule), value in told.items()]
    assert results.write(rows, ["rule", "attack"], tmp_path)[0].splitlines()[-1] == "| **worst** | 50.00 | 25.00 |"
    assert "worst" not in results.write(rows[:2], ["rule", "attack"], tmp_path)[0]


def test_accuracies_of_attackers_who_mostly_behaved_honestly_are_marked(tmp_path: Path) -> None:
    told = [
        ("none", "krum", 0, 0.9, None),
        ("ipm", "krum", 0, 0.8, 5),  # half is not more than half
        ("alie", "krum", 0, 0.4, 0),
        ("alie", "krum", 1, 0.6, 6),  # one of two seeds
        ("ipm", "fedsgd", 0, 0.2, 10),
        ("alie", "fedsgd", 0, 0.3, 0),
    ]
    names = ("attack", "rule", "seed", "accuracy", "not_attacked")
    rows = [dict(zip(names, one, strict=True)) | {"rounds": 10} for one in told]
    text, _ = results.write(rows, ["attack", "rule", "seed"], tmp_path)
    assert text.splitlines()[2:] == [
        "| none | 90.00 |  |",
        "| ipm | 80.00 | 20.00* |",
        "| alie | 50.00* | 30.00 |",
        "| **worst** | 50.00* | 20.00* |",
        "",
        "* the malicious clients behaved honestly in more than half of the rounds",
    ]
    assert "\n\n\\* the malicious" in (tmp_path / "results.md").read_text(), "a line of text, no list"
    assert "*" not in (tmp_path / "results.csv").read_text()
    for missing in ("not_attacked", "rounds"):
        untold = [{key: value for key, value in row.items() if key != missing} for row in rows]
        assert "* " not in results.write(untold, ["attack", "rule", "seed"], tmp_path)[0].replace("**worst** ", "")


def test_what_goes_down_and_what_across() -> None:
    assert results.crossed(["rule", "attack", "lr"]) == ("attack", "rule")
    assert results.crossed(["attack", "lr", "batch"]) == ("attack", "batch")
    assert results.crossed(["rule", "clients", "partition"]) == ("partition", "rule")
    assert results.crossed(["lr", "batch"]) == ("lr", "batch")
    assert results.crossed(["lr", "seed"]) is None
