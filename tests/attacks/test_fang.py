"""The directed deviation attacks against their definitions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tesseract_fl.attacks.base import BLIND, Attack, View
from tesseract_fl.attacks.fang import FullKrum, FullTrim
from tesseract_fl.rules.krum import Krum
from tesseract_fl.types import ConfigError, Matrix, Updates
from tests.naive import oracles


def view(seed: int, n: int, c: int, d: int, scale: float = 1.0, shift: float = 0.3) -> View:
    rng = np.random.default_rng(seed)
    matrix = (scale * rng.normal(shift, 1.0, size=(n, d))).astype(np.float32)
    return View(round=1, benign=matrix[c:], trained=matrix[:c])


@given(st.integers(0, 500), st.integers(2, 9), st.integers(1, 25), st.sampled_from([0.0, 2.0, -4.0]))
def test_full_trim_samples_from_its_interval(seed: int, n: int, d: int, shift: float) -> None:
    seen = view(seed, n, 1, d, shift=shift)
    rows = FullTrim().craft(seen, np.random.default_rng(seed))
    for j in range(d):
        low, high = oracles.full_trim_interval([float(u) for u in seen.benign[:, j]])
        slack = 1e-6 * max(abs(low), abs(high))
        assert low - slack <= rows[0, j] <= high + slack


def test_full_trim_fills_its_interval_and_every_client_samples_its_own() -> None:
    seen = view(0, 40, 8, 2000)
    rows = FullTrim().craft(seen, np.random.default_rng(1))
    bounds = np.array([oracles.full_trim_interval(column.tolist()) for column in seen.benign.T])
    inside = (rows - bounds[:, 0]) / (bounds[:, 1] - bounds[:, 0])
    assert inside.mean() == pytest.approx(0.5, abs=0.02)
    assert inside.min() < 0.01
    assert inside.max() > 0.99
    assert len({row.tobytes() for row in rows}) == 8


def test_full_trim_where_the_benign_clients_cancel_out() -> None:
    benign = np.array([[1.0, 1.0], [-1.0, 1.0]], np.float32)
    rows = FullTrim().craft(
        View(round=1, benign=benign, trained=np.zeros((1, 2), np.float32)), np.random.default_rng(0)
    )
    assert rows[0, 0] == 0
    assert 0.5 <= rows[0, 1] <= 1


@given(st.integers(0, 300), st.integers(1, 4), st.integers(0, 5), st.integers(2, 20), st.floats(1e-4, 10))
def test_full_krum_finds_the_strength_of_a_search_that_runs_krum(
    seed: int, c: int, more: int, d: int, scale: float
) -> None:
    seen = view(seed, 2 * c + 2 + more, c, d, scale)
    expected = oracles.full_krum_strength(seen.benign, c)
    found = FullKrum().strength(seen)
    assert found == (expected if expected is None else pytest.approx(expected, rel=1e-6))


def test_full_krum_goes_against_the_benign_direction_and_krum_picks_it() -> None:
    seen = view(1, 20, 4, 50)
    rows = FullKrum().craft(seen, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sign(rows), -np.tile(seen.direction, (4, 1)))
    scores = oracles.krum_scores(np.concatenate([rows, seen.benign]), 4)
    assert int(np.argmin(scores)) < 4
    assert np.abs(rows - rows[0]).max() <= 2 * 1e-4 / 50 + 1e-7


def test_full_krum_behaves_honestly_where_no_strength_works() -> None:
    seen = view(2, 12, 1, 30, scale=1e-6)
    assert FullKrum().strength(seen) is None
    np.testing.assert_array_equal(FullKrum().craft(seen, np.random.default_rng(0)), seen.own)
    assert "full_krum" in seen.gave_up[0]


@pytest.mark.parametrize("wrong", [{"smallest": 0.0}, {"smallest": float("nan")}, {"noise": float("inf")}])
def test_full_krum_s_settings_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="full_krum"):
        FullKrum(**wrong)


def test_full_krum_needs_a_majority() -> None:
    FullKrum().check(10, 4)
    with pytest.raises(ConfigError, match="n ≥ 2c \\+ 2, got n = 10 and c = 5"):
        FullKrum().check(10, 5)


@pytest.mark.parametrize("b", [1.0, 0.5, float("inf"), float("nan")])
def test_full_trim_needs_a_wider_interval(b: float) -> None:
    with pytest.raises(ConfigError, match="b must be"):
        FullTrim(b=b)


def test_the_public_call_checks_what_an_attack_crafted() -> None:
    class Sloppy(Attack):
        requires = BLIND

        def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
            return np.zeros(3)

    with pytest.raises(TypeError, match="Sloppy crafted"):
        Sloppy().craft(view(0, 5, 1, 4), np.random.default_rng(0))


def test_crafting_full_krum_costs_at_most_two_krum_aggregations() -> None:
    """The size of the paper's MNIST federation: nothing of size d is touched again at each halving."""
    n, c, d = 100, 20, 266_060
    matrix = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    rule = Krum(f=c)
    updates = Updates(matrix=matrix, ids=tuple(map(str, range(n))), round=1)

    def seconds(function: Callable[[], Any]) -> float:
        start = time.perf_counter()
        function()
        return time.perf_counter() - start

    crafting, choosing = [], []
    for _ in range(4):
        seen = View(round=1, benign=matrix[c:], trained=matrix[:c])
        crafting.append(seconds(lambda: FullKrum().craft(seen, np.random.default_rng(0))))  # noqa: B023
        choosing.append(seconds(lambda: rule.aggregate(updates, rule.init(d))))
    assert min(crafting) < 2 * min(choosing)
