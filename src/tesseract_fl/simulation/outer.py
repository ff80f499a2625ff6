"""The weight gradient of a wide linear layer: few samples, millions of results, each written once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from tesseract_fl.simulation.lanes import LANES, fma, load, splat, spread, store


@njit(nogil=True, cache=True)
def outer_sums(g: Any, x: Any, out: Any) -> None:
    """out = g·x, with g outputs × samples and x samples × inputs, four outputs and sixteen inputs at a time."""
    outputs, samples = g.shape
    inputs = x.shape[1]
    zero = splat(np.float32(0))
    whole, full = outputs - outputs % 4, inputs - inputs % LANES
    for o in range(0, whole, 4):
        for i in range(0, full, LANES):
            s0, s1, s2, s3 = zero, zero, zero, zero
            for b in range(samples):
                v = load(x, b * inputs + i)
                s0 = fma(spread(g, o * samples + b), v, s0)
                s1 = fma(spread(g, (o + 1) * samples + b), v, s1)
                s2 = fma(spread(g, (o + 2) * samples + b), v, s2)
                s3 = fma(spread(g, (o + 3) * samples + b), v, s3)
            store(out, o * inputs + i, s0)
            store(out, (o + 1) * inputs + i, s1)
            store(out, (o + 2) * inputs + i, s2)
            store(out, (o + 3) * inputs + i, s3)
    for o in range(outputs):
        for i in range(full if o < whole else 0, inputs):
            total = np.float32(0)
            for b in range(samples):
                total += g[o, b] * x[b, i]
            out[o, i] = total
