"""Attacks on reputation itself: be as bad as possible while looking exactly average."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tesseract_fl.attacks.base import ALL_UPDATES_AND_REPORT, Attack, View
from tesseract_fl.kernels import flip_scores
from tesseract_fl.types import Bools, ConfigError, Floats, Matrix


def typical_flip_score(view: View) -> float:
    """The median of last round's flip-scores; where the rule reports none, that of the honest clients now."""
    reported = (view.report or {}).get("flip_score")
    return float(np.median(flip_scores(view.known, view.reference) if reported is None else reported))


def with_flip_score(view: View, row: Floats, where: Bools, score: float) -> Floats | None:
    """`row` with −λ·s on the coordinates `where`, λ such that the whole has a given flip-score; None if none does."""
    s = -view.direction
    flips = np.sign(row) != view.reference
    spent = float(np.square(row, dtype=np.float64, where=flips & ~where, out=np.zeros(view.d)).sum())
    count = int(np.count_nonzero(where & (s != 0) & (s != view.reference)))
    if count == 0 or score <= spent:
        return None
    crafted: Floats = np.where(where, math.sqrt((score - spent) / count) * s, row)
    return crafted


@dataclass(frozen=True, kw_only=True)
class FlipBand(Attack):
    """Send −λ·s with a flip-score that equals the median of last round's: in the rewarded middle of the band.

    FS(−λs) = λ²·#{j: −s_j ≠ reference_j}, so λ has a closed form. The paper's rule penalises it less than others.
    """

    requires = ALL_UPDATES_AND_REPORT

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        everywhere = np.ones(view.d, np.bool_)
        row = with_flip_score(view, view.columns.mean, everywhere, typical_flip_score(view))
        return view.honest("flip_band: no update has that flip-score") if row is None else view.rows(row)


@dataclass(frozen=True, kw_only=True)
class Steering(Attack):
    """Turn the reference direction slowly, the coordinates first that the honest clients care about least.

    In round t the weakest min(1, t/`over`) of the coordinates get −λ·s, the others the honest mean, with λ such
    that the flip-score is the median of last round's. Once the reference has turned there, it is the honest
    clients who flip.
    """

    requires = ALL_UPDATES_AND_REPORT

    over: int = 200

    def __post_init__(self) -> None:
        if self.over < 1:
            raise ConfigError(f"steering: over must be a number of rounds of at least 1, got {self.over}")

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        mean = view.columns.mean
        count = math.ceil(min(1.0, view.round / self.over) * view.d)
        weakest = np.zeros(view.d, np.bool_)
        weakest[np.argpartition(np.abs(mean), count - 1)[:count]] = True
        row = with_flip_score(view, mean, weakest, typical_flip_score(view))
        return view.honest("steering: no update has that flip-score") if row is None else view.rows(row)
