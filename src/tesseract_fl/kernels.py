"""The hot mathematics on one matrix of updates: one pass, float32 in, float64 sums.

Every kernel is parallel over rows or over columns and never splits a sum over threads, so results do not
depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, prange

from tesseract_fl.types import Float64s, Floats, Matrix

# Re-ordering a sum and fusing multiply-add let the compiler use SIMD; NaN and infinity keep their meaning.
_SIMD = {"reassoc", "contract"}
_COLUMNS = 2048  # float64 accumulators of one block stay in the first-level cache


@njit(parallel=True, fastmath=_SIMD, cache=True)
def _flip_scores(U: Any, s: Any, out: Any) -> None:
    n, d = U.shape
    for i in prange(n):
        energy = 0.0
        for j in range(d):
            u = np.float64(U[i, j])
            sign = np.int8(u > 0) - np.int8(u < 0)
            energy += u * u if sign != s[j] else 0.0
        out[i] = energy


def flip_scores(U: Matrix, s: npt.NDArray[np.int8]) -> Float64s:
    """FS_i = Σ_j u_ij² · [sign(u_ij) ≠ s_j]."""
    out = np.empty(U.shape[0], np.float64)
    _flip_scores(U, s, out)
    return out


@njit(parallel=True, fastmath=_SIMD, cache=True)
def _squared_norms(U: Any, out: Any) -> None:
    n, d = U.shape
    for i in prange(n):
        total = 0.0
        for j in range(d):
            u = np.float64(U[i, j])
            total += u * u
        out[i] = total


def squared_norms(U: Matrix) -> Float64s:
    """‖u_i‖² for every row; not finite exactly where the row of float32 is not."""
    out = np.empty(U.shape[0], np.float64)
    _squared_norms(U, out)
    return out


@njit(parallel=True, fastmath=_SIMD, cache=True)
def _dots(U: Any, v: Any, out: Any) -> None:
    n, d = U.shape
    for i in prange(n):
        total = 0.0
        for j in range(d):
            total += np.float64(U[i, j]) * np.float64(v[j])
        out[i] = total


def dots(U: Matrix, v: npt.NDArray[Any]) -> Float64s:
    """⟨u_i, v⟩ for every row."""
    out = np.empty(U.shape[0], np.float64)
    _dots(U, v, out)
    return out


@njit(parallel=True, fastmath=_SIMD, cache=True)
def _weighted_sum(w: Any, U: Any, out: Any) -> None:
    n, d = U.shape
    blocks = (d + _COLUMNS - 1) // _COLUMNS
    for b in prange(blocks):
        start = b * _COLUMNS
        stop = min(start + _COLUMNS, d)
        total = np.zeros(stop - start, np.float64)
        for i in range(n):
            if w[i] != 0.0:
                for j in range(start, stop):
                    total[j - start] += w[i] * U[i, j]
        out[start:stop] = total


def weighted_sum(w: Float64s, U: Matrix) -> Floats:
    """g = Σ_i w_i u_i in the dtype of U. A client of weight 0 is not read at all."""
    out = np.empty(U.shape[1], U.dtype)
    _weighted_sum(w, U, out)
    return out


def centred_gram(U: Matrix, columns: int = 16_384) -> Float64s:
    """⟨u_i − ū, u_l − ū⟩ for all pairs of rows, in column blocks, formed in float64."""
    n, d = U.shape
    gram = np.zeros((n, n), np.float64)
    for start in range(0, d, columns):
        block = U[:, start : start + columns].astype(np.float64)
        block -= block.mean(axis=0)
        gram += block @ block.T
    return gram


def squared_distances(gram: Float64s) -> Float64s:
    """‖u_i − u_l‖² for all pairs from a Gram matrix, centred so that nothing cancels."""
    norms = np.diagonal(gram)
    distances: Float64s = np.maximum(norms[:, None] + norms[None, :] - 2.0 * gram, 0.0)
    np.fill_diagonal(distances, 0.0)
    return distances
