"""FoolsGold: clients that move alike over time are one attacker under many names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tesseract_fl import kernels
from tesseract_fl.reputation.evidence import cosines
from tesseract_fl.rules.base import State, WeightingRule
from tesseract_fl.types import ClientId, Cohort, ConfigError, Float64s, Floats, Matrix, Updates

ROUNDING = 1e-12  # the cosine of clones may be this far from 1; divided by the largest, that would be full weight


@dataclass(frozen=True, eq=False)
class FoolsGoldState(State):
    """`history`: the sum of all updates that each client ever sent."""

    history: Mapping[ClientId, Floats] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FoolsGold(WeightingRule[FoolsGoldState]):
    """Mean weighted by how little a client's accumulated updates resemble anybody else's.

    cs_il = cosine of the accumulated updates, cs_ii = 0,  v_i = max_l cs_il
    pardon:  cs_il ← cs_il · v_i/v_l  where v_l > v_i
    α_i = 1 − max_l cs_il, divided by the largest, at most 0.99, then `confidence`·(logit(α_i) + 0.5),
    cut to [0, 1];  g = Σ α_i u_i / Σ α_i

    `memory=False` takes this round's updates alone. Where all α are 0, because everybody sent the same, the
    model stays where it is.

    Fung et al., The Limitations of Federated Learning in Sybil Settings, 2020.
    """

    memory: bool = True
    confidence: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.confidence < math.inf:
            raise ConfigError(f"foolsgold: confidence must be a positive finite number, got {self.confidence}")

    @property
    def remembers_clients(self) -> bool:
        return self.memory

    def init(self, d: int) -> FoolsGoldState:
        return FoolsGoldState()

    def statistic(self, updates: Updates, state: FoolsGoldState) -> Float64s:
        return kernels.gram(self._accumulated(updates, state), centre=None)

    def weigh(
        self, statistic: Float64s, cohort: Cohort, state: FoolsGoldState
    ) -> tuple[Float64s, FoolsGoldState, dict[str, Any]]:
        alpha = foolsgold_weights(statistic, self.confidence)
        total = alpha.sum()
        return alpha / total if total else alpha, state, {"alpha": alpha.tolist()}

    def finish(self, state: FoolsGoldState, updates: Updates, update: Matrix) -> FoolsGoldState:
        if not self.memory:
            return state
        sums = kernels.host(self._accumulated(updates, state))
        rows = {client: row.copy() for client, row in zip(updates.ids, sums, strict=True)}  # a view would keep them all
        return replace(state, history={**state.history, **rows})

    def _accumulated(self, updates: Updates, state: FoolsGoldState) -> Matrix:
        if not self.memory:
            return updates.matrix
        rows = kernels.host(updates.matrix).astype(np.float64)  # a sum over rounds may leave the range of float32
        for row, client in zip(rows, updates.ids, strict=True):
            if client in state.history:
                row += state.history[client]
        return rows


def foolsgold_weights(gram: Float64s, confidence: float = 1.0) -> Float64s:
    """α from the Gram matrix of the accumulated updates."""
    n = len(gram)
    if n == 1:
        return np.ones(1)
    similarity = cosines(gram)
    v = similarity.max(axis=1)  # at least 0
    pardoned = v[None, :] > v[:, None]  # l resembles somebody more than i does
    ratio = np.divide(v[:, None], v[None, :], out=np.ones((n, n)), where=pardoned)
    alpha: Float64s = np.clip(1 - (similarity * ratio).max(axis=1), 0, 1)
    if alpha.max() < ROUNDING:
        return np.zeros(n)
    alpha = np.minimum(alpha / alpha.max(), 0.99)
    with np.errstate(divide="ignore"):
        logit = np.log(alpha / (1 - alpha))
    weights: Float64s = np.clip(confidence * (logit + 0.5), 0, 1)
    return weights
