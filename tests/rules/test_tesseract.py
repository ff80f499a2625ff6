"""The Tesseract rule against its oracle, and the properties that its paper proves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tesseract_fl.reputation.score import LARGEST, judge, softmax
from tesseract_fl.rules.base import Rule, resolve_f
from tesseract_fl.rules.fedsgd import FedSGD
from tesseract_fl.rules.tesseract import ReputationFilter, Tesseract
from tesseract_fl.rules.transforms import NearestNeighbourMixing
from tesseract_fl.types import Cohort, ConfigError, PreconditionError, Rejection, Updates
from tests.naive import oracles


def updates(matrix: Any, round: int = 1, ids: tuple[str, ...] | None = None, **more: Any) -> Updates:
    names = ids or tuple(f"client-{i}" for i in range(len(matrix)))
    return Updates(matrix=np.asarray(matrix, np.float32), ids=names, round=round, **more)


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(30, 60), st.floats(0, 1))
def test_many_rounds_equal_the_definition(seed: int, n: int, d: int, decay: float) -> None:
    """Clients come and go; reputations, weights, update and direction agree in every round."""
    rng = np.random.default_rng(seed)
    f = int(rng.integers(0, (n + 1) // 2))
    rule = Tesseract(f=f, decay=decay)
    state = rule.init(d)
    reputation: dict[str, float] = {}
    direction: list[int] = [0] * d
    for t in range(1, 6):
        ids = tuple(f"c{i}" for i in rng.permutation(n + 5)[:n])
        turned_away = tuple(f"c{i}" for i in range(n + 5) if f"c{i}" not in ids)[:2]
        sent = updates(rng.normal(size=(n, d)), t, ids)
        sent = Updates(
            matrix=sent.matrix,
            ids=ids,
            round=t,
            rejected=tuple(Rejection(c, "empty", "-") for c in turned_away),
        )
        out = rule.aggregate(sent, state)
        g, reputation, w = oracles.tesseract_round(
            sent.matrix, ids, direction, reputation, f=f, decay=decay, rejected=turned_away
        )
        assert out.weights is not None
        np.testing.assert_allclose(out.weights, w, rtol=1e-9, atol=1e-300)
        np.testing.assert_allclose(out.update, g, rtol=1e-5, atol=1e-6)
        assert out.state.reputation == pytest.approx(reputation, rel=1e-12, abs=1e-12)
        state = out.state
        direction = [oracles.sign(x) for x in out.update]
        assert state.direction.tolist() == direction


def test_absent_clients_keep_their_reputation() -> None:
    rule = Tesseract(f=1)
    first = rule.aggregate(updates([[1.0], [2.0], [3.0]], 1, ("a", "b", "c")), rule.init(1))
    second = rule.aggregate(updates([[1.0], [2.0], [3.0]], 2, ("d", "e", "f")), first.state)
    assert {c: second.state.reputation[c] for c in "abc"} == dict(first.state.reputation)
    assert second.weights is not None
    assert second.weights.sum() == pytest.approx(1)


def test_without_assumed_attackers_it_is_the_plain_mean() -> None:
    matrix = np.random.default_rng(0).normal(size=(6, 9)).astype(np.float32)
    rule = Tesseract(f=0)
    state = rule.init(9)
    for t in range(1, 4):
        out = rule.aggregate(updates(matrix, t), state)
        state = out.state
        np.testing.assert_allclose(out.update, matrix.mean(axis=0), rtol=1e-5, atol=1e-7)


def test_permuting_clients_permutes_everything_even_with_ties() -> None:
    rng = np.random.default_rng(3)
    matrix = rng.integers(-1, 2, size=(12, 4)).astype(np.float32)  # many equal scores
    ids = tuple(f"c{i}" for i in range(12))
    rule = Tesseract(f=3)
    straight = rule.aggregate(updates(matrix, 5, ids), rule.init(4))
    order = rng.permutation(12)
    shuffled = rule.aggregate(updates(matrix[order], 5, tuple(ids[i] for i in order)), rule.init(4))
    assert straight.state.reputation == shuffled.state.reputation
    np.testing.assert_allclose(straight.update, shuffled.update, rtol=1e-6)


def test_ties_favour_no_client_id() -> None:
    """All scores equal: over many rounds every client is penalised about 2f/n of the time."""
    ids = tuple(f"c{i}" for i in range(10))
    rule = Tesseract(f=2)
    state = rule.init(1)
    times = np.zeros(10)
    for t in range(1, 2001):
        out = rule.aggregate(updates(np.ones((10, 1)), t, ids), state)
        times += out.report["penalised"]
    np.testing.assert_allclose(times / 2000, 0.4, atol=0.05)


def test_expected_reputation_of_a_client_penalised_at_random_is_zero() -> None:
    rng = np.random.default_rng(4)
    cohort = Cohort(ids=tuple(f"c{i}" for i in range(100)), round=1)
    ends = []
    for _ in range(20):
        reputation: dict[str, float] = {}
        for _ in range(200):
            suspects = np.isin(np.arange(100), rng.choice(100, 40, replace=False))
            reputation = judge(reputation, cohort, suspects, reward=0.4, decay=0.99)
        ends += list(reputation.values())
    spread = np.std(ends) / math.sqrt(len(ends))
    assert abs(np.mean(ends)) < 4 * spread + 1e-9


@given(st.integers(0, 1000), st.floats(0, 0.999), st.integers(0, 4))
def test_reputation_stays_within_the_proved_bounds(seed: int, decay: float, f: int) -> None:
    rng = np.random.default_rng(seed)
    n = 2 * f + 1 + int(rng.integers(0, 5))
    cohort = Cohort(ids=tuple(f"c{i}" for i in range(n)), round=1)
    low, high = -(1 - 2 * f / n) / (1 - decay), (2 * f / n) / (1 - decay)
    reputation: dict[str, float] = {}
    always_bad = np.arange(n) < 2 * f
    for _ in range(100):
        reputation = judge(reputation, cohort, always_bad, reward=2 * f / n, decay=decay)
        assert all(low - 1e-9 <= score <= high + 1e-9 for score in reputation.values())


def test_overflow_halves_everybody_known_and_not_only_those_present() -> None:
    known = {"old": 40.0, "a": LARGEST - 0.1, "b": 0.0, "c": 0.0}
    cohort = Cohort(ids=("a", "b", "c"), round=9)
    after = judge(known, cohort, np.array([False, True, True]), reward=2 / 3, decay=1.0)
    assert after["old"] == 20.0
    assert after["a"] == pytest.approx((LARGEST - 0.1 + 2 / 3) / 2)
    assert max(after.values()) <= LARGEST


def test_with_no_decay_it_runs_for_thousands_of_rounds() -> None:
    rng = np.random.default_rng(7)
    rule = Tesseract(f=1, decay=1.0)
    state = rule.init(20)
    for t in range(1, 3001):
        matrix = rng.normal(1, 1, size=(4, 20))
        matrix[3] *= -9
        out = rule.aggregate(updates(matrix, t), state)
        state = out.state
        assert max(state.reputation.values()) <= LARGEST
    assert out.weights is not None
    assert np.isfinite(out.weights).all()
    assert out.weights[3] < 1e-9


def test_softmax_of_extremes() -> None:
    weights = softmax(np.array([-1e4, 0.0, 88.0]))
    assert weights.sum() == pytest.approx(1)
    assert weights[0] == 0


def test_an_attacker_is_cut_off_and_redeems_itself_at_the_speed_of_the_decay() -> None:
    rng = np.random.default_rng(5)

    def rounds_until_redeemed(decay: float) -> int:
        rule = Tesseract(f=2, decay=decay)
        state = rule.init(50)
        for t in range(1, 101):
            matrix = rng.normal(1, 0.3, size=(10, 50))
            matrix[0] = -5 * matrix[0]
            out = rule.aggregate(updates(matrix, t), state)
            state = out.state
        assert out.weights is not None
        assert out.weights[0] < 0.01
        for t in range(101, 1001):
            out = rule.aggregate(updates(rng.normal(1, 0.3, size=(10, 50)), t), state)
            state = out.state
            if out.report["reputation"][0] > -1:
                return t - 100
        return 1000

    assert rounds_until_redeemed(0.8) < rounds_until_redeemed(0.99) < 1000


@given(st.integers(1, 500), st.integers(0, 49))
def test_a_fraction_is_rounded_up_but_not_beyond_what_was_written(n: int, percent: int) -> None:
    expected = -(-percent * n // 100)
    assert resolve_f(percent / 100, n) == expected


def test_a_fraction_that_is_no_short_decimal() -> None:
    assert resolve_f(8 / 22, 11) == resolve_f(4 / 11, 11) == 4
    assert resolve_f(1 / 3, 9) == 3


def test_those_who_are_turned_away_are_remembered_in_the_order_in_which_they_were() -> None:
    """A set of names has another order in another process, and a checkpoint would have other bytes."""
    names = [f"client {i}" for i in range(40)]
    cohort = Cohort(ids=("a",), round=1, rejected=tuple(Rejection(name, "empty", "-") for name in [*names, "a"]))
    after = judge({}, cohort, np.array([False]), reward=0.5, decay=1.0)
    assert list(after) == ["a", *names]
    assert after["a"] == 0.5, "another update of its own was admitted"


def test_who_is_turned_away_loses_also_when_the_round_is_skipped() -> None:
    rule = Tesseract(f=2)
    state = rule.turned_away([Rejection("bad", "not_finite", "-")], 5, rule.init(1))
    assert dict(state.reputation) == {"bad": pytest.approx(-(1 - 4 / 5))}
    assert dict(rule.turned_away([], 5, state).reputation) == dict(state.reputation)


def test_f_at_its_edge_and_beyond() -> None:
    Tesseract(f=2).check(5)
    with pytest.raises(PreconditionError, match=r"2f < n, but f = 2 and n = 4.*at most 1"):
        Tesseract(f=2).check(4)
    with pytest.raises(PreconditionError):
        Tesseract(f=2).aggregate(updates(np.zeros((4, 2))), Tesseract(f=2).init(2))


@pytest.mark.parametrize("f", [-1, 0.5, 1.5, math.nan, True, "2", -0.1])
def test_an_f_that_makes_no_sense(f: Any) -> None:
    with pytest.raises(ConfigError, match=r"tesseract: .*f must be"):
        Tesseract(f=f)


@pytest.mark.parametrize("decay", [-0.01, 1.01, math.nan])
def test_a_decay_that_makes_no_sense(decay: float) -> None:
    with pytest.raises(ConfigError, match="decay must be between 0 and 1"):
        Tesseract(f=1, decay=decay)


def test_the_filter_leaves_out_the_lowest_reputations_and_lets_another_rule_aggregate() -> None:
    rng = np.random.default_rng(6)
    rule = ReputationFilter(f=2, inner=FedSGD())
    state = rule.init(30)
    for t in range(1, 40):
        matrix = rng.normal(1, 0.2, size=(10, 30))
        matrix[:2] = -9
        out = rule.aggregate(updates(matrix, t), state)
        state = out.state
    assert out.weights is not None
    assert out.weights[:2].tolist() == [0, 0]
    np.testing.assert_allclose(out.weights[2:], 1 / 8)
    np.testing.assert_allclose(out.update, matrix[2:].mean(axis=0), rtol=1e-5)
    assert out.report["kept"] == [False, False] + [True] * 8


def test_a_second_update_is_no_offence_of_a_client_that_was_filtered_out_either() -> None:
    rule = ReputationFilter(f=1, inner=Tesseract(f=1))
    matrix = np.random.default_rng(0).normal(size=(6, 40))
    once = rule.aggregate(updates(matrix), rule.init(40))
    assert once.weights is not None
    (out,) = np.flatnonzero(once.weights == 0)
    second = Rejection(f"client-{out}", "duplicate_id", "sent twice")
    twice = rule.aggregate(updates(matrix, rejected=(second,)), rule.init(40))
    assert twice.state.inner.reputation == once.state.inner.reputation


def test_the_filter_checks_what_remains_for_the_inner_rule() -> None:
    ReputationFilter(f=1, inner=Tesseract(f=1)).check(4)
    with pytest.raises(PreconditionError, match="n = 2"):
        ReputationFilter(f=1, inner=Tesseract(f=1)).check(3)


def test_fedsgd_weighs_by_samples() -> None:
    sent = updates([[1.0], [4.0]], samples=np.array([2.0, 1.0]))
    out = FedSGD().aggregate(sent, FedSGD().init(1))
    assert out.update.tolist() == [2.0]
    huge = updates([[1.0], [4.0]], samples=np.array([1e308, 1e308]))
    assert FedSGD().aggregate(huge, FedSGD().init(1)).update.tolist() == [2.5]


@pytest.mark.parametrize(
    "rule", [NearestNeighbourMixing(f=1, inner=Tesseract(f=1)), ReputationFilter(f=1, inner=Tesseract(f=1))]
)
def test_who_is_turned_away_loses_behind_other_rules_too(rule: Rule[Any]) -> None:
    state = rule.turned_away([Rejection("bad", "not_finite", "-")], 5, rule.init(1))
    inner = state.inner if isinstance(rule, ReputationFilter) else state
    assert inner.reputation["bad"] < 0


def test_behind_the_filter_a_skipped_round_costs_what_it_costs_those_who_are_left() -> None:
    rule, bad = ReputationFilter(f=2, inner=Tesseract(f=1)), Rejection("bad", "not_finite", "-")
    state = rule.turned_away([bad], 6, rule.init(1))
    assert state.reputation["bad"] == pytest.approx(-(1 - 4 / 6))
    assert state.inner.reputation["bad"] == pytest.approx(-(1 - 2 / 4)), "the inner rule plays with 6 − 2"
    for n in (1, 2, 3, 4):
        assert rule.turned_away([bad], n, rule.init(1)).inner.reputation == {}, "and with n − 2 it is not defined"


def test_where_the_rule_is_not_defined_nobody_is_rewarded_for_being_turned_away() -> None:
    rule = Tesseract(f=3)
    for n in (4, 5, 6):
        assert rule.turned_away([Rejection("bad", "not_finite", "-")], n, rule.init(1)).reputation == {}
    assert rule.turned_away([Rejection("bad", "not_finite", "-")], 7, rule.init(1)).reputation["bad"] < 0
