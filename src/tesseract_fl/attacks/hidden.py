"""Attacks that hide among the honest updates: as far from the mean as still looks like one of them."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from tesseract_fl.attacks.base import ALL_UPDATES, BLIND, Attack, View
from tesseract_fl.kernels import dot, dots, gram, squared_distances
from tesseract_fl.types import ConfigError, Float64s, Matrix

DEVIATIONS = ("unit", "std", "sign", "along")


def deviation(view: View, kind: str) -> Float64s:
    """The direction p in which rows leave the mean: −mean/‖mean‖, −std or −sign(mean), of the known honest updates.

    "along" is mean/‖mean‖: not an attack, but a cover for one.
    """
    if kind == "std":
        return -view.columns.std
    if kind == "sign":
        return -view.direction.astype(np.float64)
    mean = view.columns.mean
    p: Float64s = -mean / max(math.sqrt(dot(mean, mean)), np.finfo(np.float64).tiny)
    return -p if kind == "along" else p


def least_for(kind: str) -> int:
    """How many honest updates must be known for a deviation of this kind."""
    return 2 if kind == "std" else 1


def check_deviation(attack: str, kind: str) -> None:
    if kind not in DEVIATIONS:
        raise ConfigError(f"{attack}: deviation must be one of {', '.join(DEVIATIONS)}, got {kind!r}")


@dataclass(frozen=True, kw_only=True)
class Alie(Attack):
    """A little is enough: mean − z·std, with z so small that more than half of the clients can seem to agree.

    z = Φ⁻¹((n − c − s)/(n − c)), s = ⌊n/2 + 1⌋ − c honest clients whom the attacker wins over; `z` overrides it. Where
    that is not positive, with very few malicious clients, or not defined, with a majority of them, z has to be given.

    Baruch, Baruch, Goldberg: A little is enough: circumventing defenses for distributed learning, 2019.
    """

    requires = BLIND

    z: float | None = None

    def __post_init__(self) -> None:
        if self.z is not None and not 0 < self.z < math.inf:
            raise ConfigError(f"alie: z must be a positive finite number, got {self.z}")

    def check(self, n: int, c: int) -> None:
        super().check(n, c)
        if self.z is None and c > 0:
            self.largest_z(n, c)

    @property
    def least_known(self) -> int:
        return 2

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        z = self.z if self.z is not None else self.largest_z(view.n, view.c)
        return view.rows(view.columns.mean - z * view.columns.std)

    @staticmethod
    def largest_z(n: int, c: int) -> float:
        """
        >>> round(Alie.largest_z(50, 24), 3)  # two of the 26 honest clients are enough
        1.426
        """
        honest, supporters = n - c, n // 2 + 1 - c
        if not 0 < 2 * supporters < honest:
            raise ConfigError(f"alie: its formula has no z above 0 for {c} malicious of {n} clients; give z, as 1.0")
        return NormalDist().inv_cdf((honest - supporters) / honest)


@dataclass(frozen=True, kw_only=True)
class _Farthest(Attack):
    """mean + γ·p with the largest γ that a bound on distances allows, in closed form."""

    requires = BLIND

    deviation: str = "std"

    def __post_init__(self) -> None:
        check_deviation(type(self).__name__, self.deviation)

    @property
    def least_known(self) -> int:
        return 2

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        p = deviation(view, self.deviation)
        strength = self.strength(view, p)
        if not strength:
            return view.honest(f"{type(self).__name__}: the honest updates are all the same")
        return view.rows(view.columns.mean + strength * p)

    def strength(self, view: View, p: Float64s) -> float:
        """γ: ‖mean + γp − u_i‖² = ‖mean − u_i‖² + 2γ⟨p, mean − u_i⟩ + γ²‖p‖² is a quadratic in γ."""
        length = dot(p, p)
        if length == 0:
            return 0.0
        centred = gram(view.known, centre="mean")
        between = squared_distances(centred)
        along: Float64s = dot(p, view.columns.mean) - dots(view.known, p)  # ⟨p, mean − u_i⟩
        return self._largest(between, np.diagonal(centred), along, length)

    @abstractmethod
    def _largest(self, between: Float64s, away: Float64s, along: Float64s, length: float) -> float: ...


def _root(a: float, b: Float64s | float, c: Float64s | float) -> Float64s:
    """The larger γ with aγ² + 2bγ + c = 0."""
    roots: Float64s = (-b + np.sqrt(np.maximum(np.square(b) - a * c, 0))) / a
    return roots


@dataclass(frozen=True, kw_only=True)
class MinMax(_Farthest):
    """No farther from any honest update than the two most distant honest ones are from each other.

    max_i ‖m − u_i‖ ≤ max_{i,l} ‖u_i − u_l‖

    Shejwalkar, Houmansadr: Manipulating the Byzantine, 2021.
    """

    def _largest(self, between: Float64s, away: Float64s, along: Float64s, length: float) -> float:
        return float(_root(length, along, away - between.max()).min())


@dataclass(frozen=True, kw_only=True)
class MinSum(_Farthest):
    """No larger a sum of squared distances to the honest updates than any honest one has.

    Σ_i ‖m − u_i‖² ≤ max_i Σ_l ‖u_i − u_l‖²

    Shejwalkar, Houmansadr: Manipulating the Byzantine, 2021.
    """

    def _largest(self, between: Float64s, away: Float64s, along: Float64s, length: float) -> float:
        n = len(away)
        return float(_root(n * length, along.sum(), away.sum() - between.sum(axis=1).max()))


@dataclass(frozen=True, kw_only=True)
class Mimic(Attack):
    """All copy one and the same honest client in every round: harmless if all are alike, not if they differ.

    `victim` is its place among the honest clients of the round, so always the same one where all take part; of sampled
    clients it may be another one in each round. Which one does most harm depends on who has what data; the original
    attack looks for it in the first rounds.

    Karimireddy, He, Jaggi: Byzantine-robust learning on heterogeneous datasets via bucketing, 2022.
    """

    requires = ALL_UPDATES

    victim: int = 0

    def __post_init__(self) -> None:
        if self.victim < 0:
            raise ConfigError(f"mimic: victim must be the place of an honest client, from 0 on, got {self.victim}")

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        return view.rows(view.benign[self.victim % len(view.benign)])
