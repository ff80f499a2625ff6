"""The hardened rule: its oracle over rounds, what it promises, and what it holds against."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tesseract_fl import checkpoint
from tesseract_fl.reputation import evidence
from tesseract_fl.rules.hardened import Hardened, HardenedState
from tesseract_fl.simulation.config import Config
from tesseract_fl.simulation.run import run
from tesseract_fl.types import CheckpointError, ConfigError, PreconditionError, Rejection, Updates
from tests.naive import oracles

N, D, F = 10, 30, 2
HOSTILE = ("honest", "boosted", "opposite", "clones", "huge", "zero")


def sent(rng: np.random.Generator, kind: str, n: int = N) -> Any:
    """F malicious rows of a kind, then honest ones around a common direction."""
    rows = rng.normal(0.5, 1.0, size=(n, D))
    mean = rows[F:].mean(axis=0)
    rows[:F] = {
        "honest": rows[:F],
        "boosted": 5 * rows[:F],
        "opposite": -mean + 0.1 * rng.normal(size=(F, D)),
        "clones": rng.normal(size=D) + 1e-3 * rng.normal(size=(F, D)),  # equal suspects are another test
        "huge": 1e6 * rng.normal(size=(F, D)),
        "zero": np.zeros((F, D)),
    }[kind]
    return rows.astype(np.float32)


def named(matrix: Any, t: int, ids: tuple[str, ...] | None = None, rejected: tuple[str, ...] = ()) -> Updates:
    away = tuple(Rejection(client, "not-finite", "NaN") for client in rejected)
    names = tuple(f"c{i}" for i in range(len(matrix))) if ids is None else ids
    return Updates(matrix=matrix, ids=names, round=t, rejected=away)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 1000),
    kinds=st.lists(st.sampled_from(HOSTILE), min_size=6, max_size=6),
    evidence=st.sampled_from(["agreement+company", "flip", "length+flatness", "course", Hardened.evidence]),
    probation=st.integers(0, 4),
    memory=st.sampled_from([0.0, 0.5, 0.7, 0.95]),  # 1, 2, 4 or 20 rounds until a client is known
)
def test_rounds_equal_the_slow_oracle(
    seed: int, kinds: list[str], evidence: str, probation: int, memory: float
) -> None:
    rng = np.random.default_rng(seed)
    rule = Hardened(f=F, evidence=evidence, probation=probation, cut=2.0, memory=memory)
    state = rule.init(D)
    known: dict[str, Any] = {}
    for t, kind in enumerate(kinds, 1):
        # clients come and go under their names, and newcomers keep coming
        ids = tuple(f"c{i}" for i in rng.choice(N + 2 * t, N, replace=False))
        rejected = (f"c{N + 100 + t % 2}",)
        matrix = sent(rng, kind)
        out = rule.aggregate(named(matrix, t, ids, rejected), state)
        update, known, weights = oracles.hardened_round(
            matrix, ids, known, f=F, rejected=rejected, evidence=evidence, probation=probation, cut=2.0,
            memory=memory,
        )  # fmt: skip
        state = out.state
        assert out.weights == pytest.approx(weights, rel=1e-6, abs=1e-12)
        np.testing.assert_allclose(out.update, update, rtol=1e-5, atol=1e-6 * np.abs(matrix).max())
        assert state.seen == known["seen"]
        assert state.probation == known["probation"]
        assert state.age == known["age"]
        for client, value in known["reputation"].items():
            assert state.reputation[client] == pytest.approx(value, abs=1e-6)  # the course is kept in single precision


def weight_after(kind: str, rounds: int = 60, **settings: Any) -> Any:
    rule = Hardened(f=F, **settings)
    state = rule.init(D)
    for t in range(1, rounds + 1):
        out = rule.aggregate(named(sent(np.random.default_rng(t), kind), t), state)
        state = out.state
    return out


@pytest.mark.parametrize("kind", ["opposite", "clones", "boosted"])
def test_attackers_lose_their_weight_and_the_honest_keep_theirs(kind: str) -> None:
    out = weight_after(kind)
    assert out.weights[:F].max() < 1e-4
    assert out.weights[F:].min() > 0.5 / N


@pytest.mark.parametrize(("kinds", "found"), [(Hardened.evidence, True), ("agreement+company+flip+length", False)])
def test_a_push_that_is_small_everywhere_is_found_by_its_flatness(kinds: str, found: bool) -> None:
    """Most of an update's energy is in few coordinates; who pushes all the others hides beside those."""
    n, f, d = 20, 4, 400
    rule = Hardened(f=f, evidence=kinds)
    state, scale = rule.init(d), np.where(np.arange(d) < d // 10, 1.0, 0.01)
    for t in range(1, 41):
        rng = np.random.default_rng(t)
        rows = rng.normal(size=(n, d)) * scale
        rows[:f] += 0.05 * rng.choice([-1.0, 1.0], d)
        out = rule.aggregate(named(rows.astype(np.float32), t), state)
        state = out.state
    assert out.weights is not None
    assert bool(out.weights[:f].max() < 1e-4) is found
    assert out.weights[f:].min() > 0.5 / n
    assert all(why.startswith("flatness +") for why in out.report["why"][:f]) is found


def test_a_push_in_other_coordinates_for_each_is_found_by_its_flatness() -> None:
    """Colluders have no more signs or coordinates in common than honest clients have."""
    n, f, d = 20, 4, 4000
    rule = Hardened(f=f)
    state, scale = rule.init(d), np.where(np.arange(d) < d // 10, 1.0, 0.01)
    for t in range(1, 41):
        rng = np.random.default_rng(t)
        rows = rng.normal(size=(n, d)) * scale
        push = 0.3 * rng.choice([-1.0, 1.0], d)
        rows[:f] += push * (rng.random((f, d)) < 0.25)
        out = rule.aggregate(named(rows.astype(np.float32), t), state)
        state = out.state
    assert out.weights is not None
    assert out.weights[:f].max() < 1e-4
    assert out.weights[f:].min() > 0.5 / n


@pytest.mark.parametrize(
    ("kinds", "found"), [(Hardened.evidence, True), (Hardened.evidence.removesuffix("+course"), False)]
)
def test_a_push_that_no_round_shows_is_found_by_the_course(kinds: str, found: bool) -> None:
    """What honest clients have in common is a twentieth of an update, and less than half of it is left in a mean."""
    n, f, d = 20, 4, 1000
    rule = Hardened(f=f, evidence=kinds)
    state, way = rule.init(d), np.random.default_rng(0).normal(size=d)
    for t in range(1, 101):
        rows = np.random.default_rng(t).normal(size=(n, d)) + 0.05 * way
        rows[:f] -= 0.15 * way
        out = rule.aggregate(named(rows.astype(np.float32), t), state)
        state = out.state
        assert not any(out.report["penalised"][f:])
    assert out.weights is not None
    assert bool(out.weights[:f].max() < 1e-4) is found


@pytest.mark.parametrize("f", [4, 9])
@pytest.mark.parametrize("malicious", [0, 1, 4])
def test_f_is_a_bound_and_no_guess(f: int, malicious: int) -> None:
    rule = Hardened(f=f)
    state = rule.init(D)
    for t in range(1, 61):
        rows = sent(np.random.default_rng(t), "honest", n=20)
        rows[:malicious] *= -1
        out = rule.aggregate(named(rows, t), state)
        state = out.state
    assert out.shares is not None
    assert out.shares[:malicious].sum() < 1e-4
    np.testing.assert_allclose(out.shares[malicious:], 1 / (20 - malicious), rtol=0.05)


@pytest.mark.parametrize("scale", [1e-200, 1e-40, 1e37, 1e60, 1e140])
def test_updates_of_any_size_have_a_course(scale: float) -> None:
    rule = Hardened(f=F)
    state = rule.init(D)
    for t in range(1, 6):
        out = rule.aggregate(named(scale * sent(np.random.default_rng(t), "honest").astype(np.float64), t), state)
        state = out.state
    assert out.weights == pytest.approx(np.full(N, 1 / N))
    assert np.isfinite(state.course).all()


def test_a_state_from_before_there_was_a_course_goes_on() -> None:
    rule = Hardened(f=F)
    state = rule.aggregate(named(sent(np.random.default_rng(0), "honest"), 1), rule.init(D)).state
    arrays, meta = checkpoint.pack(state)
    del arrays["course"], meta["memory"]["course"]
    again = checkpoint.unpack(rule.init(D), arrays, meta)
    out = rule.aggregate(named(sent(np.random.default_rng(1), "honest"), 2), again)
    assert out.state.reputation.keys() == state.reputation.keys()
    assert out.state.course.any()
    with pytest.raises(CheckpointError, match="another rule"):
        checkpoint.unpack(rule.init(D), {}, meta)


@pytest.mark.parametrize("how", ["flat", "long", "opposed"])
def test_good_rounds_do_not_pay_for_bad_ones(how: str) -> None:
    """Every fifth round they are as little flat, or as short, or in as much agreement, as can be."""
    n, f, d = 20, 4, 400
    rule = Hardened(f=f)
    state, scale = rule.init(d), np.where(np.arange(d) < d // 10, 1.0, 0.01)
    for t in range(1, 101):
        rng = np.random.default_rng(t)
        rows = (0.2 * rng.normal(size=d) + rng.normal(size=(n, d))) * scale
        own, mean = rows[:f], rows[f:].mean(axis=0)
        largest = np.abs(own) == np.abs(own).max(axis=1, keepdims=True)
        push = 0.3 * rng.choice([-1.0, 1.0], d) * (rng.random((f, d)) < 0.25)
        bad, good = {
            "flat": (own + push, own * largest),
            "long": (2 * own, 1e-3 * own),
            "opposed": (own - 2 * mean, mean + 0.3 * own),
        }[how]
        rows[:f] = bad if t % 5 else good
        out = rule.aggregate(named(rows.astype(np.float32), t), state)
        state = out.state
    assert out.shares is not None
    assert out.shares[:f].max() < 1e-4


def test_what_stands_out_a_little_in_many_ways_is_suspected_once_it_is_known() -> None:
    """Longer, flatter and with less agreement: alone each of them is within the cut."""
    n, f, d = 40, 8, 1000
    lengths = np.exp(0.15 * np.random.default_rng(0).normal(size=(n, 1)))
    rule = Hardened(f=f)
    state, first = rule.init(d), None
    for t in range(1, 61):
        rng = np.random.default_rng(t)
        common = rng.normal(size=d) ** 3
        rows = lengths * (0.3 * common + rng.normal(size=(n, d)) ** 3)
        rows[:f] = 1.5 * (rows[:f] - 0.9 * np.sign(common) * (rng.random((f, d)) < 0.25))
        out = rule.aggregate(named(rows.astype(np.float32), t), state)
        state = out.state
        if first is None and any(out.report["penalised"][:f]):
            first = t
            assert any("; with " in why for why in out.report["why"][:f])
    assert first is not None
    assert first > 20
    assert not any(out.report["penalised"][f:])


def test_a_client_with_twice_the_data_keeps_its_weight_where_all_others_are_alike() -> None:
    """Its updates are less noisy, so it has more company than others by little, and they differ by less."""
    n, d = 40, 1000
    rule = Hardened(f=8)
    state, noise = rule.init(d), np.ones((n, 1))
    noise[:3] = np.sqrt(0.5)
    for t in range(1, 61):
        rng = np.random.default_rng(t)
        rows = 0.3 * rng.normal(size=d) + noise * rng.normal(size=(n, d))
        out = rule.aggregate(named(rows.astype(np.float32), t), state)
        state = out.state
    assert out.weights is not None
    assert out.weights.min() > 0.5 / n


def test_a_client_with_half_the_data_does_not_stand_out_by_being_flatter() -> None:
    """Where all others are alike noise alone tells it from them: it is flatter than they are by next to nothing."""
    n, d = 40, 1000
    rule = Hardened(f=8, evidence="flatness")
    state, noise = rule.init(d), np.ones((n, 1))
    noise[:3] = np.sqrt(2)
    for t in range(1, 61):
        rng = np.random.default_rng(t)
        rows = 0.3 * rng.normal(size=d) ** 3 + noise * rng.normal(size=(n, d))
        out = rule.aggregate(named(rows.astype(np.float32), t), state)
        state = out.state
    assert out.weights is not None
    assert out.weights.min() > 0.5 / n


def test_those_who_train_do_not_stand_out_among_idle_ones() -> None:
    rule = Hardened(f=0.2)
    state = rule.init(D)
    for t in range(1, 41):
        matrix = sent(np.random.default_rng(t), "honest")
        matrix[4:] = 0  # most of them
        out = rule.aggregate(named(matrix, t), state)
        state = out.state
        np.testing.assert_allclose(out.update, matrix[:4].mean(axis=0), rtol=0.5, atol=0.5)
    weights = out.weights
    assert weights is not None
    assert weights[:4].min() > 0.2
    assert not weights[4:].any()
    assert set(state.reputation) == {"c0", "c1", "c2", "c3"}
    assert out.report["why"][4:] == ["it sent no change, so there was nothing to judge"] * 6
    assert all(len(told) == N for told in out.report.values() if isinstance(told, list) and told)
    with pytest.raises(PreconditionError, match=r"6 of 10 clients sent no change: .* f = 2 and n = 4"):
        Hardened(f=2).aggregate(named(matrix, 41), state)


def test_a_second_update_is_no_offence_of_an_idle_client_either() -> None:
    rule = Hardened(f=F)
    matrix = sent(np.random.default_rng(0), "honest")
    matrix[:3] = 0
    out = rule.aggregate(named(matrix, 1, rejected=("c0", "c9", "away")), rule.init(D))
    assert set(out.state.reputation) == {"away", *(f"c{i}" for i in range(3, N))}
    assert [client for client, value in out.state.reputation.items() if value < 0] == ["away"]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_who_trusts_everybody_needs_nobody_else(n: int) -> None:
    rule = Hardened(f=0)
    state = rule.init(D)
    for t in range(1, 4):
        matrix = sent(np.random.default_rng(t), "honest", n=F + n)[F:]
        out = rule.aggregate(named(matrix, t), state)
        state = out.state
        assert out.shares == pytest.approx(np.full(n, 1 / n))
        assert not any(out.report["penalised"])


def test_an_honest_round_is_a_mean_of_nearly_equal_weights() -> None:
    weights = weight_after("honest").weights
    assert 1 / np.square(weights).sum() > 0.8 * N


def test_nothing_is_saved_up() -> None:
    assert max(weight_after("honest", rounds=200).state.reputation.values()) == 0.0


def test_a_client_that_behaves_again_is_redeemed() -> None:
    rule = Hardened(f=F)
    state = rule.init(D)
    weight = []
    for t in range(1, 400):
        out = rule.aggregate(named(sent(np.random.default_rng(t), "opposite" if t <= 40 else "honest"), t), state)
        state = out.state
        assert out.weights is not None
        weight.append(out.weights[:F].max())
    assert weight[39] < 1e-4
    assert weight[-1] > 0.5 / N


def settled(rule: Hardened, rounds: int = 8) -> HardenedState:
    """After some rounds of N honest clients."""
    state = rule.init(D)
    for t in range(1, rounds):
        state = rule.aggregate(named(sent(np.random.default_rng(t), "honest"), t), state).state
    return state


def test_newcomers_together_have_no_more_than_their_share() -> None:
    rule = Hardened(f=0.2, probation=5, newcomers=0.1)
    flood = sent(np.random.default_rng(9), "honest", n=2 * N - 1)
    longest = np.linalg.norm(flood, axis=1).max()
    ids = tuple(f"c{i}" for i in range(N)) + tuple(f"sybil{i}" for i in range(N - 1))
    for size in (1, 1e6):
        flood[N:] *= size
        bounded = rule.aggregate(named(flood, 8, ids), settled(rule))
        assert bounded.weights is not None
        assert bounded.weights[N:].sum() <= 0.1 + 1e-9
        assert set(bounded.state.probation) == set(ids[N:])
        assert all("on probation" in why for why in bounded.report["why"][N:])
        assert not any("on probation" in why for why in bounded.report["why"][:N])
        assert np.linalg.norm(bounded.update) <= rule.reach * longest


def test_without_probation_nobody_is_a_newcomer() -> None:
    rule = Hardened(f=0.2, probation=0)
    new = tuple(f"new{i}" for i in range(3))
    ids = (*(f"c{i}" for i in range(7)), *new)
    out = rule.aggregate(named(sent(np.random.default_rng(9), "honest"), 8, ids), settled(rule))
    assert rule._welcomed(named(sent(np.random.default_rng(9), "honest"), 8, ids).cohort, settled(rule)).probation == {}
    assert not out.state.probation


def test_newcomers_are_not_held_down_below_established_clients_that_are_cut_off() -> None:
    rule = Hardened(f=0.2, probation=5)
    state = settled(rule)
    state = replace(state, reputation={**state.reputation, "c0": -95.0, "c1": -95.0})
    ids = ("c0", "c1", *(f"new{i}" for i in range(8)))
    out = rule.aggregate(named(sent(np.random.default_rng(9), "opposite"), 8, ids), state)
    assert out.weights is not None
    assert out.weights[:2].max() < 1e-6
    assert out.weights[2:].min() > 0.5 / 8


def test_nobody_carries_a_federation_of_which_few_are_asked() -> None:
    rule = Hardened(f=0.2)
    state = rule.init(D)
    rng = np.random.default_rng(0)
    for t in range(1, 80):
        ids = tuple(f"c{i}" for i in rng.choice(1000, N, replace=False))
        out = rule.aggregate(named(sent(rng, "honest"), t, ids), state)
        state = out.state
        assert out.weights is not None
        assert out.weights.max() < 2.5 / N


def suspicions(n: int, absent: range, fading: float = 1.0) -> int:
    """How often an honest client is suspected in its first 60 rounds, if it missed some; over ten federations."""
    found = 0
    for seed in range(10):
        rng, rule = np.random.default_rng(seed), Hardened(f=0.2)
        state = rule.init(D)
        for t in range(1, absent.stop + 60):
            matrix = rng.normal(0.5 * fading**t, 1.0, size=(n, D)).astype(np.float32)
            here = slice(1, None) if t in absent else slice(None)
            out = rule.aggregate(named(matrix[here], t, tuple(f"c{i}" for i in range(n))[here]), state)
            state = out.state
            found += t not in absent and out.report["penalised"][0]
    return found


@pytest.mark.parametrize("n", [40, 100])
def test_missing_the_first_round_is_no_offence(n: int) -> None:
    assert suspicions(n, absent=range(1, 2)) <= 0.01 * 600


@pytest.mark.parametrize("n", [40, 100])
def test_coming_when_clients_agree_less_than_they_did_is_no_offence(n: int) -> None:
    assert suspicions(n, absent=range(1, 16), fading=0.95) <= 0.05 * 600


def test_who_was_asked_in_the_first_round_has_no_worse_name() -> None:
    reputation: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(5):
        rng, rule = np.random.default_rng(seed), Hardened(f=0.2)
        state = rule.init(D)
        rounds = [tuple(f"c{i}" for i in rng.choice(100, 20, replace=False)) for _ in range(60)]
        for t, ids in enumerate(rounds, 1):
            matrix = rng.normal(0.5, 1.0, size=(20, D)).astype(np.float32)
            state = rule.aggregate(named(matrix, t, ids), state).state
        for client, value in state.reputation.items():
            reputation[client in rounds[0]].append(value)
    assert np.mean(reputation[True]) > np.mean(reputation[False]) - 0.1


def test_no_more_than_f_are_suspected() -> None:
    matrix = np.eye(12, D, dtype=np.float32)
    matrix[:5] = -1.0
    out = Hardened(f=3, cut=0.01).aggregate(named(matrix, 1), Hardened(f=3).init(D))
    assert sum(out.report["penalised"]) <= 3


def test_a_suspect_is_told_why() -> None:
    for kind, what, side in (("opposite", "agreement", "below"), ("boosted", "length", "above")):
        out = weight_after(kind)
        for suspect, why in zip(out.report["penalised"], out.report["why"], strict=True):
            assert bool(why) == suspect
        assert out.report["why"][0].startswith(f"{what} ")
        assert f"{side} the honest middle" in out.report["why"][0]


def test_a_skipped_round_costs_those_who_were_turned_away() -> None:
    rule = Hardened(f=1)
    after = rule.turned_away([Rejection("bad", "not-finite", "NaN")], 4, rule.init(D))
    assert after.reputation == {"bad": pytest.approx(-0.95)}


@pytest.mark.parametrize(
    "settings",
    [
        {"memory": 1.0}, {"redemption": -0.1}, {"newcomers": 1.0}, {"cut": 0}, {"reach": 0.0}, {"probation": -1},
        {"evidence": "agreement+gossip"}, {"evidence": ""}, {"decay": 2}, {"f": -1},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_errors(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="hardened"):
        Hardened(**{"f": 1, **settings})


def outlyingness(scores: Any, share: float) -> Any:
    middle, deviation = evidence.honest(scores, share)
    return (scores - middle) / deviation


@given(st.integers(0, 1000), st.floats(0, 0.45), st.integers(5, 40))
def test_how_far_out_the_worst_are_changes_nothing_for_the_others(seed: int, share: float, n: int) -> None:
    scores = np.random.default_rng(seed).normal(size=n)
    bad = int(share * n)
    out, others = np.split(np.argsort(-scores), [bad])
    scores[out] += 10
    farther = scores.copy()
    farther[out] += 1e6
    before, after = outlyingness(scores, share), outlyingness(farther, share)
    np.testing.assert_allclose(before[others], after[others])
    assert before == pytest.approx(oracles.outlyingness(scores.tolist(), share), rel=1e-9, abs=1e-9)


@given(st.integers(0, 1000), st.floats(-4, 4), st.sampled_from([0.1, 0.2]))
def test_scores_that_are_all_the_same_make_few_others_stand_out(seed: int, place: float, share: float) -> None:
    """Between the honest middle and quartile they would make the distance of the two nothing."""
    bad = int(share * 200)
    honest = np.random.default_rng(seed).normal(size=200 - bad)
    found = outlyingness(np.append(honest, np.full(bad, place)), share)
    assert np.mean(found[: len(honest)] > 6) < 0.1


def test_short_updates_do_not_hide_long_ones() -> None:
    """Two thirds of the malicious clients are tiny, which is not suspicious, so that lengths seem to differ by far."""
    rng = np.random.default_rng(0)
    rule, state = Hardened(f=30), Hardened(f=30).init(200)
    for t in range(1, 31):
        rows = rng.normal(0.1, 1.0, size=(100, 200)) * np.exp(0.1 * rng.normal(size=(100, 1)))
        rows[:10] *= 5
        rows[10:30] *= 1e-3
        out = rule.aggregate(named(rows.astype(np.float32), t), state)
        state = out.state
    assert all(out.report["penalised"][:10])


def test_clients_of_one_length_frame_nobody() -> None:
    """Nothing is wrong with what they send, but that all of them are equally long."""
    rng = np.random.default_rng(0)
    lengths = np.exp(0.3 * rng.normal(size=100))
    lengths[:20] = np.quantile(lengths[20:], 0.3)
    rule, state = Hardened(f=20), Hardened(f=20).init(200)
    for t in range(1, 31):
        rows = rng.normal(0.1, 1.0, size=(100, 200))
        rows *= (lengths / np.linalg.norm(rows, axis=1))[:, None]
        out = rule.aggregate(named(rows.astype(np.float32), t), state)
        state = out.state
    assert sum(out.report["penalised"]) <= 1


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_lengths_are_finite_and_relative(scale: float) -> None:
    found = evidence.length(scale * np.array([0.0, 1.0, 1.0, 1.0, 5.0, 1e7]))
    np.testing.assert_allclose(found, np.log([1e-3, 1, 1, 1, 5, 1e3]), atol=1e-12)
    assert not evidence.length(np.array([0.0, 0.0, 0.0, scale])).any()


def test_cosines_of_numbers_of_which_hardly_a_digit_is_left_are_none_above_one() -> None:
    rows = np.full((4, 10_000), 1.5e-162)  # whose squares are 0
    rows[:2, 0] = 2e-162
    rows[2:] = 1.0
    found = evidence.cosines(rows @ rows.T)
    assert np.abs(found).max() <= 1
    assert found[2, 3] == pytest.approx(1)


def test_whoever_has_all_the_weight_is_compared_with_the_others() -> None:
    cosines = np.array([[0, 0.5, 0.1], [0.5, 0, 0.2], [0.1, 0.2, 0]])
    found = evidence.agreement(cosines, np.array([1.0, 1e-30, 3e-30]))
    assert found == pytest.approx([(0.5 + 3 * 0.1) / 4, 0.5, 0.1])


IMAGES: dict[str, Any] = {
    "data": "mnist_5k", "model": "logistic", "clients": 40, "malicious": 8, "batch": 10, "lr": 0.05, "rounds": 100,
    "eval_every": 100,
}  # fmt: skip


@pytest.mark.parametrize("attack", ["none", "flip_band", "full_krum", "label_flip"])
def test_training_goes_on_under_attack(attack: str) -> None:
    config = Config.from_table({**IMAGES, "rule": "hardened", "attack": attack})
    assert run(config, config.data.read())["accuracy"] > 0.85


def test_two_of_ten_that_flip_their_labels_are_found() -> None:
    config = Config.from_table({**IMAGES, "clients": 10, "malicious": 2, "rule": "hardened", "attack": "label_flip"})
    detection = run(config, config.data.read())["detection"]
    assert detection["cut_off_since"] is not None
    assert detection["false_positive_rate"] == 0


def test_a_boosted_backdoor_is_kept_out() -> None:
    def success(rule: str) -> float:
        config = Config.from_table({**IMAGES, "rule": rule, "attack": "backdoor"})
        found: float = run(config, config.data.read())["attack_success"]
        return found

    assert success("hardened") < 0.05
    assert success("fedsgd") > 0.9


def test_the_paper_s_rule_does_not_hold_there() -> None:
    config = Config.from_table({**IMAGES, "rule": "tesseract", "attack": "flip_band"})
    assert run(config, config.data.read())["accuracy"] < 0.6
