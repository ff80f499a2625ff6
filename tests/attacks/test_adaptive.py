"""The adaptive attacks really adapt: what they send passes last round's cut whenever dilution can make it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tesseract_fl.attacks.adaptive import AdaptiveKrum, AdaptiveTrim, Dilution
from tesseract_fl.attacks.base import View
from tesseract_fl.attacks.fang import FullKrum, FullTrim
from tesseract_fl.kernels import flip_scores
from tesseract_fl.types import ConfigError
from tests.naive import oracles

ATTACKS = [AdaptiveKrum(), AdaptiveTrim()]


def view(seed: int, cut: float | None, n: int = 20, c: int = 4, d: int = 60) -> View:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(0.3, 1.0, size=(n, d)).astype(np.float32)
    report: dict[str, Any] = {} if cut is None else {"flip_score_high": cut}
    reference = rng.choice(np.array([-1, 1, 1, 1], np.int8), size=d)
    return View(round=2, benign=matrix[c:], trained=matrix[:c], reference=reference, report=report)


def score_of_the_mean(seen: View) -> float:
    """The flip-score of a client that gave up everything."""
    return float(flip_scores(seen.columns.mean.astype(np.float32)[None], seen.reference)[0])


@pytest.mark.parametrize("attack", ATTACKS, ids=["krum", "trim"])
@given(seed=st.integers(0, 400), share=st.floats(0, 1.5))
def test_what_is_sent_passes_the_cut_whenever_dilution_can_bring_it_there(attack: Any, seed: int, share: float) -> None:
    free = view(seed, None)
    bare = flip_scores(attack.craft(free, np.random.default_rng(seed)), free.reference).max()
    honest = score_of_the_mean(free)
    cut = honest * 1.001 + share * (bare - honest)  # from what giving up everything costs, to more than is needed
    seen = view(seed, cut)
    sent = flip_scores(attack.craft(seen, np.random.default_rng(seed)), seen.reference)
    assert (sent <= cut * (1 + 1e-6)).all()


@pytest.mark.parametrize("attack", ATTACKS, ids=["krum", "trim"])
def test_an_impossible_cut_makes_them_send_the_benign_mean(attack: Any) -> None:
    seen = view(3, 0.0)
    sent = attack.craft(seen, np.random.default_rng(0))
    np.testing.assert_allclose(sent, np.tile(seen.columns.mean, (4, 1)), atol=1e-5)
    assert "nothing of the attack" in seen.gave_up[0]


@pytest.mark.parametrize("attack", ATTACKS, ids=["krum", "trim"])
def test_as_long_as_something_is_left_it_is_an_attack(attack: Any) -> None:
    seen = view(3, 2 * score_of_the_mean(view(3, None)))
    attack.craft(seen, np.random.default_rng(0))
    assert not seen.gave_up


def test_without_a_cut_they_are_the_full_attacks() -> None:
    seen = view(5, None)
    for attack, full in ((AdaptiveKrum(), FullKrum()), (AdaptiveTrim(), FullTrim())):
        mine, theirs = (a.craft(seen, np.random.default_rng(7)) for a in (attack, full))
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def test_where_the_rule_reports_no_cut_it_is_the_largest_score_that_went_unpunished() -> None:
    seen = view(5, None)
    free = AdaptiveTrim().craft(seen, np.random.default_rng(7))
    cut = 0.5 * float(flip_scores(free, seen.reference).min())
    verdicts = {"flip_score": [cut, 10 * cut, cut / 2], "penalised": [False, True, False]}
    told = dataclasses.replace(seen, report=verdicts)
    np.testing.assert_array_equal(
        AdaptiveTrim().craft(told, np.random.default_rng(7)),
        AdaptiveTrim().craft(view(5, cut), np.random.default_rng(7)),
    )


@given(st.integers(0, 100), st.floats(0.2, 1.2))
def test_each_client_of_the_trim_attack_takes_over_what_those_before_it_gave_up(seed: int, share: float) -> None:
    free = view(seed, None, d=25)
    targets = FullTrim().craft(free, np.random.default_rng(2))
    cut = share * float(flip_scores(targets, free.reference).max())
    seen = view(seed, cut, d=25)
    mean, owed, expected = seen.columns.mean, np.zeros(25), []
    for target in targets:
        aim = np.float32(owed + target)
        honest = mean.astype(np.float32)
        sent = oracles.diluted(aim, honest, mean, seen.reference.tolist(), cut, 0.05)
        expected.append(sent)
        owed = owed + target - np.array(sent)
    np.testing.assert_allclose(AdaptiveTrim().craft(seen, np.random.default_rng(2)), expected, rtol=1e-5, atol=1e-5)


@given(st.integers(0, 300), st.integers(1, 50), st.sampled_from([0.05, 0.1, 0.3, 1.0]), st.floats(0, 60))
def test_dilution_is_its_definition(seed: int, d: int, step: float, cut: float) -> None:
    seen = view(seed, cut, d=d)
    row = np.random.default_rng(seed + 1).normal(size=d).astype(np.float32)
    mean = seen.columns.mean
    expected = oracles.diluted(row, mean.astype(np.float32), mean, seen.reference.tolist(), cut, step)
    np.testing.assert_array_equal(Dilution(seen, step).of(row), np.array(expected, np.float32))


@pytest.mark.parametrize("step", [0.0, -0.1, 1.1, math.nan])
def test_the_step_is_a_share(step: float) -> None:
    for attack in (AdaptiveKrum, AdaptiveTrim):
        with pytest.raises(ConfigError, match="step must be"):
            attack(step=step)
