"""Noise, reversal and garbage, against their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tesseract_fl.attacks.base import View
from tesseract_fl.attacks.simple import Gaussian, InnerProduct, NonFinite, Oversized, SignFlip
from tesseract_fl.gate import Gate
from tesseract_fl.kernels import column_statistics
from tesseract_fl.types import ConfigError


def view(n: int = 20, c: int = 4, d: int = 50) -> View:
    matrix = np.random.default_rng(3).normal(0.3, 1, size=(n, d)).astype(np.float32)
    return View(round=1, benign=matrix[c:], trained=matrix[:c])


@given(st.integers(0, 99), st.integers(1, 9), st.integers(1, 70), st.sampled_from([1e-20, 1.0, 1e15]))
def test_column_statistics_are_numpy_s(seed: int, n: int, d: int, scale: float) -> None:
    U = (scale * np.random.default_rng(seed).normal(5, 1, size=(n, d))).astype(np.float32)
    found = column_statistics(U)
    wide = U.astype(np.float64)
    np.testing.assert_allclose(found.mean, wide.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.std, wide.std(axis=0), rtol=1e-9, atol=1e-12 * scale)
    np.testing.assert_array_equal(found.low, U.min(axis=0))
    np.testing.assert_array_equal(found.high, U.max(axis=0))


def test_column_statistics_of_a_matrix_that_is_wider_than_a_block() -> None:
    U = np.random.default_rng(0).normal(size=(5, 5000)).astype(np.float32)
    np.testing.assert_allclose(column_statistics(U).std, U.astype(np.float64).std(axis=0), rtol=1e-9)


def test_gaussian_is_spread_like_the_honest_clients() -> None:
    matrix = np.random.default_rng(3).normal(0.3, 1, size=(4016, 30)).astype(np.float32)
    seen = View(round=1, benign=matrix[4000:], trained=matrix[:4000])
    sent = Gaussian(scale=2.0).craft(seen, np.random.default_rng(0))
    spread = seen.benign.std(axis=0)
    np.testing.assert_allclose(sent.std(axis=0), 2 * spread, rtol=0.05)
    np.testing.assert_allclose(sent.mean(axis=0), seen.benign.mean(axis=0), atol=0.2 * spread.max())


def test_reversals() -> None:
    seen = view()
    np.testing.assert_array_equal(SignFlip(scale=2.0).craft(seen, np.random.default_rng(0)), -2 * seen.own)
    sent = InnerProduct(epsilon=0.5).craft(seen, np.random.default_rng(0))
    np.testing.assert_allclose(sent, np.tile(-0.5 * seen.benign.mean(axis=0), (4, 1)), rtol=1e-4, atol=1e-6)


def test_non_finite_ruins_a_mean_and_the_gate_turns_exactly_them_away() -> None:
    seen = view()
    sent = NonFinite().craft(seen, np.random.default_rng(0))
    assert np.isnan(sent).sum(axis=1).tolist() == [1, 0, 0, 1]
    assert (~np.isfinite(sent)).sum(axis=1).tolist() == [1, 1, 1, 1]
    matrix = np.concatenate([sent, seen.benign])
    with np.errstate(invalid="ignore"):
        assert not np.isfinite(matrix.mean(axis=0)).all()
    admitted = Gate().screen(matrix, [str(i) for i in range(20)], round=1)
    assert {rejection.client for rejection in admitted.rejected} == {"0", "1", "2", "3"}


def test_oversized_decides_a_mean_and_stays_finite() -> None:
    seen = view()
    sent = Oversized().craft(seen, np.random.default_rng(0))
    honest = seen.benign.mean(axis=0)
    assert np.concatenate([sent, seen.benign]).mean(axis=0) @ honest < 0
    assert np.isfinite(Oversized(scale=1e300).craft(seen, np.random.default_rng(0))).all()
    limited = Gate(max_norm_ratio=10).screen(np.concatenate([sent, seen.benign]), [str(i) for i in range(20)], round=1)
    assert {rejection.client for rejection in limited.rejected} == {"0", "1", "2", "3"}


@pytest.mark.parametrize(
    ("kind", "field"), [(Gaussian, "scale"), (SignFlip, "scale"), (InnerProduct, "epsilon"), (Oversized, "scale")]
)
@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_strengths_are_positive(kind: Any, field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{field} must be a positive"):
        kind(**{field: value})
