"""Shards in real Ray workers: equal to one process over rounds, and a killed worker is an error, never a wrong sum."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tesseract_fl.distributed.driver import Shards, ask, gather, gather_update, init, scatter
from tesseract_fl.distributed.driver import aggregate as aggregate_sharded
from tesseract_fl.distributed.intake import Intake
from tesseract_fl.distributed.ray import RayShards
from tesseract_fl.experiments.store import Store
from tesseract_fl.experiments.sweep import cells, run_cells
from tesseract_fl.rules.base import Rule
from tesseract_fl.types import PreconditionError, ShardError, Updates
from tests.conformance.contract import RULES

ray: Any = pytest.importorskip("ray", reason="Ray is not installed: pip install 'tesseract-fl[ray]'")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, on start and at the end

N, D, WORKERS = 12, 3001, 2
TRUSTED = np.ones(D, np.float32)
SOME = ["tesseract", "krum", "trimmed_mean", "foolsgold", "fltrust", "dnc", "nnm", "reputation_filter"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    # a short directory of our own: sockets have names of at most 107 characters
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as directory:
        ray.init(
            num_cpus=WORKERS,
            include_dashboard=False,
            object_store_memory=100 * 2**20,
            log_to_driver=False,
            _temp_dir=directory,
        )
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def shards(cluster: None) -> Iterator[RayShards]:
    made = RayShards(D, WORKERS, timeout=120)
    yield made
    made.close()


def rows(t: int) -> Any:
    return np.random.default_rng(t).normal(1, 1, (N, D)).astype(np.float32)


IDS = tuple(f"client-{i}" for i in range(N))


def in_one_process(t: int) -> Updates:
    width = -(-D // WORKERS)
    return Updates(matrix=rows(t), ids=IDS, round=t, trusted=TRUSTED, block_bytes=N * 4 * width)


def fill(shards: Shards, t: int) -> Any:
    intake = Intake(shards, round=t, capacity=N)
    for client, row in zip(IDS, rows(t), strict=True):
        intake.add(client, row)
    return intake.cohort()


def aggregate(rule: Rule[Any], shards: Shards, t: int, state: Any) -> Any:
    return aggregate_sharded(rule, shards, fill(shards, t), state, trusted=TRUSTED)


def test_workers_equal_one_process_over_rounds(shards: RayShards) -> None:
    """Bit for bit: the same blocks, summed in the same order; reputation included."""
    pids = ask(shards, "pid")
    assert len({*pids, os.getpid()}) == WORKERS + 1, "processes of their own"
    for name in SOME:
        rule = RULES[name]
        state, single = init(rule, shards), rule.init(D)
        for t in range(1, 4):
            out, expected = aggregate(rule, shards, t, state), rule.aggregate(in_one_process(t), single)
            np.testing.assert_array_equal(out.update, expected.update, err_msg=name)
            np.testing.assert_array_equal(out.weights, expected.weights, err_msg=name)
            assert out.report == expected.report
            state, single = out.state, expected.state
        if "reputation" in vars(single):
            assert gather(state, shards).reputation == single.reputation
            np.testing.assert_array_equal(gather(state, shards).direction, single.direction)


def test_errors_of_a_worker_are_our_own(shards: RayShards) -> None:
    rule = RULES["tesseract"]
    state, intake = init(rule, shards), Intake(shards, round=1, capacity=5)
    for client, row in zip(IDS[:5], rows(1), strict=False):
        intake.add(client, row)
    ask(shards, "open", 1, 5)
    with pytest.raises(ShardError, match="holds 0 of the 5 rows"):
        aggregate_sharded(rule, shards, intake.cohort(), state)
    with pytest.raises(PreconditionError, match="2f < n"):
        aggregate_sharded(RULES["trimmed_mean"], shards, intake.cohort().only(np.arange(5) < 4), state)


class Killing(RayShards):
    """Kills the last worker, for real, just before a given call reaches it."""

    at = ""

    def call(self, method: str, arguments: Any) -> list[Any]:
        if method == self.at:
            pid = ray.get(self.actors[-1].pid.remote())
            os.kill(pid, signal.SIGKILL)
        return super().call(method, arguments)


def test_a_killed_worker_is_an_error_and_the_round_can_be_played_again(cluster: None) -> None:
    rule = RULES["tesseract"]
    shards = Killing(D, WORKERS, timeout=120)
    single = rule.aggregate(in_one_process(1), rule.init(D)).state
    state = aggregate(rule, shards, 1, init(rule, shards)).state
    for t, method in [(2, "total"), (3, "settle")]:
        saved = gather(state, shards)
        shards.at = method
        with pytest.raises(ShardError, match=rf"1501:3001, shard 1 of 2, died at '{method}'.*state is as before"):
            aggregate(rule, shards, t, state)
        survivor = ray.get(shards.actors[0].state.remote(state.version))
        np.testing.assert_array_equal(survivor.direction, single.direction[:1501])
        shards.close()

        shards = Killing(D, WORKERS, timeout=120)
        out = aggregate(rule, shards, t, scatter(saved, shards))
        expected = rule.aggregate(in_one_process(t), single)
        np.testing.assert_array_equal(out.update, expected.update)
        np.testing.assert_array_equal(gather_update(out.state, shards), expected.update)
        assert gather(out.state, shards).reputation == expected.state.reputation
        state, single = out.state, expected.state
    shards.close()


def test_a_worker_that_does_not_answer_is_an_error_too(shards: RayShards) -> None:
    pid = ask(shards, "pid")[0]
    shards.timeout = 1.0
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(ShardError, match="columns 0:1501, shard 0 of 2, did not answer within 1 s"):
            ask(shards, "pid")
    finally:
        shards.timeout = 120
        os.kill(pid, signal.SIGCONT)


@pytest.mark.usefixtures("cluster")
def test_the_cells_of_a_grid_run_as_tasks_and_come_back_to_the_store(tmp_path: Path) -> None:
    settings = {"data": "breast_cancer", "model": "logistic", "clients": 12, "malicious": 3, "rounds": 3, "batch": 8}
    grid = cells({"base": settings, "grid": {"rule": ["fedsgd", "krum"]}})
    there = {cell.labels["rule"]: home for cell, home, _ in run_cells(grid, Store(tmp_path / "a"), ray="auto")}
    here = {cell.labels["rule"]: home for cell, home, _ in run_cells(grid, Store(tmp_path / "b"))}
    assert set(there) == {"fedsgd", "krum"}
    for rule, home in there.items():
        for name in ("metrics.jsonl", "model.safetensors", "summary.json", "config.toml"):
            assert (home / name).read_bytes() == (here[rule] / name).read_bytes()
    assert len(list(run_cells(grid, Store(tmp_path / "a"), only_stored=True))) == 2
