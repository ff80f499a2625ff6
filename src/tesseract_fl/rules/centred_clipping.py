"""Centred clipping: nobody pulls the last update further than a fixed radius."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from tesseract_fl import kernels
from tesseract_fl.rules.base import Rule
from tesseract_fl.rules.plan import Plan, State, Verdict
from tesseract_fl.types import Cohort, ConfigError, Float64s, Floats, Matrix, PreconditionError, Updates


@dataclass(frozen=True, eq=False)
class CentredClippingState(State):
    """`centre`: the last global update; 0 at the start."""

    centre: Floats


@dataclass(frozen=True, kw_only=True)
class CentredClipping(Rule[CentredClippingState]):
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

    def plan(self, cohort: Cohort, state: CentredClippingState) -> Plan[CentredClippingState]:
        n = cohort.n
        weights = np.zeros(n + 1)
        weights[n] = 1.0  # the centre itself
        for _ in range(self.iterations):
            distances = np.sqrt((yield partial(self._squared_distances, weights)))
            if not np.isfinite(distances).all():
                raise PreconditionError(kernels.NOT_FINITE)
            clip = self.tau / np.maximum(distances, self.tau)
            weights = weights * (1 - clip.sum() / n)
            weights[:n] += clip / n

        def finish(updates: Updates, state: CentredClippingState) -> tuple[Matrix, CentredClippingState]:
            update = self._mixture(weights, updates, state)
            return update, CentredClippingState(centre=kernels.host(update).copy())

        return Verdict(finish, weights[:n], {"clipped": (clip < 1).tolist(), "share": [1 / n] * n})

    def _squared_distances(self, weights: Float64s, updates: Updates, state: CentredClippingState) -> Float64s:
        return kernels.squared_distances_from(self._mixture(weights, updates, state), updates.matrix)

    def _mixture(self, weights: Float64s, updates: Updates, state: CentredClippingState) -> Matrix:
        """v, as a mixture of the updates and the last centre: n + 1 numbers, however many columns there are."""
        centre = kernels.like(state.centre, updates.matrix)
        return kernels.weighted_sum(weights[:-1], updates.matrix) + float(weights[-1]) * centre
