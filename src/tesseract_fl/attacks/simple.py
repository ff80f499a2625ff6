"""Attacks of one line: noise, reversal, garbage."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tesseract_fl.attacks.base import ALL_UPDATES, BLIND, Attack, View
from tesseract_fl.types import ConfigError, Matrix


def _check_positive(attack: str, name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ConfigError(f"{attack}: {name} must be a positive finite number, got {value}")


@dataclass(frozen=True, kw_only=True)
class Gaussian(Attack):
    """Each coordinate from the normal distribution N(mean_j, scale²·std_j²) of the known honest updates.

    With scale 1, as in the paper, its rows are spread like honest ones and do next to no harm.
    """

    requires = BLIND

    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_positive("gaussian", "scale", self.scale)

    @property
    def least_known(self) -> int:
        return 2

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        u = rng.standard_normal((view.c, view.d), dtype=np.float32)  # c × d
        u *= self.scale * view.columns.std
        u += view.columns.mean
        return u.astype(view.dtype, copy=False)


@dataclass(frozen=True, kw_only=True)
class SignFlip(Attack):
    """Each malicious client sends its own honest update reversed, −scale·u_i."""

    requires = BLIND

    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_positive("sign_flip", "scale", self.scale)

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        return view.own * view.dtype.type(-self.scale)


@dataclass(frozen=True, kw_only=True)
class InnerProduct(Attack):
    """−ε times the mean of the known honest updates.

    Xie, Koyejo, Gupta: Fall of empires: breaking Byzantine-tolerant SGD by inner product manipulation, 2019.
    """

    requires = BLIND

    epsilon: float = 3.0

    def __post_init__(self) -> None:
        _check_positive("ipm", "epsilon", self.epsilon)

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        return view.rows(-self.epsilon * view.columns.mean)


@dataclass(frozen=True, kw_only=True)
class NonFinite(Attack):
    """One NaN or infinity in an otherwise honest update: enough to end a federation that does not look."""

    requires = BLIND

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        rows = view.own.copy()
        poison = np.resize(np.array([np.nan, np.inf, -np.inf], rows.dtype), view.c)
        rows[np.arange(view.c), rng.integers(view.d, size=view.c)] = poison
        return rows


@dataclass(frozen=True, kw_only=True)
class Oversized(Attack):
    """The honest mean reversed and made `scale` times as large: one such client decides a plain mean."""

    requires = ALL_UPDATES

    scale: float = 1e6

    def __post_init__(self) -> None:
        _check_positive("oversized", "scale", self.scale)

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        largest = float(np.finfo(view.dtype).max)
        return view.rows(np.clip(-self.scale * view.columns.mean, -largest, largest))
