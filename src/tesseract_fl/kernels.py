"""The hot mathematics on one matrix of updates: float32 in, float64 sums.

A matrix is a numpy array or a torch tensor. On the CPU both go through the kernels below; tensors on other
devices go through torch. What is of size d comes back as it came, in kind; what is of size n is numpy.

Every kernel is parallel over rows or over columns and never splits a sum over threads, so results do not
depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit, prange

from tesseract_fl import mapped
from tesseract_fl.types import Float64s, Floats, Ints, Matrix, PreconditionError

# Re-ordering a sum and fusing multiply-add let the compiler use SIMD; NaN and infinity keep their meaning.
_SIMD = {"reassoc", "contract"}
_COLUMNS = 2048  # float64 accumulators of one block stay in the first-level cache
_SORTED = 128  # columns that are sorted together; n rows of them stay in the second-level cache
GRAM_COLUMNS = 8192


def on_cpu(U: Matrix) -> bool:
    return isinstance(U, np.ndarray) or U.device.type == "cpu"


def host(U: Matrix) -> npt.NDArray[Any]:
    """As a numpy array; of what is on the CPU a view, no copy."""
    if isinstance(U, np.ndarray):
        return U
    array: npt.NDArray[Any] = U.detach().cpu().numpy()
    return array


def like(array: npt.NDArray[Any], U: Matrix) -> Matrix:
    """`array` in the kind of U."""
    if isinstance(U, np.ndarray):
        return array
    import torch

    return torch.from_numpy(array).to(U.device)


def concatenate(parts: Sequence[Matrix]) -> Matrix:
    """Vectors of one kind, one after the other."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import torch

    return torch.cat(list(parts))


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
    if not on_cpu(U):
        import torch

        flipped = torch.sign(U) != torch.as_tensor(s, device=U.device)
        return _float64s((U.double().square() * flipped).sum(dim=1))
    out = np.empty(U.shape[0], np.float64)
    _flip_scores(host(U), s, out)
    return out


@njit(parallel=True, fastmath=_SIMD, cache=True)
def _dots(U: Any, v: Any, out: Any) -> None:
    n, d = U.shape
    for i in prange(n):
        total = 0.0
        for j in range(d):
            total += np.float64(U[i, j]) * np.float64(v[j])
        out[i] = total


def dots(U: Matrix, v: Matrix) -> Float64s:
    """⟨u_i, v⟩ for every row."""
    if not on_cpu(U):
        import torch

        return _float64s(U.double() @ torch.as_tensor(v, device=U.device).double())
    out = np.empty(U.shape[0], np.float64)
    _dots(host(U), host(v), out)
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
    if not on_cpu(U):
        return _float64s(U.double().square().sum(dim=1))
    if mapped.mapping(U) is not None:
        return np.asarray(sum(squared_norms(mapped.read(U, block)) for block in mapped.blocks(U)))
    out = np.empty(U.shape[0], np.float64)
    _squared_norms(host(U), out)
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


def weighted_sum(w: Float64s, U: Matrix) -> Matrix:
    """g = Σ_i w_i u_i in the dtype of U. A client of weight 0 is not read at all."""
    if not on_cpu(U):
        import torch

        return (torch.as_tensor(w, device=U.device) @ U.double()).to(U.dtype)
    array = host(U)
    out = np.empty(array.shape[1], array.dtype)
    _weighted_sum(w, array, out)
    return like(out, U)


def mix(A: Float64s, U: Matrix) -> Matrix:
    """A·U: every new row is a mixture of rows, in the dtype of U."""
    if not on_cpu(U):
        import torch

        return (torch.as_tensor(A, device=U.device) @ U.double()).to(U.dtype)
    array = host(U)
    return like((A @ array.astype(np.float64)).astype(array.dtype), U)


def gram(
    U: Matrix, *, centre: str | None = "robust", extra: Matrix | None = None, columns: int = GRAM_COLUMNS
) -> Float64s:
    """⟨u_i − z, u_l − z⟩ for all pairs of rows, in blocks of columns, formed in float64.

    Distances do not depend on z, but without one they cancel. "mean" takes the mean of each column, which is cheap
    but follows a single enormous row, and then the others' differences cancel again; "median" does not. "robust"
    takes the mean and looks whether anything was lost, and only then the median. None takes z = 0. `extra` is one
    more row, the last.
    """
    if centre == "robust":
        total = gram(U, centre="mean", extra=extra, columns=columns)
        return total if _well_centred(total) else gram(U, centre="median", extra=extra, columns=columns)
    rows, d = U.shape
    total = np.zeros((rows + (extra is not None),) * 2, np.float64)
    for start in range(0, d, columns):
        block = slice(start, start + columns)
        part = _host_gram if on_cpu(U) else _device_gram
        total += part(U[:, block], None if extra is None else extra[block], centre)
    return total


def _well_centred(gram: Float64s) -> bool:
    """Whether every row is about as far from the centre as from most others: then no difference has cancelled."""
    typical = np.median(squared_distances(gram), axis=1)
    return bool((typical >= 1e-6 * np.diagonal(gram)).all())


def _host_gram(U: Matrix, extra: Matrix | None, centre: str | None) -> Float64s:
    X = host(U).astype(np.float64)
    z = 0.0 if centre is None else X.mean(axis=0) if centre == "mean" else host(median(U)).astype(np.float64)
    if extra is not None:
        X = np.concatenate([X, host(extra)[None]])
    X -= z
    product: Float64s = X @ X.T
    return product


def _device_gram(U: Matrix, extra: Matrix | None, centre: str | None) -> Float64s:
    import torch

    X = U.double()
    z = 0.0 if centre is None else X.mean(dim=0) if centre == "mean" else median(U).double()
    if extra is not None:
        X = torch.cat([X, extra[None].double()])
    X = X - z
    return _float64s(X @ X.T)


def squared_distances(gram: Float64s) -> Float64s:
    """‖u_i − u_l‖² for all pairs from a Gram matrix, centred so that nothing cancels."""
    norms = np.diagonal(gram)
    distances: Float64s = np.maximum(norms[:, None] + norms[None, :] - (gram + gram.T), 0.0)  # exactly symmetric
    np.fill_diagonal(distances, 0.0)
    return distances


@cache
def _sorting_network(n: int) -> Ints:
    """Pairs of positions to compare and swap, in order: Batcher's merge exchange, for any n."""
    pairs = []
    top = 1 << max((n - 1).bit_length() - 1, 0)
    p = top
    while p and n > 1:
        q, r, d = top, 0, p
        while True:
            pairs += [(i, i + d) for i in range(n - d) if i & p == r]
            if q == p:
                break
            d, q, r = q - p, q // 2, p
        p //= 2
    return np.array(pairs, np.int64).reshape(-1, 2)


@njit(inline="always")
def _sort_columns(U: Any, rows: Any, network: Any, start: Any, X: Any) -> Any:
    """Copy a block of columns into X, sort every column, and say whether all of it was finite."""
    width = min(X.shape[1], U.shape[1] - start)
    finite = True
    for i in range(len(rows)):
        for j in range(width):
            x = U[rows[i], start + j]
            finite &= x - x == 0.0
            X[i, j] = x
    for k in range(len(network)):
        low, high = X[network[k, 0]], X[network[k, 1]]
        for j in range(X.shape[1]):
            a, b = low[j], high[j]
            low[j] = a if a < b else b
            high[j] = b if a < b else a
    return finite


@njit(parallel=True, cache=True)
def _trimmed_mean(U: Any, rows: Any, network: Any, f: Any, out: Any) -> Any:
    n, d = len(rows), U.shape[1]
    bad = 0
    for b in prange((d + _SORTED - 1) // _SORTED):
        X = np.zeros((n, _SORTED), U.dtype)
        start = b * _SORTED
        bad += not _sort_columns(U, rows, network, start, X)
        total = np.zeros(_SORTED, np.float64)
        for i in range(f, n - f):
            for j in range(_SORTED):
                total[j] += X[i, j]
        for j in range(min(_SORTED, d - start)):
            out[start + j] = total[j] / (n - 2 * f)
    return bad


@njit(parallel=True, cache=True)
def _mean_near_median(U: Any, rows: Any, network: Any, k: Any, out: Any) -> Any:
    n, d = len(rows), U.shape[1]
    bad = 0
    for b in prange((d + _SORTED - 1) // _SORTED):
        X = np.zeros((n, _SORTED), U.dtype)
        start = b * _SORTED
        bad += not _sort_columns(U, rows, network, start, X)
        for j in range(min(_SORTED, d - start)):
            median = 0.5 * (np.float64(X[(n - 1) // 2, j]) + np.float64(X[n // 2, j]))
            low, high = 0, n
            while high - low > k:  # drop whichever end is farther away
                if median - X[low, j] > X[high - 1, j] - median:
                    low += 1
                else:
                    high -= 1
            total = 0.0
            for i in range(low, high):
                total += X[i, j]
            out[start + j] = total / k
    return bad


def trimmed_mean(U: Matrix, f: int) -> Matrix:
    """Per column the mean without the f smallest and the f largest values."""

    def on_device(tensor: Any) -> Any:
        return tensor.sort(dim=0).values[f : tensor.shape[0] - f].double().mean(dim=0)

    return _by_columns(_trimmed_mean, on_device, U, np.arange(U.shape[0]), f)


def median(U: Matrix) -> Matrix:
    """Per column the middle value, or the mean of the two middle ones: trimmed as far as it goes."""
    return trimmed_mean(U, (U.shape[0] - 1) // 2)


def mean_near_median(U: Matrix, rows: Ints, k: int) -> Matrix:
    """Per column, among some rows, the mean of the k values closest to their median.

    Of two values equally far away the smaller one is kept.
    """

    def on_device(tensor: Any) -> Any:
        values = tensor[rows].double().sort(dim=0).values
        middle = (values[(len(rows) - 1) // 2] + values[len(rows) // 2]) / 2
        nearest = (values - middle).abs().sort(dim=0, stable=True).indices[:k]
        return values.gather(0, nearest).mean(dim=0)

    return _by_columns(_mean_near_median, on_device, U, rows, k)


class Columns(NamedTuple):
    """Per column: mean, standard deviation (of these rows, not of a sample), smallest and largest value."""

    mean: Float64s
    std: Float64s
    low: Floats
    high: Floats


@njit(parallel=True, fastmath=_SIMD, cache=True)
def _column_statistics(U: Any, mean: Any, std: Any, low: Any, high: Any) -> None:
    n, d = U.shape
    for b in prange((d + _COLUMNS - 1) // _COLUMNS):
        block = slice(b * _COLUMNS, min((b + 1) * _COLUMNS, d))
        m, v, lo, hi = mean[block], std[block], low[block], high[block]
        for i in range(n):
            u = U[i, block]
            for j in range(len(u)):
                m[j] += u[j]
                lo[j] = min(lo[j], u[j])
                hi[j] = max(hi[j], u[j])
        m /= n
        for i in range(n):  # a second pass, in cache: the difference of two large sums would cancel
            u = U[i, block]
            for j in range(len(u)):
                v[j] += (u[j] - m[j]) ** 2
        for j in range(len(v)):
            v[j] = np.sqrt(v[j] / n)


def column_statistics(U: Floats) -> Columns:
    """Everything that attacks ask of the columns, in one read of the matrix."""
    d = U.shape[1]
    out = Columns(np.zeros(d), np.zeros(d), np.full(d, np.inf, U.dtype), np.full(d, -np.inf, U.dtype))
    _column_statistics(U, *out)
    return out


def _by_columns(kernel: Any, on_device: Callable[[Any], Any], U: Matrix, rows: Ints, parameter: int) -> Matrix:
    if not on_cpu(U):
        if not bool(U.isfinite().all()):
            raise PreconditionError(NOT_FINITE)
        return on_device(U).to(U.dtype)
    array = host(U)
    out = np.empty(array.shape[1], array.dtype)
    if kernel(array, rows, _sorting_network(len(rows)), parameter, out):
        raise PreconditionError(NOT_FINITE)
    return like(out, U)


NOT_FINITE = "the updates have NaN or infinite values; let them through the gate first, which turns such clients away"


def _float64s(tensor: Any) -> Float64s:
    array: Float64s = tensor.cpu().numpy()
    return array


def sign(update: Matrix) -> npt.NDArray[np.int8]:
    """−1, 0 or 1 per coordinate; 0 where there is no number."""
    array = host(update)
    return (array > 0).astype(np.int8) - (array < 0)


def all_finite(update: Floats) -> bool:
    return bool(np.isfinite(host(update)).all())
