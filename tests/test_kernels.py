"""Every fast kernel against its slow oracle, over sizes, ties, zeros, extremes and layouts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tesseract_fl import kernels
from tesseract_fl.rules.krum import krum_scores
from tesseract_fl.types import Settled
from tests.naive import oracles

numbers = st.floats(-(2.0**100), 2.0**100, width=32) | st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-40, 3e38, -3e38])
matrices = hnp.arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 40)), elements=numbers)


@st.composite
def matrix_and_direction(draw: st.DrawFn) -> tuple[Any, Any]:
    U = draw(matrices)
    return U, draw(hnp.arrays(np.int8, U.shape[1], elements=st.integers(-1, 1)))


@given(matrix_and_direction())
def test_flip_scores(case: tuple[Any, Any]) -> None:
    U, s = case
    np.testing.assert_allclose(kernels.flip_scores(U, s), oracles.flip_scores(U, s), rtol=1e-13)


def test_in_round_one_the_flip_score_is_the_squared_norm() -> None:
    U = np.random.default_rng(0).normal(size=(7, 5001)).astype(np.float32)
    nothing = np.zeros(5001, np.int8)
    np.testing.assert_allclose(kernels.flip_scores(U, nothing), kernels.squared_norms(U), rtol=1e-13)


def test_flip_score_sums_do_not_lose_small_terms() -> None:
    """2²⁵ + one million ones: a float32 sum would stay at 2²⁵."""
    U = np.ones((1, 1_000_001), np.float32)
    U[0, 0] = 2.0**12.5
    direction = np.full(1_000_001, -1, np.int8)
    expected = float(U[0, 0]) ** 2 + 1_000_000
    assert kernels.flip_scores(U, direction)[0] == pytest.approx(expected, rel=1e-12)


@given(matrices)
def test_squared_norms(U: Any) -> None:
    expected = [oracles.squared_distance(row, [0.0] * len(row)) for row in U]
    np.testing.assert_allclose(kernels.squared_norms(U), expected, rtol=1e-13)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_squared_norms_show_every_value_that_is_not_finite(bad: float) -> None:
    U = np.zeros((3, 10_000), np.float32)
    U[1, 9_999] = bad
    assert np.isfinite(kernels.squared_norms(U)).tolist() == [True, False, True]


@given(matrix_and_direction())
def test_dots(case: tuple[Any, Any]) -> None:
    U, v = case
    expected = [np.dot(row.astype(np.float64), v) for row in U]
    scale = np.abs(U).sum(axis=1, dtype=np.float64)
    assert (np.abs(kernels.dots(U, v) - expected) <= 1e-13 * scale).all()


@given(matrices, st.randoms(use_true_random=False))
def test_weighted_sum(U: Any, random: Any) -> None:
    w = np.array([random.choice([0.0, random.random()]) for _ in U])
    w /= max(w.sum(), 1.0)
    scale = np.abs(U).max(axis=0).astype(np.float64)
    error = np.abs(kernels.weighted_sum(w, U).astype(np.float64) - oracles.weighted_sum(w.tolist(), U))
    assert (error <= 1e-6 * scale + 1e-44).all()


@pytest.mark.parametrize("d", [1, 2047, 2048, 2049, 10_000])
def test_weighted_sum_over_the_edges_of_its_blocks(d: int) -> None:
    U = np.random.default_rng(d).normal(size=(5, d)).astype(np.float32)
    w = np.array([0.1, 0.2, 0.3, 0.25, 0.15])
    np.testing.assert_allclose(kernels.weighted_sum(w, U), w @ U.astype(np.float64), rtol=1e-5, atol=1e-7)


def test_kernels_take_views_of_any_stride() -> None:
    whole = np.random.default_rng(1).normal(size=(12, 90)).astype(np.float32)
    view, copy = whole[::2, 10:70:3], whole[::2, 10:70:3].copy()
    s = np.sign(copy[0]).astype(np.int8)
    w = np.full(6, 1 / 6)
    np.testing.assert_allclose(kernels.flip_scores(view, s), kernels.flip_scores(copy, s), rtol=1e-14)
    np.testing.assert_array_equal(kernels.weighted_sum(w, view), kernels.weighted_sum(w, copy))
    np.testing.assert_allclose(kernels.gram(view), kernels.gram(copy), rtol=1e-12)
    np.testing.assert_allclose(kernels.absolute_sums(view), kernels.absolute_sums(copy), rtol=1e-14)


@given(matrices)
def test_squared_distances(U: Any) -> None:
    U = np.clip(U, -1e10, 1e10)
    found = kernels.squared_distances(kernels.gram(U))
    expected = [[oracles.squared_distance(x, y) for y in U] for x in U]
    spread = np.square(U.astype(np.float64) - U.mean(axis=0, dtype=np.float64)).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-13 * spread)


@given(matrices)
def test_absolute_sums(U: Any) -> None:
    expected = [math.fsum(abs(float(u)) for u in row) for row in U]
    np.testing.assert_allclose(kernels.absolute_sums(U), expected, rtol=1e-13)


@pytest.mark.parametrize("same", [False, True])
@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), n=st.integers(3, 14), first=st.integers(1, 6), d=st.integers(1, 700))
def test_products_of_settled_rows_are_formed_once(same: bool, seed: int, n: int, first: int, d: int) -> None:
    first = min(first, n - 1)
    rng = np.random.default_rng(seed)
    U = rng.normal(1, 1, (n, d)).astype(np.float32)
    settled = Settled(first)
    for _ in range(3):
        U[:first] = rng.normal(-1, 3, (1 if same else first, d))
        np.testing.assert_array_equal(kernels.gram(U, centre=None, settled=settled), kernels.gram(U, centre=None))
        np.testing.assert_array_equal(kernels.absolute_sums(U, settled=settled), kernels.absolute_sums(U))
        np.testing.assert_array_equal(kernels.squared_norms(U, settled=settled), kernels.squared_norms(U))
        for s in (kernels.sign(U[0]), kernels.sign(U[-1])):  # as when somebody asks from another state
            np.testing.assert_array_equal(kernels.flip_scores(U, s, settled=settled), kernels.flip_scores(U, s))
            np.testing.assert_array_equal(kernels.dots(U, s, settled=settled), kernels.dots(U, s))
        distances, asked = (kernels.squared_distances(kernels.gram(U, settled=which)) for which in (None, settled))
        np.testing.assert_allclose(asked, distances, rtol=1e-9, atol=1e-9)
    s = kernels.sign(U[0])
    before = kernels.gram(U, centre=None, settled=settled)
    flips, norms = kernels.flip_scores(U, s, settled=settled), kernels.squared_norms(U)
    along = kernels.dots(U, s, settled=settled)
    U[first:] = 0  # which nobody who says that these rows are settled may do
    U[0] *= 2
    after = kernels.gram(U, centre=None, settled=settled)
    np.testing.assert_array_equal(after[first:, first:], before[first:, first:])
    assert not (after[first:, 0]).any()
    assert kernels.absolute_sums(U, settled=settled)[first:].all()
    np.testing.assert_array_equal(kernels.flip_scores(U, s, settled=settled)[first:], flips[first:])
    np.testing.assert_array_equal(kernels.dots(U, s, settled=settled)[first:], along[first:])
    np.testing.assert_array_equal(kernels.squared_norms(U, settled=settled)[first:], norms[first:])
    np.testing.assert_array_equal(kernels.squared_norms(U, settled=settled)[:1], 4 * norms[:1])


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    import numba

    U = np.random.default_rng(2).normal(size=(9, 30_000)).astype(np.float32)
    s = np.sign(U[0]).astype(np.int8)
    w = np.full(9, 1 / 9)

    def computed() -> list[Any]:
        columns = kernels.column_statistics(U)
        return [
            kernels.flip_scores(U, s),
            kernels.weighted_sum(w, U),
            kernels.gram(U),
            kernels.absolute_sums(U),
            kernels.trimmed_mean(U, 2),
            columns.mean,
            columns.std,
        ]

    many, before = computed(), numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        one = computed()
    finally:
        numba.set_num_threads(before)
    for with_many, with_one in zip(many, one, strict=True):
        np.testing.assert_array_equal(with_many, with_one)


@settings(max_examples=60)
@given(n=st.integers(3, 24), seed=st.integers(0, 10_000), values=st.sampled_from([2, 3, 1000]), data=st.data())
def test_repeated_krum_is_krum_again_and_again(n: int, seed: int, values: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    f = data.draw(st.integers(0, (n - 1) // 4))
    x = rng.integers(0, values, size=(n, 3)).astype(np.float64)  # few values: many ties
    distances = np.square(x[:, None] - x[None]).sum(axis=-1)
    coins = rng.permutation(n)
    remaining, chosen = list(range(n)), []
    for _ in range(n - 2 * f):
        scores = krum_scores(distances[np.ix_(remaining, remaining)], f)
        chosen.append(min(zip(scores, coins[remaining], remaining, strict=True))[2])
        remaining.remove(chosen[-1])
    assert np.flatnonzero(kernels.repeated_krum(distances, f, coins, n - 2 * f)).tolist() == sorted(chosen)
