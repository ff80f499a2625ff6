"""Column shards give what one process gives, reputation included; what is lost or missing is an error."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tesseract_fl import checkpoint
from tesseract_fl.distributed.driver import LocalShards, ShardedState, Shards, aggregate, gather, init, scatter
from tesseract_fl.distributed.intake import Intake
from tesseract_fl.distributed.shard import cut
from tesseract_fl.gate import Gate
from tesseract_fl.rules.base import Rule
from tesseract_fl.rules.dnc import DnC
from tesseract_fl.rules.tesseract import ReputationFilter, Tesseract
from tesseract_fl.rules.transforms import NearestNeighbourMixing
from tesseract_fl.types import ConfigError, PreconditionError, ShardError, Updates
from tests.conformance.contract import RULES

N, D, PARTS = 12, 41, 3
TRUSTED = np.ones(D, np.float32)
NESTED = {
    "nnm+reputation_filter+krum": NearestNeighbourMixing(f=2, inner=ReputationFilter(f=2, inner=RULES["krum"])),
    "reputation_filter+foolsgold": ReputationFilter(f=2, inner=RULES["foolsgold"]),
    "reputation_filter+nnm+tesseract": ReputationFilter(f=2, inner=NearestNeighbourMixing(f=2, inner=Tesseract(f=2))),
}
ALL = RULES | NESTED | {"dnc, some coordinates": DnC(f=2, coordinates=10)}
every_rule = pytest.mark.parametrize("rule", ALL.values(), ids=ALL.keys())


def rows(t: int) -> Any:
    return np.random.default_rng(t).normal(1, 1, (N, D)).astype(np.float32)


def names(t: int) -> tuple[str, ...]:
    """Not the same clients in every round."""
    return tuple(f"client-{(i + t) % (N + 2)}" for i in range(N))


def in_one_process(t: int, parts: int | None) -> Updates:
    width = None if parts is None else N * 4 * -(-D // parts)
    samples = np.arange(1.0, N + 1)
    return Updates(matrix=rows(t), ids=names(t), round=t, samples=samples, trusted=TRUSTED, block_bytes=width)


def play_sharded(rule: Rule[Any], shards: Shards, t: int, state: ShardedState[Any]) -> Any:
    intake = Intake(shards, round=t, capacity=N)
    for i, (client, row) in enumerate(zip(names(t), rows(t), strict=True)):
        assert intake.add(client, row, samples=i + 1) is None
    return aggregate(rule, shards, intake.cohort(), state, trusted=TRUSTED)


def assert_same(sharded: Any, shards: Shards, single: Any) -> None:
    """Bit for bit: update, weights, report, and the whole state."""
    np.testing.assert_array_equal(sharded.update, single.update)
    np.testing.assert_array_equal(sharded.weights, single.weights)
    assert json.dumps(sharded.report) == json.dumps(single.report)
    (arrays, small), (others, other) = (checkpoint.pack(s) for s in (gather(sharded.state, shards), single.state))
    assert small == other
    assert set(arrays) == set(others)
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], others[name])


@every_rule
@pytest.mark.parametrize("parts", [1, PARTS])
def test_shards_equal_one_process_over_rounds(rule: Rule[Any], parts: int) -> None:
    shards = LocalShards(D, parts)
    state = init(rule, shards)
    single = gather(state, shards)
    for t in range(1, 5):
        out, expected = play_sharded(rule, shards, t, state), rule.aggregate(in_one_process(t, parts), single)
        assert_same(out, shards, expected)
        state, single = out.state, expected.state


@every_rule
def test_and_another_cut_differs_in_the_order_of_sums_only(rule: Rule[Any]) -> None:
    shards = LocalShards(D, PARTS)
    state = init(rule, shards)
    single = gather(state, shards)
    for t in range(1, 4):
        out, expected = play_sharded(rule, shards, t, state), rule.aggregate(in_one_process(t, None), single)
        np.testing.assert_allclose(out.update, expected.update, rtol=1e-5, atol=1e-6)
        state, single = out.state, expected.state


def test_a_state_goes_through_a_checkpoint_to_another_number_of_shards() -> None:
    rule, shards, other = RULES["tesseract"], LocalShards(D, 1), LocalShards(D, PARTS)
    state = init(rule, shards)
    for t in range(1, 4):
        state = play_sharded(rule, shards, t, state).state
    whole = gather(state, shards)
    moved = scatter(whole, other)
    expected = rule.aggregate(in_one_process(4, PARTS), whole)
    assert_same(play_sharded(rule, other, 4, moved), other, expected)


def test_the_old_state_can_be_gone_on_from_until_a_later_round_begins() -> None:
    rule, shards = RULES["tesseract"], LocalShards(D, PARTS)
    first = init(rule, shards)
    one, again = (play_sharded(rule, shards, 1, first) for _ in range(2))
    np.testing.assert_array_equal(one.update, again.update)
    play_sharded(rule, shards, 2, again.state)
    with pytest.raises(ShardError, match="restore it from a checkpoint"):
        play_sharded(rule, shards, 2, first)


class Fails(LocalShards):
    """The last shard is lost at a given call."""

    at = ""

    def call(self, method: str, arguments: Any) -> list[Any]:
        if method != self.at:
            return super().call(method, arguments)
        for shard, own in zip(self.shards[:-1], arguments[:-1], strict=True):
            getattr(shard, method)(*own)
        raise ShardError("lost")


@pytest.mark.parametrize("method", ["begin", "total", "settle"])
def test_a_round_that_fails_at_some_shards_has_changed_nothing(method: str) -> None:
    rule, shards = RULES["tesseract"], Fails(D, PARTS)
    before = play_sharded(rule, shards, 1, init(rule, shards)).state
    single = gather(before, shards)
    shards.at = method
    with pytest.raises(ShardError):
        play_sharded(rule, shards, 2, before)
    shards.at = ""
    expected = rule.aggregate(in_one_process(2, PARTS), single)
    assert_same(play_sharded(rule, shards, 2, before), shards, expected)


def test_a_row_that_reached_only_some_shards_is_an_error_and_no_partial_sum() -> None:
    rule, shards = RULES["fedsgd"], Fails(D, PARTS)
    state, intake = init(rule, shards), Intake(shards, round=1, capacity=2)
    intake.add("a", rows(1)[0])
    intake.add("b", rows(1)[1])
    shards.shards[0]._ids.pop()
    with pytest.raises(ShardError, match=r"columns 0:14 holds 1 of the 2 rows"):
        aggregate(rule, shards, intake.cohort(), state)


def test_the_gate_stands_in_front_of_the_shards() -> None:
    """Who is turned away has no row, loses reputation, and the others are aggregated as in one process."""
    rule, shards, gate = Tesseract(f=1), LocalShards(D, PARTS), Gate(max_norm_ratio=3.0)
    sent = rows(1)
    sent[2, 30] = np.nan
    sent[5] *= 100
    state, intake = init(rule, shards), Intake(shards, round=1, capacity=N, gate=gate)
    answers = [intake.add(client, row) for client, row in zip(names(1), sent, strict=True)]
    assert [answer is None for answer in answers] == [i != 2 for i in range(N)]
    repeated = intake.add(names(1)[0], sent[0])
    assert repeated is not None
    assert repeated.code == "duplicate_id"
    out = aggregate(rule, shards, intake.cohort(), state)

    updates = gate.screen(sent, names(1), round=1)
    expected = rule.aggregate(replace(updates, block_bytes=updates.n * 4 * 14), rule.init(D))
    np.testing.assert_array_equal(out.update, expected.update)
    assert out.state.small.reputation == expected.state.reputation
    codes = {rejection["code"] for rejection in out.report["rejected"]}
    assert codes == {"not_finite", "norm_too_large", "duplicate_id"}


def test_a_global_update_that_is_not_finite_moves_no_state() -> None:
    rule, shards = RULES["tesseract"], LocalShards(D, PARTS)
    state = play_sharded(rule, shards, 1, init(rule, shards)).state
    before = gather(state, shards)
    play_sharded(rule, shards, 2, state)
    shards.shards[1]._rows[3, 3] = np.nan
    with pytest.raises(PreconditionError, match="NaN"):
        aggregate(rule, shards, in_one_process(2, None).cohort, state)
    after = gather(state, shards)
    np.testing.assert_array_equal(after.direction, before.direction)
    assert after.reputation == before.reputation
    assert before.reputation


def test_what_float32_can_t_hold_is_turned_away() -> None:
    intake = Intake(LocalShards(D, PARTS), round=1, capacity=3)
    assert intake.add("good", np.ones(D)) is None
    refused = intake.add("huge", np.full(D, 1e39))
    assert refused is not None
    assert refused.code == "not_finite"
    assert intake.cohort().ids == ("good",)


def test_the_first_valid_update_counts() -> None:
    intake = Intake(LocalShards(D, PARTS), round=1, capacity=3, gate=Gate(max_samples=10))
    answers = [intake.add("a", np.ones(D, np.float32), samples) for samples in (100, 5, 6)]
    assert [answer and answer.code for answer in answers] == ["bad_samples", None, "duplicate_id"]
    assert intake.cohort().ids == ("a",)


def test_who_takes_part_can_be_asked_twice() -> None:
    intake = Intake(LocalShards(D, PARTS), round=1, capacity=5, gate=Gate(max_norm_ratio=3))
    for i, size in enumerate((1, 1, 3, 8, 20)):  # without the largest, the next would be too large
        intake.add(str(i), np.full(D, size, np.float32))
    for _ in range(2):
        cohort = intake.cohort()
        assert cohort.ids == ("0", "1", "2", "3")
        assert [rejection.client for rejection in cohort.rejected] == ["4"]


def test_what_is_left_of_a_scattered_state_is_small() -> None:
    shards = LocalShards(D, PARTS)
    whole = RULES["tesseract"].init(D)
    assert scatter(whole, shards).small.direction.base is None


def test_what_is_asked_wrongly_is_said() -> None:
    shards = LocalShards(D, PARTS)
    with pytest.raises(ConfigError, match=r"shape \(41,\)"):
        Intake(shards, round=1, capacity=1).add("a", np.zeros(3, np.float32))
    with pytest.raises(PreconditionError, match="no update"):
        aggregate(
            RULES["median"],
            shards,
            replace(in_one_process(1, None).cohort, ids=(), samples=None),
            state=init(RULES["median"], shards),
        )
    with pytest.raises(ShardError, match="before a round began"):
        shards.shards[0].total(lambda updates, state: np.zeros(1))
    shards.shards[0].open(1, 0)
    with pytest.raises(ShardError, match="they are full"):
        shards.shards[0].put("a", np.zeros(14, np.float32))
    with pytest.raises(ConfigError, match="at least 1"):
        cut(5, 0)
    assert cut(2, 5) == [slice(0, 1), slice(1, 2)]
