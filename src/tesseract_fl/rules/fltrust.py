"""FLTrust: the server trains on a little clean data of its own and believes what points the same way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tesseract_fl import kernels
from tesseract_fl.rules.base import State, WeightingRule
from tesseract_fl.types import Cohort, Float64s, Updates


@dataclass(frozen=True, kw_only=True)
class FLTrust(WeightingRule[State]):
    """Updates scaled to the norm of the server's own and weighted by the positive part of their cosine with it.

    T_i = max(0, cos(u_i, u_0)),  g = Σ T_i · (‖u_0‖/‖u_i‖) · u_i / Σ T_i

    with u_0 = `Updates.trusted`, which the server computes on a small clean root set. Where nobody is trusted,
    the model stays where it is.

    Cao et al., FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping, 2021.
    """

    @property
    def needs_trusted(self) -> bool:
        return True

    def init(self, d: int) -> State:
        return State()

    def statistic(self, updates: Updates, state: State) -> Float64s:
        assert updates.trusted is not None
        own = np.full(updates.n, kernels.squared_norms(updates.trusted[None])[0])
        return np.stack([kernels.squared_norms(updates.matrix), kernels.dots(updates.matrix, updates.trusted), own])

    def weigh(self, statistic: Float64s, cohort: Cohort, state: State) -> tuple[Float64s, State, dict[str, Any]]:
        squared, along, own = statistic
        scale = np.divide(np.sqrt(own), np.sqrt(squared), out=np.zeros(cohort.n), where=squared > 0)
        length = np.sqrt(squared) * np.sqrt(own)
        trust = np.maximum(np.divide(along, length, out=np.zeros(cohort.n), where=length > 0), 0)
        weights = trust * scale / trust.sum() if trust.any() else np.zeros(cohort.n)
        return weights, state, {"trust": trust.tolist()}
