"""What outlasts a process and a connection: state, identity, operators' decisions."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord

from tesseract_fl import checkpoint
from tesseract_fl.flower import Newcomers, RobustStrategy
from tesseract_fl.flower.federation import without
from tesseract_fl.flower.replies import named_arrays
from tesseract_fl.flower.weighing import held_down
from tesseract_fl.gate import Gate
from tesseract_fl.registry import build
from tesseract_fl.reputation.ledger import Ledger
from tesseract_fl.rules.hardened import Hardened, HardenedState
from tesseract_fl.rules.tesseract import FilterState, Tesseract
from tesseract_fl.types import CheckpointError, ConfigError
from tests.flower.fake import Arrays, FakeGrid, Node, client, everyone, honest, record, small_model

ROUNDS = 80
HARNESS = """
import sys
from pathlib import Path
from tests.flower.test_lasting import kill_and_go_on
kill_and_go_on(Path(sys.argv[1]))
"""


def evil() -> Node:
    return client(lambda arrays, t: {name: (array - 0.3).astype(array.dtype) for name, array in arrays.items()})


def not_finite() -> Node:
    return client(lambda arrays, t: {**arrays, "w": arrays["w"] + np.float32(np.nan)})


def with_counter() -> Arrays:
    """Torch's batch norm counts its batches in an array without axes."""
    return {**small_model(), "bn.num_batches_tracked": np.array(0, np.int64)}


def serve(folder: Path, rounds: int, rule: str = "tesseract", seed: int = 0, **options: Any) -> Any:
    """A ServerApp: the same replies whenever it runs, in whatever order."""
    ours = RobustStrategy(build("rules", {"name": rule}, f=2), ledger=folder, fraction_evaluate=0.0, **options)
    nodes = {**everyone(7), 200: evil(), 201: not_finite()}
    return ours.start(FakeGrid(nodes, seed=seed), record(with_counter()), num_rounds=rounds)


def state_of(folder: Path) -> tuple[Any, Any]:
    ledger = Ledger.existing(folder)
    arrays, meta = ledger.load()
    history = [(v.round, v.client, v.verdict, v.code, v.score, v.weight, v.reputation) for v in ledger.verdicts()]
    return {name: array.tobytes() for name, array in arrays.items()} | {"meta": meta}, history


@pytest.mark.parametrize("rule", ["tesseract", "hardened", "foolsgold", "reputation_filter+krum"])
def test_stopped_and_started_again_is_as_if_it_never_stopped(tmp_path: Path, rule: str) -> None:
    serve(tmp_path / "one", 8, rule)
    for upto in (1, 2, 5, 8):
        serve(tmp_path / "many", upto, rule, seed=upto)
    assert state_of(tmp_path / "one") == state_of(tmp_path / "many")


def test_killed_at_random_moments_nothing_is_lost_or_applied_twice(tmp_path: Path) -> None:
    serve(tmp_path / "whole", ROUNDS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    command = [sys.executable, "-c", HARNESS, str(tmp_path / "killed")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "killed 10 times" in done.stdout
    assert [entry.round for entry in Ledger.existing(tmp_path / "killed").entries()] == list(range(1, ROUNDS + 1))
    assert state_of(tmp_path / "killed") == state_of(tmp_path / "whole")


def kill_and_go_on(folder: Path) -> None:
    """Fork a ServerApp, kill it at a random moment, look what it left; 10 times, then let it finish."""
    chance = random.Random(7)
    last = 0
    for _ in range(10):
        child = _forked(folder)
        _wait_for_a_round(folder, last, child)
        time.sleep(chance.uniform(0, 0.03))
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "it ended before it could be killed"
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        now = _round(folder)
        assert now > last, "a committed round was lost"
        last = now
    print("killed 10 times, last at round", last)
    assert os.waitpid(_forked(folder), 0)[1] == 0


def _forked(folder: Path) -> int:
    child = os.fork()
    if not child:
        serve(folder, ROUNDS)
        os._exit(0)
    return child


def _wait_for_a_round(folder: Path, last: int, child: int) -> None:
    """Until the child has committed something new."""
    while _round(folder) <= last:
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "it ended without having committed a round"
        time.sleep(0.002)


def _round(folder: Path) -> int:
    try:
        with closing(Ledger.existing(folder)) as ledger:
            return ledger.round
    except CheckpointError:  # it is just being made
        return 0


def test_a_state_of_another_model_or_rule_is_refused(tmp_path: Path) -> None:
    serve(tmp_path, 2)
    with pytest.raises(CheckpointError, match="another rule"):
        serve(tmp_path, 3, rule="foolsgold")
    other = {"w": np.zeros((3, 5), np.float32), "b": np.zeros(4, np.float32)}
    with pytest.raises(CheckpointError, match="another model"):
        RobustStrategy(Tesseract(f=2), ledger=tmp_path).start(FakeGrid(everyone()), record(other), num_rounds=3)


def test_reputation_belongs_to_the_key_not_to_the_connection(tmp_path: Path) -> None:
    def play(ids: list[int], upto: int) -> dict[str, float]:
        ours = RobustStrategy(Tesseract(f=1), ledger=tmp_path, fraction_evaluate=0.0)
        trains = [client(honest(1)), client(honest(2)), client(honest(3)), not_finite()]
        keys = [b"key one", b"key two", b"key three", b"key of the bad one"]
        nodes = dict(zip(ids, trains, strict=True))
        ours.start(FakeGrid(nodes, dict(zip(ids, keys, strict=True))), record(small_model()), num_rounds=upto)
        return dict(ours.federation.state.reputation)

    before = play([1, 2, 3, 4], 3)
    after = play([9, 8, 7, 6], 6)  # all SuperNodes were started again and have new ids
    assert set(before) == set(after)
    assert all(name.startswith("key:") for name in after)
    assert min(after.values()) < min(before.values()) < 0


def test_the_app_may_know_better() -> None:
    ours = RobustStrategy(Tesseract(f=1), fraction_evaluate=0.0, identify=lambda node: f"site-{node.node_id % 4}")
    ours.start(FakeGrid(everyone(6)), record(small_model()), num_rounds=1)  # 6 nodes, but 4 sites
    assert set(ours.federation.state.reputation) == {f"site-{i}" for i in range(4)}


def weight_in_last_round(ours: RobustStrategy, name: str) -> float:
    return next(v.weight or 0.0 for v in reversed(ours.federation.ledger.verdicts(client=name)))


@pytest.mark.parametrize("policy", ["neutral", "probation"])
def test_a_newcomer_starts_under_the_policy_that_was_chosen(policy: str) -> None:
    ours = RobustStrategy(Tesseract(f=1), newcomers=Newcomers(policy=policy, rounds=5), fraction_evaluate=0.0)
    grid = FakeGrid(everyone(7))
    ours.start(grid, record(small_model()), num_rounds=12)
    for client_id in list(ours.federation.state.reputation)[:5]:  # let the old hands have lost much
        ours.federation.state.reputation[client_id] = -3.0
    grid.nodes[300] = client(honest(50))
    arrays = ours._latest
    assert arrays is not None
    ours.start(grid, arrays, num_rounds=13)
    weights = [v.weight for v in ours.federation.ledger.verdicts(round=13) if v.weight is not None]
    old = [v.weight for v in ours.federation.ledger.verdicts(round=13) if v.client != "node:300" and v.weight]
    new = weight_in_last_round(ours, "node:300")
    assert sum(weights) == pytest.approx(1)
    assert (new <= np.median(old) * (1 + 1e-9)) == (policy == "probation")


def test_a_flood_of_new_names_does_not_pay() -> None:
    """Attackers come back under new names every third round; on probation they stay below their share."""
    shares = {}
    for policy in ("neutral", "probation"):
        ours = RobustStrategy(Tesseract(f=2), newcomers=Newcomers(policy=policy, rounds=10), fraction_evaluate=0.0)
        grid = FakeGrid(everyone(8))
        arrays = record(small_model())
        total = 0.0
        for t in range(1, 31):
            bad = {1000 + 10 * (t // 3) + i: evil() for i in range(2)}
            grid.nodes = {**everyone(8), **bad}
            result = ours.start(grid, arrays, num_rounds=t)
            arrays = result.arrays
            if t > 15:
                of_round = ours.federation.ledger.verdicts(round=t)
                total += sum(v.weight or 0 for v in of_round if v.client.startswith("node:1") and len(v.client) > 8)
        shares[policy] = total / 15
    assert shares["probation"] <= shares["neutral"] + 1e-12
    assert shares["probation"] < 0.05


@pytest.mark.parametrize(
    "passed",
    [[], [0.0, 0.0], [1e-19, 1e-19], [1e-18, 1e-18, 1e-18, 0.1, 0.1]],
    ids=["none", "nothing", "little", "some"],
)
def test_newcomers_are_not_measured_by_those_who_are_cut_off(passed: list[float]) -> None:
    weights = np.array([*passed, *[(1 - sum(passed)) / 9] * 9])
    np.testing.assert_array_equal(held_down(weights, np.arange(len(weights)) >= len(passed)), weights)


def test_where_nobody_weighs_anything_nobody_is_held_down() -> None:
    np.testing.assert_array_equal(held_down(np.zeros(3), np.array([False, False, True])), np.zeros(3))


def test_a_ban_and_a_pardon_are_heeded_from_the_next_round_on(tmp_path: Path) -> None:
    serve(tmp_path, 3)
    operator = Ledger.existing(tmp_path)
    operator.act("ban", "node:200", "caught attacking")
    serve(tmp_path, 4)
    assert "node:200" not in {v.client for v in operator.verdicts(round=4)}
    before = operator.load()[1]["state.reputation"]["node:200"]
    assert before < 0
    operator.act("pardon", "node:200", "it was our own drill")
    serve(tmp_path, 5)
    after = operator.load()[1]["state.reputation"]["node:200"]
    assert after > before
    serve(tmp_path, 7)  # a pardon is heeded once
    assert operator.load()[1]["state.reputation"]["node:200"] < after


def test_a_pardoned_client_is_on_probation_again_also_after_a_restart(tmp_path: Path) -> None:
    def on_probation(round: int) -> bool:
        (found,) = Ledger.existing(tmp_path).verdicts(client="node:100", round=round)
        return "on probation" in found.detail

    newcomers = Newcomers(rounds=2)
    serve(tmp_path, 6, newcomers=newcomers)
    assert not on_probation(6)
    Ledger.existing(tmp_path).act("pardon", "node:100", "its disk was broken")
    serve(tmp_path, 7, newcomers=newcomers)
    assert on_probation(7)
    serve(tmp_path, 8, newcomers=newcomers)
    assert on_probation(8)
    serve(tmp_path, 14, newcomers=newcomers)
    assert not on_probation(14)


def test_nothing_of_a_pardoned_client_is_remembered_and_everything_of_the_others() -> None:
    def state(*clients: str) -> FilterState[HardenedState]:
        scores = dict.fromkeys(clients, -1.0)
        rounds = dict.fromkeys(clients, 3)
        memory = {"flip": scores, "length": scores}
        inner = HardenedState(
            np.ones(2, np.int8), np.ones(2, np.float32), scores, memory, seen=rounds, probation=rounds, age=9
        )
        return FilterState(np.ones(2, np.int8), scores, inner=inner)

    pardoned = without(state("a", "flip", "b"), "flip")  # a client may be named like a kind of evidence
    assert checkpoint.pack(pardoned)[1] == checkpoint.pack(state("a", "b"))[1]
    assert pardoned.inner.direction.tolist() == [1, 1]


def test_a_rule_with_a_probation_of_its_own_is_left_alone() -> None:
    """Where five newcomers boost their updates, the step is no longer than the rule allows."""
    rule = Hardened(f=5, cut=1e6)  # nobody is suspected: only the bound is left
    with pytest.raises(ConfigError, match="probation of its own"):
        RobustStrategy(rule, newcomers=Newcomers(policy="probation"))
    ours = RobustStrategy(rule, fraction_evaluate=0.0, gate=Gate())
    old = {100 + i: honest(i) for i in range(11)}
    new = {300 + i: honest(i, scale=1e3) for i in range(5)}
    grid = FakeGrid({i: client(train) for i, train in old.items()})
    before = ours.start(grid, record(small_model()), num_rounds=11).arrays
    asked = {**{i: old[i] for i in range(100, 106)}, **new}
    grid.nodes = {i: client(train) for i, train in asked.items()}
    after = ours.start(grid, before, num_rounds=12).arrays
    model = flat(before)
    norms = [np.linalg.norm(flat(record(train(named_arrays(before), 12))) - model) for train in asked.values()]
    assert np.linalg.norm(flat(after) - model) <= rule.reach * np.median(norms) * (1 + 1e-6)


def flat(arrays: ArrayRecord) -> Any:
    return np.concatenate([array.reshape(-1) for array in named_arrays(arrays).values()])
