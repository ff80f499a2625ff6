"""The hot mathematics on one matrix of updates: float32 in, float64 sums.

A matrix is a numpy array or a torch tensor. On the CPU both go through the kernels below; tensors on other
devices go through torch. What is of size d comes back as it came, in kind; what is of size n is numpy.

Every kernel but `mix`, which is BLAS's, is parallel over rows or over columns and never splits a sum over threads, so
results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit, prange

from tesseract_fl import mapped
from tesseract_fl.types import Blend, Bools, Float64s, Floats, Ints, Matrix, PreconditionError, Settled

# Re-ordering a sum and fusing multiply-add let the compiler use SIMD; NaN and infinity keep their meaning.
_SIMD = {"reassoc", "contract"}
_COLUMNS = 2048  # float64 accumulators of one block stay in the first-level cache
_SORTED = 128  # columns that are sorted together; n rows of them stay in the second-level cache
_GRAM = 256  # columns whose products are formed together; n rows of them stay in the second-level cache
_PARTS = 16  # into which the columns are cut for Gram matrices, however many threads there are
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


@njit(inline="always")
def _against(u: Any, s: Any) -> Any:
    """u where its sign is not s, else 0. An exact zero has no energy either way, so the product's sign decides."""
    zero = np.float32(0)
    return np.float64(zero if u * s > zero else u)


@njit(parallel=True, fastmath=_SIMD, cache=True)
def _flip_scores(U: Any, s: Any, out: Any) -> None:
    """Four rows at a time, for each sign that is loaded; the last row stands in where there are no four."""
    n, d = U.shape
    for group in prange((n + 3) // 4):
        a = 4 * group
        b, c, e = min(a + 1, n - 1), min(a + 2, n - 1), min(a + 3, n - 1)
        ua, ub, uc, ue = U[a], U[b], U[c], U[e]
        energy_a = energy_b = energy_c = energy_e = 0.0
        for j in range(d):
            energy_a += _against(ua[j], s[j]) ** 2
            energy_b += _against(ub[j], s[j]) ** 2
            energy_c += _against(uc[j], s[j]) ** 2
            energy_e += _against(ue[j], s[j]) ** 2
        out[a], out[b], out[c], out[e] = energy_a, energy_b, energy_c, energy_e


def flip_scores(U: Matrix, s: npt.NDArray[np.int8], *, settled: Settled | None = None) -> Float64s:
    """FS_i = Σ_j u_ij² · [sign(u_ij) ≠ s_j]: energy that goes against s, the signs of the last global update."""
    if settled is not None:
        return _settled_rows(U, settled, "flips", s, lambda rows: flip_scores(rows, s))
    if not on_cpu(U):
        import torch

        flipped = torch.sign(U) != torch.as_tensor(s, device=U.device)
        return _float64s((U.double().square() * flipped).sum(dim=1))
    out = np.empty(U.shape[0], np.float64)
    _flip_scores(host(U), s.astype(np.float32), out)
    return out


@njit(parallel=True, fastmath=_SIMD, cache=True)
def _dots(U: Any, v: Any, out: Any) -> None:
    n, d = U.shape
    for i in prange(n):
        total = 0.0
        for j in range(d):
            total += np.float64(U[i, j]) * np.float64(v[j])
        out[i] = total


def dots(U: Matrix, v: Matrix, *, settled: Settled | None = None) -> Float64s:
    """⟨u_i, v⟩ for every row."""
    if settled is not None:
        return _settled_rows(U, settled, "dots", v, lambda rows: dots(rows, v))
    if not on_cpu(U):
        import torch

        return _float64s(U.double() @ torch.as_tensor(v, device=U.device).double())
    out = np.empty(U.shape[0], np.float64)
    _dots(host(U), host(v), out)
    return out


def dot(u: Matrix, v: Matrix) -> float:
    """⟨u, v⟩. A BLAS would split the sum over threads, and end with other last digits on another machine."""
    return float(dots(u[None], v)[0])


@njit(parallel=True, fastmath=_SIMD, cache=True)
def _squared_norms(U: Any, out: Any) -> None:
    n, d = U.shape
    for i in prange(n):
        total = 0.0
        for j in range(d):
            u = np.float64(U[i, j])
            total += u * u
        out[i] = total


def squared_norms(U: Matrix, *, settled: Settled | None = None) -> Float64s:
    """‖u_i‖² for every row; not finite exactly where the row of float32 is not."""
    if settled is not None:
        return _settled_rows(U, settled, "norms", None, squared_norms)
    if not on_cpu(U):
        return _float64s(U.double().square().sum(dim=1))
    if mapped.mapping(U) is not None:
        return np.asarray(sum(squared_norms(mapped.read(U, block)) for block in mapped.blocks(U)))
    out = np.empty(U.shape[0], np.float64)
    _squared_norms(host(U), out)
    return out


@njit(parallel=True, fastmath=_SIMD, cache=True)
def _absolute_sums(U: Any, out: Any) -> None:
    n, d = U.shape
    for i in prange(n):
        total = 0.0
        for j in range(d):
            total += np.float64(abs(U[i, j]))
        out[i] = total


def absolute_sums(U: Matrix, *, settled: Settled | None = None) -> Float64s:
    """‖u_i‖₁ = Σ_j |u_ij| for every row."""
    if settled is not None:
        return _settled_rows(U, settled, "sums", None, absolute_sums)
    if not on_cpu(U):
        return _float64s(U.double().abs().sum(dim=1))
    out = np.empty(U.shape[0], np.float64)
    _absolute_sums(host(U), out)
    return out


@njit(parallel=True, fastmath=_SIMD, cache=True)
def _squared_distances_from(U: Any, v: Any, out: Any) -> None:
    n, d = U.shape
    for i in prange(n):
        total = 0.0
        for j in range(d):
            difference = np.float64(U[i, j]) - np.float64(v[j])
            total += difference * difference
        out[i] = total


def squared_distances_from(v: Matrix, U: Matrix) -> Float64s:
    """‖u_i − v‖² for every row."""
    if not on_cpu(U):
        return _float64s((U.double() - v.double()).square().sum(dim=1))
    out = np.empty(U.shape[0], np.float64)
    _squared_distances_from(host(U), host(v), out)
    return out


@njit(parallel=True, fastmath={"contract"}, cache=True)
def _weighted_sum(w: Any, rows: Any, U: Any, out: Any) -> None:
    """Row after row, four for each time that a sum is loaded and stored."""
    d = U.shape[1]
    for b in prange((d + _COLUMNS - 1) // _COLUMNS):
        start = b * _COLUMNS
        stop = min(start + _COLUMNS, d)
        total = np.zeros(stop - start, np.float64)
        for k in range(0, len(rows), 4):
            w0, w1, w2, w3 = w[k], w[k + 1], w[k + 2], w[k + 3]
            u0, u1 = U[rows[k], start:stop], U[rows[k + 1], start:stop]
            u2, u3 = U[rows[k + 2], start:stop], U[rows[k + 3], start:stop]
            for j in range(stop - start):
                total[j] = (((total[j] + w0 * u0[j]) + w1 * u1[j]) + w2 * u2[j]) + w3 * u3[j]
        out[start:stop] = total


def weighted_sum(w: Float64s, U: Matrix) -> Matrix:
    """g = Σ_i w_i u_i in the dtype of U. A client of weight 0 is not read at all."""
    if not on_cpu(U):
        import torch

        return (torch.as_tensor(w, device=U.device) @ U.double()).to(U.dtype)
    array = host(U)
    out = np.empty(array.shape[1], array.dtype)
    rows = np.flatnonzero(w)
    missing = -len(rows) % 4
    weights = np.concatenate([w[rows], np.zeros(missing)])
    _weighted_sum(weights, np.concatenate([rows, np.repeat(rows[-1:], missing)]), array, out)
    return like(out, U)


def mix(A: Float64s, U: Matrix) -> Matrix:
    """A·U: every new row is a mixture of rows, in the dtype of U. A vector A is a diagonal: it scales the rows."""
    if not on_cpu(U):
        import torch

        mixing = torch.as_tensor(A, device=U.device)
        return (mixing[:, None] * U if A.ndim == 1 else mixing @ U.double()).to(U.dtype)
    array = host(U)
    mixed = A[:, None] * array if A.ndim == 1 else A @ array.astype(np.float64)
    return like(mixed.astype(array.dtype), U)


@njit(parallel=True, fastmath={"contract"}, cache=True)
def _blend(a: Any, x: Any, b: Any, y: Any, out: Any) -> None:
    for i in prange(len(out)):
        x_i, y_i, row = x[i], y[i] if len(y) > 1 else y[0], out[i]
        for j in range(len(row)):
            row[j] = a * x_i[j] + b * y_i[j]


def blend(given: Blend, out: Floats | None = None) -> Floats:
    """The rows themselves, in the dtype of x."""
    out = np.empty_like(given.x) if out is None else out
    number = out.dtype.type
    _blend(number(given.a), given.x, number(given.b), given.y, out)
    return out


@njit(inline="always")
def _add_products(X: Any, a: Any, b: Any, G: Any) -> None:
    """The inner products of four rows with two others: eight sums that stay in registers, six loads a step."""
    x0, x1, x2, x3 = X[a], X[a + 1], X[a + 2], X[a + 3]
    y0, y1 = X[b], X[b + 1]
    s00 = s10 = s20 = s30 = s01 = s11 = s21 = s31 = 0.0
    for j in range(X.shape[1]):
        p, q = y0[j], y1[j]
        s00 += x0[j] * p
        s10 += x1[j] * p
        s20 += x2[j] * p
        s30 += x3[j] * p
        s01 += x0[j] * q
        s11 += x1[j] * q
        s21 += x2[j] * q
        s31 += x3[j] * q
    G[a, b] += s00
    G[a + 1, b] += s10
    G[a + 2, b] += s20
    G[a + 3, b] += s30
    G[a, b + 1] += s01
    G[a + 1, b + 1] += s11
    G[a + 2, b + 1] += s21
    G[a + 3, b + 1] += s31


@njit(parallel=True, fastmath=_SIMD, cache=True)
def _gram(U: Any, z: Any, first: Any, parts: Any) -> None:
    """The lower triangle of a Gram matrix, each part of the columns by itself; without z, centred on the mean.

    Only the products with one of the `first` rows.
    """
    n, d = U.shape
    size = parts.shape[1]
    share = (d + len(parts) - 1) // len(parts)
    for part in prange(len(parts)):
        G = parts[part]
        X = np.zeros((size, _GRAM), np.float64)
        centre = np.zeros(_GRAM, np.float64)
        stop = min((part + 1) * share, d)
        for start in range(part * share, stop, _GRAM):
            width = min(_GRAM, stop - start)
            if len(z):
                centre[:width] = z[start : start + width]
            else:
                centre[:] = 0.0
                for i in range(n):
                    u = U[i, start : start + width]
                    for j in range(width):
                        centre[j] += u[j]
                centre /= n
            for a in range(0, size, 4):
                for i in range(a, min(a + 4, n)):
                    u, x = U[i, start : start + width], X[i]
                    for j in range(width):
                        x[j] = u[j] - centre[j]
                    x[width:] = 0.0
                for b in range(0, min(a + 4, first), 2):
                    _add_products(X, a, b, G)


def gram(U: Matrix, *, centre: str | None = "robust", settled: Settled | None = None) -> Float64s:
    """⟨u_i − z, u_l − z⟩ for all pairs of rows, in blocks of columns, formed in float64.

    Distances do not depend on z, but without one they cancel. "mean" takes the mean of each column, which is cheap
    but follows a single enormous row, and then the others' differences cancel again; "median" does not. "robust"
    takes the mean and looks whether anything was lost, and only then the median. None takes z = 0.

    With `settled`, products of two settled rows are formed once, and the mean is theirs alone. Where the others are a
    blend and there is no centre, products are formed with x and y, once, and then blended.
    """
    if centre == "robust":
        total = gram(U, centre="mean", settled=settled)
        return total if _well_centred(total) else gram(U, centre="median")
    if not on_cpu(U):
        return _device_gram(U, centre)
    rows = host(U)
    if settled is None or centre == "median":
        lower = _products(rows, centre)
    else:
        lower = _settled_products(rows, settled, centre)
    full: Float64s = lower + np.tril(lower, -1).T
    return full


def _well_centred(gram: Float64s) -> bool:
    """Whether every row is about as far from the centre as from most others: then no difference has cancelled."""
    typical = np.median(squared_distances(gram), axis=1)
    return bool((typical >= 1e-6 * np.diagonal(gram)).all())


def _products(U: Floats, centre: str | None) -> Float64s:
    """The lower triangle, around z = 0, the mean, which the kernel knows itself, or the median."""
    d = U.shape[1]
    z = np.zeros(d) if centre is None else np.zeros(0) if centre == "mean" else host(median(U)).astype(np.float64)
    return _products_with(U, z, len(U))


def _products_with(U: Floats, z: Float64s, first: int) -> Float64s:
    """Of the lower triangle the `first` columns; the others are 0."""
    n, d = U.shape
    size = -(-n // 4) * 4
    count = min(_PARTS, max(1, d // (8 * size)))  # together a quarter of U, or one of them
    parts = np.zeros((count, size, size))
    _gram(U, z, size if first == n else first, parts)
    return np.tril(parts.sum(axis=0)[:n, :n])


def _settled_rows(U: Matrix, settled: Settled, name: str, given: Any, form: Callable[[Matrix], Float64s]) -> Float64s:
    """A number for each row; those of settled rows are formed once for what is given."""
    kept = settled.kept
    if name not in kept or not np.array_equal(kept[name][0], given):
        kept[name] = given, form(U[settled.first :])
    return np.concatenate([form(U[: settled.first]), kept[name][1]])


def _settled_mean(U: Floats, settled: Settled) -> Float64s:
    if "mean" not in settled.kept:
        settled.kept["mean"] = U[settled.first :].mean(axis=0, dtype=np.float64)
    mean: Float64s = settled.kept["mean"]
    return mean


def _settled_products(U: Floats, settled: Settled, centre: str | None) -> Float64s:
    """The lower triangle, of which only the columns of rows that are not settled are formed again."""
    if settled.blend is not None and centre is None:
        return _blended_products(U, settled, settled.blend)
    m, kept, name = settled.first, settled.kept, ("products", centre)
    z = np.zeros(U.shape[1]) if centre is None else _settled_mean(U, settled)
    if name not in kept:
        lower = _products_with(U, z, len(U))
        kept[name] = lower[m:, m:].copy()
        return lower
    same = all((U[1:m, part] == U[:1, part]).all() for part in (slice(8), slice(None)))  # as colluders often do
    lower = _products_with(U, z, 1 if same else m)
    if same:
        lower[:m, :m] = np.tril(np.full((m, m), lower[0, 0]))
        lower[m:, :m] = lower[m:, :1]
    lower[m:, m:] = kept[name]
    return lower


def _blended_products(U: Floats, settled: Settled, blend: Blend) -> Float64s:
    """M·G·Mᵀ, G being the Gram matrix of x, y and the settled rows, and M what each row is made of."""
    m, kept = settled.first, settled.kept
    x, y, G = kept.get("blended", (None, None, None))
    if x is not blend.x or y is not blend.y:
        blocks = mapped.blocks(U, GRAM_COLUMNS)
        stacked = (np.concatenate([rows[:, b] for rows in (blend.x, blend.y, U[m:])]) for b in blocks)
        G = np.asarray(sum(gram(block, centre=None) for block in stacked))
        kept["blended"] = blend.x, blend.y, G
    M = np.zeros((len(U), len(G)))
    M[:m, :m] = blend.a * np.eye(m)
    M[:m, m : m + len(blend.y)] = blend.b * (np.eye(m) if len(blend.y) == m else 1)
    M[m:, m + len(blend.y) :] = np.eye(len(U) - m)
    return np.tril(M @ G @ M.T)


def _device_gram(U: Matrix, centre: str | None) -> Float64s:

    total = 0
    for start in range(0, max(U.shape[1], 1), GRAM_COLUMNS):
        block = slice(start, start + GRAM_COLUMNS)
        X = U[:, block].double()
        z = 0.0 if centre is None else X.mean(dim=0) if centre == "mean" else median(U[:, block]).double()
        X = X - z
        total = total + X @ X.T
    return _float64s(total)


def squared_distances(gram: Float64s) -> Float64s:
    """‖u_i − u_l‖² for all pairs from a Gram matrix, centred so that nothing cancels."""
    norms = np.diagonal(gram)
    distances: Float64s = np.maximum(norms[:, None] + norms[None, :] - (gram + gram.T), 0.0)  # exactly symmetric
    np.fill_diagonal(distances, 0.0)
    return distances


@njit(cache=True)
def _repeated_krum(order: Any, distances: Any, f: Any, coins: Any, remains: Any, count: Any) -> None:
    n = len(order)
    for step in range(count):
        neighbours = max(n - step - f - 2, 0)
        best, lowest = -1, np.inf
        for i in range(n):
            if not remains[i]:
                continue
            score, taken, j = 0.0, 0, 0
            while taken < neighbours and score <= lowest:  # a sum that is too large already need not be finished
                if remains[order[i, j]]:
                    score += distances[i, order[i, j]]
                    taken += 1
                j += 1
            if best < 0 or score < lowest or (score == lowest and coins[i] < coins[best]):
                best, lowest = i, score
        remains[best] = False


def repeated_krum(distances: Float64s, f: int, coins: Ints, count: int) -> Bools:
    """`count` times: choose who has the smallest sum of squared distances to its n − f − 2 nearest, and take it away.

    n is how many remain. Of equal sums the one with the lower coin wins.
    """
    apart = distances.copy()
    np.fill_diagonal(apart, np.inf)  # nobody is a neighbour of its own
    remains = np.ones(len(apart), np.bool_)
    _repeated_krum(apart.argsort(axis=1), apart, f, coins, remains, count)
    return ~remains


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


@cache
def _trimming_network(n: int, f: int) -> Ints:
    """As much of the sorting network as it takes to tell the f smallest, the f largest and the others apart."""
    group = [(i >= f) + (i >= n - f) for i in range(n)]
    compared_later = [False] * n
    needed = []
    for low, high in _sorting_network(n)[::-1]:
        if compared_later[low] or compared_later[high] or group[low] != group[high]:
            compared_later[low] = compared_later[high] = True
            needed.append((low, high))
    return np.array(needed[::-1], np.int64).reshape(-1, 2)


class _Bits(NamedTuple):
    """Floats as integers: the place of the sign, all other places, and what the bits of infinity are."""

    array: Any
    sign: Any
    rest: Any
    infinity: Any

    @classmethod
    def of(cls, U: Floats) -> _Bits:
        kind = np.int32 if U.dtype == np.float32 else np.int64
        sign = 8 * U.itemsize - 1
        return cls(U.view(kind), kind(sign), kind(2**sign - 1), np.array(np.inf, U.dtype).view(kind)[()])


@njit(inline="always")
def _key(bits: Any, B: Any) -> Any:
    """An integer that is ordered like the float with these bits; applied twice, the bits again.

    Smaller and larger of two integers are one SIMD instruction each, and the compiler finds it.
    """
    return bits ^ ((bits >> B.sign) & B.rest)


@njit(inline="always")
def _sort_columns(B: Any, rows: Any, network: Any, start: Any, X: Any) -> Any:
    """Copy a block of columns into X as keys, order every column, and say whether all of it was finite."""
    width = min(X.shape[1], B.array.shape[1] - start)
    largest = X[0, 0]
    for i in range(len(rows)):
        u, x = B.array[rows[i], start : start + width], X[i]
        for j in range(width):
            largest = max(largest, u[j] & B.rest)
            x[j] = _key(u[j], B)
    for k in range(len(network)):
        low, high = X[network[k, 0]], X[network[k, 1]]
        for j in range(X.shape[1]):
            a, b = low[j], high[j]
            low[j] = min(a, b)
            high[j] = max(a, b)
    return largest < B.infinity


@njit(parallel=True, cache=True)
def _trimmed_mean(B: Any, rows: Any, network: Any, f: Any, out: Any) -> Any:
    n, d = len(rows), len(out)
    bad = 0
    for b in prange((d + _SORTED - 1) // _SORTED):
        X = np.zeros((n, _SORTED), B.array.dtype)
        start = b * _SORTED
        bad += not _sort_columns(B, rows, network, start, X)
        total = np.zeros(_SORTED, np.float64)
        for i in range(f, n - f):
            for j in range(_SORTED):
                X[i, j] = _key(X[i, j], B)
            row = X[i].view(out.dtype)
            for j in range(_SORTED):
                total[j] += row[j]
        for j in range(min(_SORTED, d - start)):
            out[start + j] = total[j] / (n - 2 * f)
    return bad


@njit(parallel=True, cache=True)
def _mean_near_median(B: Any, rows: Any, network: Any, k: Any, out: Any) -> Any:
    n, d = len(rows), len(out)
    bad = 0
    for b in prange((d + _SORTED - 1) // _SORTED):
        keys = np.zeros((n, _SORTED), B.array.dtype)
        start = b * _SORTED
        bad += not _sort_columns(B, rows, network, start, keys)
        for i in range(n):
            for j in range(_SORTED):
                keys[i, j] = _key(keys[i, j], B)
        X = keys.view(out.dtype)
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

    n = U.shape[0]
    return _by_columns(_trimmed_mean, on_device, U, np.arange(n), _trimming_network(n, f), f)


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

    return _by_columns(_mean_near_median, on_device, U, rows, _sorting_network(len(rows)), k)


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


def _by_columns(
    kernel: Any, on_device: Callable[[Any], Any], U: Matrix, rows: Ints, network: Ints, parameter: int
) -> Matrix:
    if not on_cpu(U):
        if not bool(U.isfinite().all()):
            raise PreconditionError(NOT_FINITE)
        return on_device(U).to(U.dtype)
    array = host(U)
    out = np.empty(array.shape[1], array.dtype)
    if kernel(_Bits.of(array), rows, network, parameter, out):
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
