"""A rule of your own in 30 lines: each client is weighted by how many coordinates it moves as the majority does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tesseract_fl import kernels
from tesseract_fl.rules.base import State, WeightingRule
from tesseract_fl.types import Cohort, Float64s, Updates


@dataclass(frozen=True, kw_only=True)
class SignMajority(WeightingRule[State]):
    """Mean weighted by the share of coordinates whose sign is the majority's, to the power of `sharpness`."""

    sharpness: float = 20.0

    def init(self, d: int) -> State:
        return State()

    def statistic(self, updates: Updates, state: State) -> Float64s:
        signs = np.sign(kernels.host(updates.matrix))  # n × columns of this block
        return np.asarray((signs == np.sign(signs.sum(axis=0))).sum(axis=1), np.float64)  # additive over blocks

    def weigh(self, statistic: Float64s, cohort: Cohort, state: State) -> tuple[Float64s, State, dict[str, Any]]:
        weights = (statistic / statistic.max()) ** self.sharpness
        return weights / weights.sum(), state, {"agreeing_coordinates": statistic.tolist()}
