"""ALIE, Min-Max, Min-Sum, mimic: closed forms against searches written from the definitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tesseract_fl.attacks.base import Attack, View
from tesseract_fl.attacks.hidden import DEVIATIONS, Alie, Mimic, MinMax, MinSum, deviation
from tesseract_fl.attacks.simple import Gaussian
from tesseract_fl.types import ConfigError
from tests.naive import oracles


def view(seed: int, n: int, c: int, d: int, scale: float = 1.0) -> View:
    matrix = (scale * np.random.default_rng(seed).normal(0.3, 1.0, size=(n, d))).astype(np.float32)
    return View(round=1, benign=matrix[c:], trained=matrix[:c])


@pytest.mark.parametrize(
    ("attack", "oracle"), [(MinMax, oracles.min_max_strength), (MinSum, oracles.min_sum_strength)], ids=["max", "sum"]
)
@given(
    seed=st.integers(0, 200),
    n=st.integers(4, 9),
    d=st.integers(1, 6),
    kind=st.sampled_from(DEVIATIONS),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_the_strength_is_that_of_a_search(
    attack: Any, oracle: Any, seed: int, n: int, d: int, kind: str, scale: float
) -> None:
    seen = view(seed, n, 1, d, scale)
    p = oracles.deviation(seen.benign, kind)
    np.testing.assert_allclose(deviation(seen, kind), p, rtol=1e-6, atol=1e-9)
    expected = oracle(seen.benign, p)
    assert attack(deviation=kind).strength(seen, np.array(p)) == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_honest_clients_that_agree_leave_no_room() -> None:
    same = np.ones((5, 3), np.float32)
    seen = View(round=1, benign=same, trained=same[:2])
    for attack in (MinMax(), MinSum(), MinMax(deviation="sign"), Alie(z=1.0), Mimic()):
        np.testing.assert_allclose(attack.craft(seen, np.random.default_rng(0)), same[:2])


@given(st.integers(2, 60), st.integers(1, 59))
def test_alie_s_z_leaves_as_many_honest_clients_beyond_as_it_needs(n: int, c: int) -> None:
    supporters = n // 2 + 1 - c
    if c < n and supporters > 0 and 2 * supporters < n - c:
        z = Alie.largest_z(n, c)
        beyond = 1 - 0.5 * (1 + math.erf(z / math.sqrt(2)))  # P(X > z)
        assert z > 0
        assert beyond * (n - c) == pytest.approx(supporters, abs=1e-6)
    else:
        with pytest.raises(ConfigError):
            Alie().check(n, c)


@pytest.mark.parametrize("z", [0.0, -1.0, math.inf, math.nan])
def test_alie_s_z_goes_against_the_honest(z: float) -> None:
    with pytest.raises(ConfigError, match="z must be"):
        Alie(z=z)


@pytest.mark.parametrize("attack", [Alie(z=1.0), MinMax(), MinSum(), Gaussian()], ids=repr)
def test_one_known_update_has_no_spread(attack: Attack) -> None:
    alone = View(round=1, trained=np.ones((1, 3), np.float32), n=10, report=None)
    with pytest.raises(ConfigError, match="spread"):
        attack.craft(alone, np.random.default_rng(0))


def test_alie_shifts_every_coordinate_by_z_standard_deviations() -> None:
    seen = view(0, 20, 4, 30)
    sent = Alie(z=1.5).craft(seen, np.random.default_rng(0))
    expected = seen.benign.mean(axis=0) - 1.5 * seen.benign.std(axis=0)
    np.testing.assert_allclose(sent, np.tile(expected, (4, 1)), rtol=1e-4, atol=1e-5)


def test_mimic_copies_whoever_is_at_its_place_in_every_round() -> None:
    for seed in range(5):
        seen = view(seed, 12, 3, 40)
        sent = Mimic(victim=5).craft(seen, np.random.default_rng(0))
        np.testing.assert_array_equal(sent, np.tile(seen.benign[5], (3, 1)))
    assert Mimic(victim=9).craft(view(0, 12, 3, 4), np.random.default_rng(0)).shape == (3, 4)  # nobody is at that place
    with pytest.raises(ConfigError, match="victim"):
        Mimic(victim=-1)


def test_an_unknown_deviation_is_an_error() -> None:
    with pytest.raises(ConfigError, match="unit, std, sign"):
        MinMax(deviation="up")
