"""The plain mean: no defence at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tesseract_fl.rules.base import State, WeightingRule
from tesseract_fl.types import Cohort, Float64s, Updates


@dataclass(frozen=True, kw_only=True)
class FedSGD(WeightingRule[State]):
    """Mean of the updates, weighted by each client's number of samples.

    g = Σ m_i u_i / Σ m_i, with m_i = 1 where no sample counts are known. One client can move it anywhere.

    >>> two = Updates(matrix=np.array([[1.0], [4.0]]), ids=("a", "b"), round=1, samples=np.array([2.0, 1.0]))
    >>> FedSGD().aggregate(two, FedSGD().init(1)).update.tolist()
    [2.0]

    McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017.
    """

    looks: ClassVar[bool] = False
    by_row: ClassVar[bool] = True

    def init(self, d: int) -> State:
        return State()

    def statistic(self, updates: Updates, state: State) -> Float64s:
        return np.zeros(updates.n, np.float64)

    def weigh(self, statistic: Float64s, cohort: Cohort, state: State) -> tuple[Float64s, State, dict[str, Any]]:
        samples = np.ones(cohort.n) if cohort.samples is None else cohort.samples
        shares = samples / samples.max()  # counts near the largest float would overflow their sum
        return shares / shares.sum(), state, {}
