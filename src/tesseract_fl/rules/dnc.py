"""Divide and conquer: whoever sticks out along the direction of largest variance is dropped."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np

from tesseract_fl import kernels
from tesseract_fl.randomness import generator
from tesseract_fl.reputation.evidence import rank
from tesseract_fl.rules.base import HonestMajority, State, WeightingRule, resolve_f, share
from tesseract_fl.types import Cohort, ConfigError, Float64s, PreconditionError, Updates


@dataclass(frozen=True, eq=False)
class DnCState(State):
    """`parameters`: d, which a block of columns can't tell by itself. `seed`: what coordinates are drawn from."""

    parameters: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class DnC(HonestMajority, WeightingRule[DnCState]):
    """Mean of those who never stick out along the top principal direction of random coordinates.

    `iterations` times, on `coordinates` randomly drawn coordinates: v the top right singular vector of the centred
    updates, s_i = ⟨u_i − ū, v⟩²; the ⌈`drop`·f⌉ highest s_i are out. g is the mean of those who were never out.
    Whoever foresees the coordinates passes, so without a `seed` the state draws one by chance.

    Shejwalkar, Houmansadr: Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for
    Federated Learning, 2021.
    """

    name = "dnc"

    iterations: int = 1
    coordinates: int = 10_000
    drop: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.iterations < 1 or self.coordinates < 1 or not 0 < self.drop < math.inf:
            raise ConfigError(
                "dnc: iterations and coordinates must be at least 1 and drop above 0 and finite, got "
                f"{self.iterations}, {self.coordinates}, {self.drop}"
            )

    def check(self, n: int) -> None:
        super().check(n)
        if self.iterations * self._dropped(n) >= n:
            raise PreconditionError(
                f"dnc could drop everybody: {self.iterations} iterations × {self._dropped(n)} clients of {n}; "
                "lower iterations, drop or f"
            )

    def _dropped(self, n: int) -> int:
        return share(self.drop, resolve_f(self.f, n))

    def init(self, d: int) -> DnCState:
        return DnCState(parameters=d, seed=secrets.randbits(63) if self.seed is None else self.seed)

    def statistic(self, updates: Updates, state: DnCState) -> Float64s:
        """For each iteration the centred Gram matrix of its coordinates, as far as they are in this block."""
        grams = []
        for iteration in range(self.iterations):
            rng = generator(state.seed, f"dnc {iteration}", updates.round)
            drawn = rng.choice(state.parameters, min(self.coordinates, state.parameters), replace=False)
            inside = drawn[(drawn >= updates.offset) & (drawn < updates.offset + updates.d)] - updates.offset
            grams.append(kernels.gram(updates.matrix[:, np.sort(inside)]))
        return np.stack(grams)

    def weigh(self, statistic: Float64s, cohort: Cohort, state: DnCState) -> tuple[Float64s, DnCState, dict[str, Any]]:
        kept = np.ones(cohort.n, np.bool_)
        dropped = self._dropped(cohort.n)
        for gram in statistic:
            # the top eigenvector of the Gram matrix about the mean holds the projections on v, up to scale; times the
            # matrix, those of equal rows are equal in every digit
            about_mean = gram - gram.mean(axis=0) - gram.mean(axis=1)[:, None] + gram.mean()
            projections = (about_mean * np.linalg.eigh(about_mean).eigenvectors[:, -1]).sum(axis=1)
            kept[rank(projections**2, cohort)[cohort.n - dropped :]] = False
        return kept / kept.sum(), state, {"kept": kept.tolist()}
