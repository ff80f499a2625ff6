"""Krum and its kin: whoever has the closest neighbours is believed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tesseract_fl import kernels
from tesseract_fl.reputation.evidence import rank
from tesseract_fl.rules.base import GramRule, HonestMajority, State, resolve_f
from tesseract_fl.types import Cohort, ConfigError, Float64s, Matrix, PreconditionError, Updates


def krum_scores(distances: Float64s, f: int) -> Float64s:
    """For each client the sum of the squared distances to its n − f − 2 nearest others, itself left out."""
    nearest = np.sort(distances, axis=1)[:, 1:]  # the first is its distance to itself, 0
    scores: Float64s = nearest[:, : max(len(distances) - f - 2, 0)].sum(axis=1)
    return scores


@dataclass(frozen=True, kw_only=True)
class Krum(HonestMajority, GramRule):
    """The one update with the smallest sum of squared distances to its n − f − 2 nearest others.

    i* = argmin_i Σ_{l near i} ‖u_i − u_l‖²,  g = u_{i*}

    Guaranteed for n ≥ 2f + 3. Squared distances, itself not among its neighbours: what is called Krum
    elsewhere often differs in one of the two or in the number of neighbours.

    >>> rule = Krum(f=1)
    >>> sent = np.array([[1.0], [1.1], [1.3], [0.9], [50.0]])
    >>> rule.aggregate(Updates(matrix=sent, ids=tuple("abcde"), round=1), rule.init(1)).update.tolist()
    [1.0]

    Blanchard et al., Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent, 2017.
    """

    name = "krum"

    def check(self, n: int) -> None:
        f = resolve_f(self.f, n)
        if n < 3:
            raise PreconditionError(
                f"{self.name} needs at least 3 clients, whatever f is, but n = {n}: ask more clients"
            )
        if n < 2 * f + 3:
            raise PreconditionError(
                f"{self.name} needs n ≥ 2f + 3, but f = {f} and n = {n}: "
                f"with {n} clients f may be at most {(n - 3) // 2}"
            )

    def chosen(self, n: int) -> int:
        """q: of how many updates g is the mean."""
        return 1

    def weigh(self, statistic: Float64s, cohort: Cohort, state: State) -> tuple[Float64s, State, dict[str, Any]]:
        scores = krum_scores(kernels.squared_distances(statistic), resolve_f(self.f, cohort.n))
        q = self.chosen(cohort.n)
        weights = np.zeros(cohort.n)
        weights[rank(scores, cohort)[:q]] = 1.0 / q
        return weights, state, {"krum_score": scores.tolist()}


@dataclass(frozen=True, kw_only=True)
class MultiKrum(Krum):
    """Mean of the q updates that are best by Krum's score; q is n − f if not given.

    >>> rule = MultiKrum(f=1, q=2)
    >>> sent = np.array([[1.0], [1.1], [1.3], [0.9], [50.0]])
    >>> out = rule.aggregate(Updates(matrix=sent, ids=tuple("abcde"), round=1), rule.init(1))
    >>> out.weights.tolist()
    [0.5, 0.5, 0.0, 0.0, 0.0]

    Blanchard et al., Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent, 2017.
    """

    name = "multi_krum"

    q: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.q is not None and self.q < 1:
            raise ConfigError(f"multi_krum: q must be at least 1, got {self.q}")

    def check(self, n: int) -> None:
        super().check(n)
        if self.q is not None and self.q > n:
            raise PreconditionError(f"multi_krum can't choose q = {self.q} of {n} clients; q may be at most {n}")

    def chosen(self, n: int) -> int:
        return n - resolve_f(self.f, n) if self.q is None else self.q


@dataclass(frozen=True, kw_only=True)
class Bulyan(HonestMajority, GramRule):
    """Choose n − 2f updates by repeated Krum, then per coordinate the mean of those closest to their median.

    θ = n − 2f times: the best by Krum's score among those that remain is chosen and taken away.
    Then per coordinate the mean of the θ − 2f chosen values closest to the median of the chosen.

    Guaranteed for n ≥ 4f + 3, computed for n > 4f. No client is chosen twice. The definition leaves the last
    choice only f − 1 neighbours, so that scores tie there, always for f = 1; ties are broken as everywhere.

    >>> rule = Bulyan(f=1)
    >>> sent = np.array([[1.0], [1.1], [1.3], [0.9], [1.2], [1.05], [50.0]])
    >>> out = rule.aggregate(Updates(matrix=sent, ids=tuple("abcdefg"), round=1), rule.init(1))
    >>> sum(out.report["chosen"]), bool(0.9 <= out.update[0] <= 1.3)
    (5, True)

    El Mhamdi et al., The Hidden Vulnerability of Distributed Learning in Byzantium, 2018.
    """

    name = "bulyan"

    def check(self, n: int) -> None:
        f = resolve_f(self.f, n)
        if n <= 4 * f:
            raise PreconditionError(
                f"bulyan needs n > 4f (and is guaranteed for n ≥ 4f + 3), but f = {f} and n = {n}: "
                f"with {n} clients f may be at most {(n - 1) // 4}"
            )

    def weigh(self, statistic: Float64s, cohort: Cohort, state: State) -> tuple[Float64s, State, dict[str, Any]]:
        f = resolve_f(self.f, cohort.n)
        distances = kernels.squared_distances(statistic)
        coins = rank(np.zeros(cohort.n), cohort).argsort()  # how ties are broken, the same in every step
        chosen = kernels.repeated_krum(distances, f, coins, cohort.n - 2 * f)
        return chosen.astype(np.float64), state, {"chosen": chosen.tolist()}

    def combine(self, weights: Float64s, updates: Updates, state: State) -> Matrix:
        chosen = np.flatnonzero(weights)
        return kernels.mean_near_median(updates.matrix, chosen, len(chosen) - 2 * resolve_f(self.f, updates.n))

    def contributions(self, weights: Float64s) -> None:
        return None
