"""Centred clipping: nobody pulls the last update further than a fixed radius."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tesseract_fl import kernels
from tesseract_fl.rules.base import State, WeightingRule
from tesseract_fl.rules.geometric_median import distances_to_mixture
from tesseract_fl.types import Cohort, ConfigError, Float64s, Floats, Matrix, Updates


@dataclass(frozen=True, eq=False)
class CentredClippingState(State):
    """`centre`: the last global update; 0 at the start."""

    centre: Floats


@dataclass(frozen=True, kw_only=True)
class CentredClipping(WeightingRule[CentredClippingState]):
    """From the last global update, the mean of the differences clipped to radius τ, `iterations` times.

    v ← v + (1/n) Σ (u_i − v) · min(1, τ/‖u_i − v‖),  starting from the last global update

    `tau` is τ, in the units of an update's norm.

    >>> rule = CentredClipping(tau=1.0)
    >>> sent = Updates(matrix=np.array([[0.5], [99.0]], np.float32), ids=tuple("ab"), round=1)
    >>> rule.aggregate(sent, rule.init(1)).update.tolist()
    [0.75]

    Karimireddy, He, Jaggi: Learning from History for Byzantine Robust Optimization, 2021.
    """

    tau: float = 1.0
    iterations: int = 1

    def __post_init__(self) -> None:
        if not self.tau > 0 or self.iterations < 1:
            raise ConfigError(
                f"centred_clipping: tau must be above 0 and iterations at least 1, got {self.tau}, {self.iterations}"
            )

    def init(self, d: int) -> CentredClippingState:
        return CentredClippingState(centre=np.zeros(d, np.float32))

    def statistic(self, updates: Updates, state: CentredClippingState) -> Float64s:
        """The Gram matrix of the updates and, as the last row, the centre: all that the iteration needs."""
        return kernels.gram(updates.matrix, extra=kernels.like(state.centre, updates.matrix))

    def weigh(
        self, statistic: Float64s, cohort: Cohort, state: CentredClippingState
    ) -> tuple[Float64s, CentredClippingState, dict[str, Any]]:
        n = cohort.n
        weights = np.zeros(n + 1)
        weights[n] = 1.0  # the centre itself
        for _ in range(self.iterations):
            distances = np.sqrt(distances_to_mixture(statistic, weights)[:n])
            clip = self.tau / np.maximum(distances, self.tau)
            weights = weights * (1 - clip.sum() / n)
            weights[:n] += clip / n
        return weights, state, {"clipped": (clip < 1).tolist()}

    def combine(self, weights: Float64s, updates: Updates, state: CentredClippingState) -> Matrix:
        centre = kernels.like(state.centre, updates.matrix)
        return kernels.weighted_sum(weights[:-1], updates.matrix) + float(weights[-1]) * centre

    def finish(self, state: CentredClippingState, updates: Updates, update: Matrix) -> CentredClippingState:
        return replace(state, centre=kernels.host(update))

    def contributions(self, weights: Float64s) -> Float64s:
        return weights[:-1]
