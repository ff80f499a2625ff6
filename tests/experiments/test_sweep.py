"""Grids: every combination once, in the store by all that matters, gone on with after a kill."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tesseract_fl.cli.sweep import command
from tesseract_fl.experiments.store import Store
from tesseract_fl.experiments.sweep import cells, label, run_cells
from tesseract_fl.reports import grid as results
from tesseract_fl.simulation.config import Config
from tesseract_fl.types import ConfigError, DataError

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
        {"rule": "tesseract(decay=0.9)", "f": "2"},
        {"rule": "tesseract(decay=0.9)", "f": "3"},
    ]
    assert [cell.config.to_table()["rule"]["f"] for cell in grid] == [2, 3, 2, 3]


def test_dotted_settings_vary_one_parameter() -> None:
    grid = cells(
        {"base": {**BASE, "rule": "tesseract"}, "grid": {"rule.decay": [0.5, 0.9], "gate.max_norm_ratio": [3.0]}}
    )
    assert [cell.config.to_table()["rule"]["decay"] for cell in grid] == [0.5, 0.9]
    assert grid[0].config.gate.max_norm_ratio == 3.0


@pytest.mark.parametrize(
    "wrong", [{"gird": {}}, {"grid": {"rule": "krum"}}, {"grid": {"rule": []}}, {"grid": {"rule": ["krumm"]}}]
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
        Store.summary(tmp_path)


def sweep(folder: Path, *more: str) -> subprocess.Popen[bytes]:
    code = "from tesseract_fl.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "sweep", "grid.toml", "--workers", "1", *more],
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
    for wrong in ({"preset": "mnits"}, {"preset": "mnist", "scale": "gpu"}):
        with pytest.raises(ConfigError, match=r"mnist|paper, cpu"):
            cells({"base": wrong})


@pytest.mark.parametrize("workers", [1, 2])
def test_two_names_of_one_run_are_played_once_and_both_shown(tmp_path: Path, workers: int) -> None:
    grid = cells({"base": BASE | {"rounds": 2}, "grid": {"rule": ["tesseract", {"name": "tesseract", "decay": 0.99}]}})
    rounds: list[int] = []
    for _ in range(2):  # the second time from the store
        found = list(run_cells(grid, Store(tmp_path), workers=workers, on_round=rounds.append))
        assert sorted(cell.labels["rule"] for cell, _, _ in found) == ["tesseract", "tesseract(decay=0.99)"]
    assert len(list(tmp_path.iterdir())) == 1
    assert sum(rounds) == 8


def test_a_grid_is_one_tidy_table_and_a_heat_map(tmp_path: Path) -> None:
    from pyarrow import parquet

    rows: list[dict[str, Any]] = [
        {"rule": "krum", "f": "2", "seed": "0", "accuracy": 0.5, "attack_success": 0.25},
        {"rule": "krum", "f": "2", "seed": "1", "accuracy": 0.7},
        {"rule": "fedsgd", "f": "3", "seed": "0", "accuracy": None},
    ]
    text, files = results.write(rows, ["rule", "f", "seed"], tmp_path)
    assert text.splitlines()[2:] == ["| krum | 60.00 |  |", "| fedsgd |  |  |"]
    assert {path.name for path in files} == {f"results.{kind}" for kind in ("csv", "parquet", "md", "png", "svg")}
    table = parquet.read_table(tmp_path / "results.parquet").to_pylist()
    assert [row["accuracy"] for row in table] == [0.5, 0.7, None]
    assert [row["attack_success"] for row in table] == [0.25, None, None]


def test_the_worst_of_several_attacks_has_a_line(tmp_path: Path) -> None:
    told = {("none", "krum"): 0.3, ("ipm", "krum"): 0.8, ("alie", "krum"): 0.5, ("alie", "fedsgd"): 0.25}
    rows = [{"attack": attack, "rule": rule, "accuracy": value} for (attack, rule), value in told.items()]
    assert results.write(rows, ["rule", "attack"], tmp_path)[0].splitlines()[-1] == "| **worst** | 50.00 | 25.00 |"
    assert "worst" not in results.write(rows[:2], ["rule", "attack"], tmp_path)[0]


def test_what_goes_down_and_what_across() -> None:
    assert results.crossed(["rule", "attack", "lr"]) == ("attack", "rule")
    assert results.crossed(["lr", "seed"]) is None
