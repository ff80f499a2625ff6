"""FABA: take away what is farthest from the mean, again and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tesseract_fl.reputation.evidence import rank
from tesseract_fl.rules.base import GramRule, HonestMajority, State, resolve_f
from tesseract_fl.types import Cohort, Float64s


@dataclass(frozen=True, kw_only=True)
class Faba(HonestMajority, GramRule):
    """f times the update farthest from the mean of those that remain is dropped; then their mean.

    >>> from tesseract_fl.types import Updates
    >>> rule = Faba(f=1)
    >>> sent = Updates(matrix=np.array([[1.0], [2.0], [3.0], [99.0]]), ids=tuple("abcd"), round=1)
    >>> rule.aggregate(sent, rule.init(1)).update.tolist()
    [2.0]

    Xia et al., FABA: An Algorithm for Fast Aggregation against Byzantine Attacks in Distributed Neural
    Networks, 2019.
    """

    name = "faba"

    def weigh(self, statistic: Float64s, cohort: Cohort, state: State) -> tuple[Float64s, State, dict[str, Any]]:
        remains = np.ones(cohort.n, np.bool_)
        for _ in range(resolve_f(self.f, cohort.n)):
            mean = remains / remains.sum()
            # ‖u_i − ū‖² up to what is the same for every i
            distance = np.diagonal(statistic) - 2 * statistic @ mean
            distance[~remains] = -np.inf
            remains[rank(distance, cohort)[-1]] = False
        return remains / remains.sum(), state, {"kept": remains.tolist()}
