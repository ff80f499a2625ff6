"""Convolution, ReLU and 2×2 max-pooling in one pass over the images, and back again.

Images are B × H × W × C, channels padded to whole lanes (those of the first layer are as they come). Forwards only
the pooled values are written, and a tag: which of the four positions of a window won, DEAD where ReLU gave 0.
Backwards only that position has a gradient, a quarter of the work of a dense convolution or less. Each client has a
gradient of its own: that of its images, those from starts[i] to starts[i + 1].

`winograd.py` has `pool` and `corners` compiled into its kernel and does not notice a change of them: touch it too.

No sum is split over threads or depends on how many images there are, so equal images have equal results.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from tesseract_fl.simulation.lanes import (
    DEAD,
    LANES,
    add,
    fma,
    item,
    larger,
    load,
    splat,
    spread,
    store,
    store_tags,
    total,
    where_alive,
    where_tag,
)

WIDE = 6 * LANES  # a row of a 3×3 patch with 32 channels; twelve registers of AVX2


@njit(nogil=True, cache=True)
def forward(x: Any, w: Any, bias: Any, taps: Any, out: Any, tags: Any) -> None:
    """out = pool(relu(w ∗ x + bias)), sixteen filters at a time.

    w: blocks × K × 16; `taps`: where the K inputs of a position are, counted from its first.
    """
    B, H, W, C = x.shape
    _, rows, columns, O = out.shape  # noqa: E741
    row, K = W * C, len(taps)
    for b in range(B):
        for o in range(0, len(w) * LANES, LANES):
            for py in range(rows):
                for px in range(columns):
                    corner = (b * H + 2 * py) * row + 2 * px * C
                    y0 = load(bias, o)
                    y1, y2, y3 = y0, y0, y0
                    for t in range(K):
                        i = corner + item(taps, t)
                        v = load(w, o * K + t * LANES)
                        y0 = fma(v, spread(x, i), y0)
                        y1 = fma(v, spread(x, i + C), y1)
                        y2 = fma(v, spread(x, i + row), y2)
                        y3 = fma(v, spread(x, i + row + C), y3)
                    pool(y0, y1, y2, y3, out, tags, ((b * rows + py) * columns + px) * O + o)


@njit(inline="always")
def pool(y0: Any, y1: Any, y2: Any, y3: Any, out: Any, tags: Any, at: Any) -> None:
    """Write the largest of the four positions of a window after ReLU, and which it is."""
    top = larger(larger(y0, y1), larger(y2, y3))
    store_tags(tags, at, top, y0, y1, y2)
    store(out, at, larger(splat(np.float32(0)), top))


@njit(nogil=True, cache=True)
def forward_rest(x: Any, w: Any, bias: Any, first: Any, out: Any, tags: Any) -> None:
    """The same for the few filters from `first` on that do not fill the lanes, with lanes over the inputs instead.

    w: O × k × k·C, with the true number of filters.
    """
    B, H, W, C = x.shape
    _, rows, columns, O = out.shape  # noqa: E741
    row, windows = W * C, rows * columns
    y = np.zeros((windows, DEAD, LANES), np.float32)  # of one image: wide loads wait for narrow stores just before them
    for b in range(B):
        for py in range(rows):
            for px in range(columns):
                corner = (b * H + 2 * py) * row + 2 * px * C
                for o in range(first, len(w)):
                    _products(x, corner, row, C, w, o, y, py * columns + px, o - first)
        shift = load(bias, first)
        for p in range(windows):
            i = p * DEAD * LANES
            y0, y1 = add(load(y, i), shift), add(load(y, i + LANES), shift)
            y2, y3 = add(load(y, i + 2 * LANES), shift), add(load(y, i + 3 * LANES), shift)
            pool(y0, y1, y2, y3, out, tags, (b * windows + p) * O + first)


@njit(inline="always")
def _products(x: Any, corner: Any, row: Any, C: Any, w: Any, o: Any, y: Any, p: Any, to: Any) -> None:
    """The products of a filter with the four patches of a window."""
    _, k, n = w.shape
    y0 = splat(np.float32(0))
    y1, y2, y3 = y0, y0, y0
    for ky in range(k):
        for t in range(0, n, LANES):
            i = corner + ky * row + t
            v = load(w, (o * k + ky) * n + t)
            y0 = fma(v, load(x, i), y0)
            y1 = fma(v, load(x, i + C), y1)
            y2 = fma(v, load(x, i + row), y2)
            y3 = fma(v, load(x, i + row + C), y3)
    y[p, 0, to], y[p, 1, to], y[p, 2, to], y[p, 3, to] = total(y0), total(y1), total(y2), total(y3)


@njit(nogil=True, cache=True)
def backward_bias(g: Any, tags: Any, starts: Any, db: Any) -> None:
    """db_i = Σ g over the windows of client i that are alive.

    g: B × rows × columns × O; db: clients × O.
    """
    _, rows, columns, O = g.shape  # noqa: E741
    image = rows * columns * O
    for client in range(len(db)):
        for o in range(0, O, LANES):
            db_o = splat(np.float32(0))
            for at in range(starts[client] * image + o, starts[client + 1] * image, O):
                db_o = add(where_alive(tags, at, load(g, at)), db_o)
            store(db, client * O + o, db_o)


@njit(nogil=True, cache=True)
def backward_first(x: Any, g: Any, tags: Any, starts: Any, taps: Any, dw: Any) -> None:
    """dw_ito = Σ g_o · x_t, t over the taps of the winning position: sixteen filters and three taps at a time.

    dw: clients × as many rows as taps (a multiple of three) × O. Nobody needs the gradient of the images themselves.
    """
    _, H, W, C = x.shape
    _, rows, columns, O = g.shape  # noqa: E741
    row, T = W * C, len(taps)
    dw[:] = 0
    for client in range(len(dw)):
        for b in range(starts[client], starts[client + 1]):
            for o in range(0, O, LANES):
                for t in range(0, T, 3):
                    i0, i1, i2 = item(taps, t), item(taps, t + 1), item(taps, t + 2)
                    to = (client * T + t) * O + o
                    a0, a1, a2 = load(dw, to), load(dw, to + O), load(dw, to + 2 * O)
                    for py in range(rows):
                        for px in range(columns):
                            at = ((b * rows + py) * columns + px) * O + o
                            gradient = load(g, at)
                            for q in range(DEAD):
                                i = (b * H + 2 * py + (q >> 1)) * row + (2 * px + (q & 1)) * C
                                v = where_tag(tags, at, q, gradient)
                                a0 = fma(v, spread(x, i + i0), a0)
                                a1 = fma(v, spread(x, i + i1), a1)
                                a2 = fma(v, spread(x, i + i2), a2)
                    store(dw, to, a0)
                    store(dw, to + O, a1)
                    store(dw, to + 2 * O, a2)


@njit(nogil=True, cache=True)
def backward_weight(x: Any, g: Any, tags: Any, starts: Any, dw: Any) -> None:
    """dw_io = Σ g_o · patch, one filter at a time, over the windows alive in it.

    dw: clients × O × k × k·C, one contiguous row per row of a patch, here with the true number of filters.
    """
    _, H, W, C = x.shape
    _, rows, columns, lanes = g.shape
    _, O, k, n = dw.shape  # noqa: E741
    windows = corners(rows, columns, W * C, C)
    places, values = np.empty(len(windows), np.intp), np.empty(len(windows), np.float32)
    dw[:] = 0
    for client in range(len(dw)):
        for b in range(starts[client], starts[client + 1]):
            for o in range(O):
                count = 0
                for p in range(len(windows)):
                    at = (b * len(windows) + p) * lanes + o
                    q, value = np.intp(item(tags, at)), item(g, at)
                    places[count] = b * H * W * C + item(windows, p) + (q >> 1) * W * C + (q & 1) * C
                    values[count] = value
                    count += (q != DEAD) & (value != 0)
                for ky in range(k):
                    _sums(x, ky * W * C, places, values, count, dw, ((client * O + o) * k + ky) * n, n)


@njit(nogil=True, cache=True)
def backward_input(g: Any, tags: Any, w: Any, dx: Any) -> None:
    """dx = Σ g_o · w_o at the patch, a position of a window at a time, over the filters that it won.

    w: O × k × k·C, with the true number of filters.
    """
    B, H, W, C = dx.shape
    _, rows, columns, lanes = g.shape
    O, k, n = w.shape  # noqa: E741
    windows = corners(rows, columns, W * C, C)
    counts = np.empty((len(windows), DEAD + 1), np.intp)  # the filters of each tag, in an image
    places, values = np.empty((*counts.shape, O), np.intp), np.empty((*counts.shape, O), np.float32)
    for b in range(B):
        dx[b] = 0
        counts[:] = 0
        for p in range(len(windows)):
            for o in range(O):
                at = (b * len(windows) + p) * lanes + o
                tag = np.intp(item(tags, at))
                u = counts[p, tag]
                places[p, tag, u], values[p, tag, u] = o * k * n, item(g, at)
                counts[p, tag] = u + 1
        for ky in range(k):  # outermost, since a row of every filter stays in the cache, all of them do not
            for p in range(len(windows)):
                for q in range(DEAD):
                    to = (b * H + (q >> 1) + ky) * W * C + windows[p] + (q & 1) * C
                    _sums(w, ky * n, places[p, q], values[p, q], counts[p, q], dx, to, n)


@njit(inline="always")
def corners(rows: Any, columns: Any, row: Any, C: Any) -> Any:
    """Where the windows begin in an image."""
    found = np.empty(rows * columns, np.intp)
    for p in range(len(found)):
        found[p] = 2 * (p // columns) * row + 2 * (p % columns) * C
    return found


@njit(inline="always")
def _sums(x: Any, shift: Any, places: Any, values: Any, count: Any, y: Any, at: Any, n: Any) -> None:
    """y += Σ value · x at the places, n numbers of each."""
    wide = n - n % WIDE
    for i in range(0, wide, WIDE):
        _sum_wide(x, shift + i, places, values, count, y, at + i)
    for i in range(wide, n, LANES):
        _sum(x, shift + i, places, values, count, y, at + i)


@njit(inline="always")
def _sum(x: Any, shift: Any, places: Any, values: Any, count: Any, y: Any, at: Any) -> None:
    a = load(y, at)
    for u in range(count):
        a = fma(spread(values, u), load(x, item(places, u) + shift), a)
    store(y, at, a)


@njit(inline="always")
def _sum_wide(x: Any, shift: Any, places: Any, values: Any, count: Any, y: Any, at: Any) -> None:
    a0, a1, a2 = load(y, at), load(y, at + 16), load(y, at + 32)
    a3, a4, a5 = load(y, at + 48), load(y, at + 64), load(y, at + 80)
    for u in range(count):
        i = item(places, u) + shift
        v = spread(values, u)
        a0, a1, a2 = fma(v, load(x, i), a0), fma(v, load(x, i + 16), a1), fma(v, load(x, i + 32), a2)
        a3, a4, a5 = fma(v, load(x, i + 48), a3), fma(v, load(x, i + 64), a4), fma(v, load(x, i + 80), a5)
    store(y, at, a0)
    store(y, at + 16, a1)
    store(y, at + 32, a2)
    store(y, at + 48, a3)
    store(y, at + 64, a4)
    store(y, at + 80, a5)
