"""What a model keeps besides its parameters: batch-norm statistics, which no rule scores."""

from __future__ import annotations

import numpy as np

from tesseract_fl.types import Float64s

REACH = 5 * 1.4826  # median absolute deviations: five deviations where values are normal


def bounded(rows: Float64s) -> Float64s:
    """One array's statistics, a row for each client: a weight, however small, bounds nothing, so this does.

    No value is farther from its column's median than REACH median deviations, and none is negative where most clients
    have no negative one in the whole array: a variance stays one.

    >>> bounded(np.array([[1.0], [2.0], [3.0], [2.5], [-3e38]])).ravel().tolist()
    [1.0, 2.0, 3.0, 2.5, 0.0]
    """
    with np.errstate(over="ignore"):  # the largest numbers may be farther apart than there are numbers
        middle = np.median(rows, axis=0)
        reach = REACH * np.median(np.abs(rows - middle), axis=0)
    limited: Float64s = np.clip(rows, middle - reach, middle + reach)
    return np.maximum(limited, 0) if (rows >= 0).all(axis=1).mean() > 0.5 else limited


def combined(rows: Float64s, shares: Float64s | None, before: Float64s) -> Float64s:
    """Σ w_i b_i / Σ w_i over the admitted clients, n × b, with the shares that they have in the update.

    Where a rule has no weights, or gives nobody any, the median of each. Rows that are not finite count nothing,
    and where nobody counts statistics stay as they were.
    """
    w = shares if shares is not None and shares.any() else None
    counted = np.isfinite(rows).all(axis=1) & (True if w is None else w > 0)
    if not counted.any():
        return before
    if w is None:
        return np.asarray(np.median(rows[counted], axis=0), np.float64)
    mean: Float64s = (w[counted, None] * rows[counted]).sum(axis=0) / w[counted].sum()
    return mean
