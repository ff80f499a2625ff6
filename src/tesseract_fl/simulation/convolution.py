"""Convolution, ReLU and 2×2 max-pooling in one pass over the images, and back again.

Images are B × H × W × C, channels padded to whole lanes (those of the first layer are as they come). Forwards only
the pooled values are written, and a tag: which of the four positions of a window won, DEAD where ReLU gave 0.
Backwards only that position has a gradient, a quarter of the work of a dense convolution or less. Each client has a
gradient of its own: that of its images, those from starts[i] to starts[i + 1].

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
    zero = splat(np.float32(0))
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
                    top = larger(larger(y0, y1), larger(y2, y3))
                    at = ((b * rows + py) * columns + px) * O + o
                    store_tags(tags, at, top, y0, y1, y2)
                    store(out, at, larger(zero, top))


@njit(nogil=True, cache=True)
def forward_rest(x: Any, w: Any, bias: Any, first: Any, out: Any, tags: Any) -> None:
    """The same for the few filters from `first` on that do not fill the lanes, with lanes over the inputs instead.

    w: O × k × k·C, with the true number of filters.
    """
    B, H, W, C = x.shape
    _, rows, columns, O = out.shape  # noqa: E741
    row = W * C
    for b in range(B):
        for py in range(rows):
            for px in range(columns):
                corner = (b * H + 2 * py) * row + 2 * px * C
                for o in range(first, len(w)):
                    at = ((b * rows + py) * columns + px) * O + o
                    top, tag = _winner(x, corner, row, C, w, o)
                    top += bias[o]
                    out.ravel()[at] = np.float32(0) if top <= 0 else top
                    tags.ravel()[at] = DEAD if top <= 0 else tag


@njit(inline="always")
def _winner(x: Any, corner: Any, row: Any, C: Any, w: Any, o: Any) -> Any:
    """The largest of the four products of a filter with the patches of a window, and which it is."""
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
    top, tag = total(y0), 0
    for q, y in ((1, total(y1)), (2, total(y2)), (3, total(y3))):
        if y > top or y != y:  # NaN wins, as it does in torch
            top, tag = y, q
    return top, tag


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
def backward(x: Any, g: Any, tags: Any, starts: Any, w: Any, dw: Any, dx: Any) -> None:
    """dw_io = Σ g_o · patch and dx = Σ g_o · w_o at the patch: one filter at a time, over the windows alive in it.

    w: O × k × k·C, one contiguous row per row of a patch, here with the true number of filters; dw: clients × such.
    """
    _, H, W, C = x.shape
    row = W * C
    O, k, n = w.shape  # noqa: E741
    corners = np.empty(g.shape[1] * g.shape[2], np.intp)
    values = np.empty(g.shape[1] * g.shape[2], np.float32)
    dw[:] = 0
    dx[:] = 0
    for client in range(len(dw)):
        for b in range(starts[client], starts[client + 1]):
            for o in range(O):
                alive = _alive(g, tags, b, o, H, row, C, corners, values)
                for ky in range(k):
                    at = (o * k + ky) * n
                    to = client * O * k * n + at
                    wide = n - n % WIDE
                    for i in range(0, wide, WIDE):
                        _gather_wide(x, ky * row + i, corners, values, alive, dw, to + i)
                        _scatter_wide(dx, ky * row + i, corners, values, alive, w, at + i)
                    for i in range(wide, n, LANES):
                        _gather(x, ky * row + i, corners, values, alive, dw, to + i)
                        _scatter(dx, ky * row + i, corners, values, alive, w, at + i)


@njit(inline="always")
def _alive(g: Any, tags: Any, b: Any, o: Any, H: Any, row: Any, C: Any, corners: Any, values: Any) -> Any:
    """Where the patches with a gradient for filter o begin in image b, and those gradients; how many there are."""
    _, rows, columns, O = g.shape  # noqa: E741
    count = 0
    for px in range(columns):
        for py in range(rows):  # neighbours are added to different rows of the image, so none waits for the last
            at = ((b * rows + py) * columns + px) * O + o
            q = np.intp(item(tags, at))
            value = item(g, at)
            corners[count] = (b * H + 2 * py + (q >> 1)) * row + (2 * px + (q & 1)) * C
            values[count] = value
            count += (q != DEAD) & (value != 0)
    return count


@njit(inline="always")
def _gather(x: Any, shift: Any, corners: Any, values: Any, count: Any, y: Any, at: Any) -> None:
    """y += Σ value · x at the corners."""
    a = load(y, at)
    for u in range(count):
        a = fma(spread(values, u), load(x, item(corners, u) + shift), a)
    store(y, at, a)


@njit(inline="always")
def _scatter(x: Any, shift: Any, corners: Any, values: Any, count: Any, y: Any, at: Any) -> None:
    """x at the corners += value · y."""
    a = load(y, at)
    for u in range(count):
        i = item(corners, u) + shift
        store(x, i, fma(spread(values, u), a, load(x, i)))


@njit(inline="always")
def _gather_wide(x: Any, shift: Any, corners: Any, values: Any, count: Any, y: Any, at: Any) -> None:
    a0, a1, a2 = load(y, at), load(y, at + 16), load(y, at + 32)
    a3, a4, a5 = load(y, at + 48), load(y, at + 64), load(y, at + 80)
    for u in range(count):
        i = item(corners, u) + shift
        v = spread(values, u)
        a0, a1, a2 = fma(v, load(x, i), a0), fma(v, load(x, i + 16), a1), fma(v, load(x, i + 32), a2)
        a3, a4, a5 = fma(v, load(x, i + 48), a3), fma(v, load(x, i + 64), a4), fma(v, load(x, i + 80), a5)
    store(y, at, a0)
    store(y, at + 16, a1)
    store(y, at + 32, a2)
    store(y, at + 48, a3)
    store(y, at + 64, a4)
    store(y, at + 80, a5)


@njit(inline="always")
def _scatter_wide(x: Any, shift: Any, corners: Any, values: Any, count: Any, y: Any, at: Any) -> None:
    a0, a1, a2 = load(y, at), load(y, at + 16), load(y, at + 32)
    a3, a4, a5 = load(y, at + 48), load(y, at + 64), load(y, at + 80)
    for u in range(count):
        i = item(corners, u) + shift
        v = spread(values, u)
        store(x, i, fma(v, a0, load(x, i)))
        store(x, i + 16, fma(v, a1, load(x, i + 16)))
        store(x, i + 32, fma(v, a2, load(x, i + 32)))
        store(x, i + 48, fma(v, a3, load(x, i + 48)))
        store(x, i + 64, fma(v, a4, load(x, i + 64)))
        store(x, i + 80, fma(v, a5, load(x, i + 80)))
