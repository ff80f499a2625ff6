"""What a model keeps besides its parameters: batch-norm statistics, which no rule scores."""

from __future__ import annotations

import numpy as np

from tesseract_fl.types import Float64s


def combined(rows: Float64s, weights: Float64s | None, before: Float64s) -> Float64s:
    """Σ w_i b_i / Σ w_i over the admitted clients, n × b, with the weights that their updates have.

    A rule without weights counts them all alike. Statistics that are not finite count nothing, and where nobody
    counts they stay as they were.
    """
    finite = np.isfinite(rows).all(axis=1)
    w = np.ones(len(rows)) if weights is None else weights
    counted = finite & (w > 0)
    if not counted.any():
        return before
    mean: Float64s = (w[counted, None] * rows[counted]).sum(axis=0) / w[counted].sum()
    return mean
