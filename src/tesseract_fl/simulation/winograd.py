"""Winograd's F(2 × 2, 3 × 3): the four positions of a pooling window from one 4 × 4 patch, 16 products instead of 36.

With g a filter and d the patch, y = Aᵀ [(G g Gᵀ) ⊙ (Bᵀ d B)] A for each channel, and A comes after the sum over them.
An infinity in a patch becomes NaN, since transforms subtract.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from tesseract_fl.simulation.convolution import corners, pool
from tesseract_fl.simulation.lanes import LANES, add, fma, item, load, splat, spread, store, subtract

POINTS = 16
GROUP = 5  # patches whose sums are in registers together, ten of AVX2
CENTRE = 5  # (1, 1): the one product that is added to all four positions, so the bias starts there
G = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]], dtype=torch.float64)


def transformed(w: Tensor) -> Tensor:
    """G g Gᵀ of filters × channels × 3 × 3, as filters × 4 × 4 × channels."""
    return torch.einsum("ik,ockl,jl->oijc", G, w.double(), G).float()


@njit(nogil=True, cache=True)
def forward(x: Any, u: Any, bias: Any, out: Any, tags: Any) -> None:
    """out = pool(relu(w ∗ x + bias)), five windows and sixteen filters at a time.

    u: blocks × K × 16, the K inputs of a filter being 16 points × channels.
    """
    B, H, W, C = x.shape
    _, rows, columns, O = out.shape  # noqa: E741
    windows = corners(rows, columns, W * C, C)
    v = np.empty((POINTS, GROUP, C), np.float32)
    m = np.empty((POINTS, GROUP, LANES), np.float32)
    for b in range(B):
        for first in range(0, len(windows), GROUP):
            group = min(GROUP, len(windows) - first)
            for p in range(GROUP):  # a group that is not full ends with its last window over and over
                _transform(x, b * H * W * C + item(windows, first + min(p, group - 1)), W * C, v, p)
            for o in range(0, len(u) * LANES, LANES):
                _multiply(u, bias, o, v, m)
                for p in range(group):
                    _untransform(m, p, out, tags, (b * len(windows) + first + p) * O + o)


@njit(inline="always")
def _transform(x: Any, corner: Any, row: Any, v: Any, p: Any) -> None:
    """v_p = Bᵀ d B, a row of it at a time: more would not stay in registers."""
    C = v.shape[2]
    plus, minus = splat(np.float32(1)), splat(np.float32(-1))
    for c in range(0, C, LANES):
        i, to = corner + c, p * C + c
        _combine(x, i, i + 2 * row, minus, v, to)
        _combine(x, i + row, i + 2 * row, plus, v, to + 4 * GROUP * C)
        _combine(x, i + 2 * row, i + row, minus, v, to + 8 * GROUP * C)
        _combine(x, i + row, i + 3 * row, minus, v, to + 12 * GROUP * C)


@njit(inline="always")
def _combine(x: Any, i: Any, j: Any, sign: Any, v: Any, to: Any) -> None:
    """The row d_i ± d_j of Bᵀ d, times B."""
    C = v.shape[2]
    d0 = fma(sign, load(x, j), load(x, i))
    d1 = fma(sign, load(x, j + C), load(x, i + C))
    d2 = fma(sign, load(x, j + 2 * C), load(x, i + 2 * C))
    d3 = fma(sign, load(x, j + 3 * C), load(x, i + 3 * C))
    store(v, to, subtract(d0, d2))
    store(v, to + GROUP * C, add(d1, d2))
    store(v, to + 2 * GROUP * C, subtract(d2, d1))
    store(v, to + 3 * GROUP * C, subtract(d1, d3))


@njit(inline="always")
def _multiply(u: Any, bias: Any, o: Any, v: Any, m: Any) -> None:
    """m = Σ u · v over the channels, at each of the points."""
    channels, C = u.shape[1] // POINTS, v.shape[2]
    for point in range(POINTS):
        i, j = (o * POINTS + point * LANES) * channels, point * GROUP * C
        y0 = load(bias, o) if point == CENTRE else splat(np.float32(0))
        y1, y2, y3, y4 = y0, y0, y0, y0
        for c in range(channels):
            w = load(u, i + c * LANES)
            y0 = fma(w, spread(v, j + c), y0)
            y1 = fma(w, spread(v, j + C + c), y1)
            y2 = fma(w, spread(v, j + 2 * C + c), y2)
            y3 = fma(w, spread(v, j + 3 * C + c), y3)
            y4 = fma(w, spread(v, j + 4 * C + c), y4)
        to = point * GROUP * LANES
        store(m, to, y0)
        store(m, to + LANES, y1)
        store(m, to + 2 * LANES, y2)
        store(m, to + 3 * LANES, y3)
        store(m, to + 4 * LANES, y4)


@njit(inline="always")
def _untransform(m: Any, p: Any, out: Any, tags: Any, at: Any) -> None:
    """Aᵀ m_p A, pooled."""
    a0, b0 = _column(m, 0, p)
    a1, b1 = _column(m, 1, p)
    a2, b2 = _column(m, 2, p)
    a3, b3 = _column(m, 3, p)
    y0, y1 = add(add(a0, a1), a2), subtract(subtract(a1, a2), a3)
    y2, y3 = add(add(b0, b1), b2), subtract(subtract(b1, b2), b3)
    pool(y0, y1, y2, y3, out, tags, at)


@njit(inline="always")
def _column(m: Any, j: Any, p: Any) -> Any:
    """Aᵀ m_p, column j."""
    i, row = (j * GROUP + p) * LANES, 4 * GROUP * LANES
    m0, m1, m2, m3 = load(m, i), load(m, i + row), load(m, i + 2 * row), load(m, i + 3 * row)
    return add(add(m0, m1), m2), subtract(subtract(m1, m2), m3)
