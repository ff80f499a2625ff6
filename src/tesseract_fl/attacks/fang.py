"""The directed deviation attacks: push every coordinate against where an honest round would go.

Fang, Cao, Jia, Gong: Local Model Poisoning Attacks to Byzantine-Robust Federated Learning, 2020.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tesseract_fl.attacks.base import ALL_UPDATES, Attack, View
from tesseract_fl.kernels import dots, gram, squared_distances, squared_norms
from tesseract_fl.types import ConfigError, Float64s, Matrix


@dataclass(frozen=True, kw_only=True)
class FullTrim(Attack):
    """Every coordinate just outside the benign range, on the wrong side: aimed at mean, trimmed mean, median.

    s_j > 0:  uniform in [w_min/b, w_min] if w_min > 0, else in [b·w_min, w_min]
    s_j < 0:  uniform in [w_max, b·w_max] if w_max > 0, else in [w_max, w_max/b]

    with w_min, w_max over the benign updates of coordinate j. Every malicious client samples its own.
    Where s_j = 0 there is nothing to go against, and 0 is sent.
    """

    requires = ALL_UPDATES

    b: float = 2.0

    def __post_init__(self) -> None:
        if not 1 < self.b < math.inf:
            raise ConfigError(f"full_trim: b must be a finite number above 1, got {self.b}")

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        s = view.direction
        near = np.where(s > 0, view.columns.low, view.columns.high)
        outwards = s * near < 0  # away from 0, so that b makes it larger
        far = np.where(outwards, near * self.b, near / self.b)
        near[s == 0] = far[s == 0] = 0
        u = rng.random((view.c, view.d), dtype=np.float32)  # c × d
        u *= far - near
        u += near
        return u.astype(view.dtype, copy=False)


@dataclass(frozen=True, kw_only=True)
class FullKrum(Attack):
    """Every malicious client sends −λ·s, with the largest λ at which Krum would choose one of them.

    λ starts at sqrt(min_i Σ_{l near i} ‖u_i − u_l‖² / ((n−2c−1)·d)) + max_i ‖u_i‖/√d and is halved until
    the attacker's own Krum, with the c crafted updates in place, picks a malicious one. Below
    `smallest` no λ works, and the attacker behaves honestly. Uniform noise in ±`noise`/d tells the
    malicious clients apart, as far as λ in single precision has room for it: in large models it may not.
    """

    requires = ALL_UPDATES

    smallest: float = 1e-5
    noise: float = 1e-4

    def __post_init__(self) -> None:
        if not (0 < self.smallest < math.inf and 0 <= self.noise < math.inf):
            raise ConfigError(
                "full_krum: smallest must be positive and finite, noise finite and not negative, got "
                f"{self.smallest} and {self.noise}"
            )

    def check(self, n: int, c: int) -> None:
        super().check(n, c)
        if n - 2 * c - 1 < 1:
            raise ConfigError(
                f"full_krum needs n ≥ 2c + 2, got n = {n} and c = {c}: "
                f"with {n} clients at most {(n - 2) // 2} may be malicious"
            )

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        strength = self.strength(view)
        if strength is None:
            return view.honest(f"full_krum: Krum would choose no λ of {self.smallest} or more")
        u = self.noise_of(view, rng)
        u -= u.dtype.type(strength) * view.direction
        return u

    def noise_of(self, view: View, rng: np.random.Generator) -> Matrix:
        """Uniform in ±`noise`/d, c × d."""
        u = rng.random((view.c, view.d), dtype=np.float32)
        u -= 0.5
        u *= 2 * self.noise / view.d
        return u.astype(view.dtype, copy=False)

    def strength(self, view: View) -> float | None:
        """λ, or None where none works."""
        benign, s = view.known, view.direction
        n, c, d = len(benign) + view.c, view.c, view.d
        self.check(n, c)  # some of the honest clients' updates may not be finite
        norms = squared_norms(benign)
        between = squared_distances(gram(benign, centre="mean"))  # benign × benign
        along = dots(benign, s)
        size = int(np.count_nonzero(s))

        nearest = np.sort(between, axis=1)[:, 1 : n - c - 1]  # without itself, n−c−2 of them
        strength = math.sqrt(nearest.sum(axis=1).min() / ((n - 2 * c - 1) * d)) + math.sqrt(norms.max() / d)
        while strength >= self.smallest:
            # ‖u_i + λs‖² in closed form: nothing of size d is touched again
            away: Float64s = norms + 2 * strength * along + strength**2 * size
            if _krum_picks_crafted(between, away, n, c):
                return strength
            strength /= 2
        return None


def _krum_picks_crafted(between: Float64s, away: Float64s, n: int, c: int) -> bool:
    """Whether Krum with f = c prefers one of c identical crafted updates, `away` from the benign ones."""
    crafted = np.sort(away)[: n - 2 * c - 1].sum()  # its c−1 twins are at distance 0
    rows = np.concatenate([between, np.repeat(away[:, None], c, axis=1)], axis=1)
    benign = np.sort(rows, axis=1)[:, 1 : n - c - 1].sum(axis=1)  # without itself, n−c−2 nearest
    return bool(crafted < benign.min())
