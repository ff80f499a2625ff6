"""The geometric median, by Weiszfeld's iteration on the Gram matrix alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tesseract_fl.rules.base import GramRule, State
from tesseract_fl.types import Cohort, ConfigError, Float64s


@dataclass(frozen=True, kw_only=True)
class GeometricMedian(GramRule):
    """The point with the smallest sum of distances to all updates (RFA, smoothed Weiszfeld).

    z ← Σ β_i u_i / Σ β_i,  β_i = 1 / max(ν, ‖u_i − z‖)

    from the mean, until no weight moves by more than `tolerance` of itself or `iterations` are done. ν = `smoothing`,
    in the units of an update: updates no longer than that are averaged.

    >>> from tesseract_fl.types import Updates
    >>> rule = GeometricMedian()
    >>> sent = Updates(matrix=np.array([[1.0, 0], [2.0, 0], [3.0, 0], [2.0, 99.0]]), ids=tuple("abcd"), round=1)
    >>> rule.aggregate(sent, rule.init(2)).update.round(2).tolist()
    [2.0, 0.0]

    Pillutla, Kakade, Harchaoui: Robust Aggregation for Federated Learning, 2022.
    """

    smoothing: float = 1e-6
    iterations: int = 1000
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        if not self.smoothing > 0 or not self.tolerance >= 0 or self.iterations < 1:
            raise ConfigError(
                "geometric_median: smoothing must be above 0, tolerance at least 0, iterations at least 1; got "
                f"{self.smoothing}, {self.tolerance}, {self.iterations}"
            )

    def weigh(self, statistic: Float64s, cohort: Cohort, state: State) -> tuple[Float64s, State, dict[str, Any]]:
        weights = np.full(cohort.n, 1 / cohort.n)
        steps = 0
        for _ in range(self.iterations):
            steps += 1
            distances = np.sqrt(distances_to_mixture(statistic, weights))
            beta = 1 / np.maximum(self.smoothing, distances)
            moved = beta / beta.sum()
            change = (np.abs(moved - weights) / moved).max()
            weights = moved
            if change <= self.tolerance:
                break
        return weights, state, {"iterations": steps}


def distances_to_mixture(gram: Float64s, weights: Float64s) -> Float64s:
    """‖u_i − Σ w_l u_l‖² for every i, from the Gram matrix."""
    along = gram @ weights
    squared: Float64s = np.maximum(np.diagonal(gram) - 2 * along + weights @ along, 0)
    return squared
