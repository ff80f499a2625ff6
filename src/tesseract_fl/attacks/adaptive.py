"""The paper's white-box attacks on Tesseract: a directed deviation, diluted until its flip-score passes.

Where the rule reports flip-scores but no cut, the largest that it did not penalise is the cut. Where it reports
neither, as in the first round, nothing is diluted.

Sharma et al., TESSERACT: Gradient flip score to secure federated learning against model poisoning attacks, 2021.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tesseract_fl.attacks.base import ALL_UPDATES_AND_REPORT, Attack, View
from tesseract_fl.attacks.fang import FullKrum, FullTrim
from tesseract_fl.types import ConfigError, Float64s, Floats, Matrix


class Dilution:
    """Replaces a crafted row by the benign mean, a `step` of the coordinates at a time, smallest magnitude first."""

    def __init__(self, view: View, step: float) -> None:
        self.cut = _cut(view.report or {})
        self.mean = view.columns.mean
        self.reference = view.reference
        self.steps = math.ceil(1 / step)
        self.kept = False  # whether anything of any row was left
        ranks = np.empty(view.d, np.int64)
        ranks[np.argsort(np.abs(self.mean), kind="stable")] = np.arange(view.d)
        self.turn = np.minimum((ranks / (step * view.d)).astype(np.int64), self.steps - 1)  # when each is replaced

    def of(self, row: Floats, noise: Floats | float = 0.0) -> Floats:
        """The row after as few steps as bring its flip-score down to the cut; after all of them if none does."""
        honest = (self.mean + noise).astype(row.dtype)
        gain = self._per_turn(honest) - self._per_turn(row)  # what each step changes
        scores = self._per_turn(row).sum() + np.concatenate([[0.0], np.cumsum(gain)])
        passing = np.flatnonzero(scores <= self.cut)
        taken = int(passing[0]) if len(passing) else self.steps
        self.kept |= taken < self.steps
        diluted: Floats = np.where(self.turn < taken, honest, row)
        return diluted

    def finish(self, view: View) -> None:
        if not self.kept:
            view.gave_up.append("the cut leaves nothing of the attack: every coordinate is the honest mean's")

    def _per_turn(self, row: Floats) -> Float64s:
        """The flip-score of a row, by the step that would replace a coordinate."""
        energy = np.square(row, dtype=np.float64) * (np.sign(row) != self.reference)
        return np.bincount(self.turn, weights=energy, minlength=self.steps).astype(np.float64, copy=False)


def _cut(report: Mapping[str, Any]) -> float:
    """The flip-score up to which a client went unpunished in the last round."""
    if "flip_score_high" in report:
        return float(report["flip_score_high"])
    verdicts = zip(report.get("flip_score", ()), report.get("penalised", ()), strict=False)
    return max((score for score, penalised in verdicts if not penalised), default=math.inf)


def _check_step(name: str, step: float) -> None:
    if not 0 < step <= 1:
        raise ConfigError(f"{name}: step must be a share of the coordinates above 0 and at most 1, got {step}")


@dataclass(frozen=True, kw_only=True)
class AdaptiveKrum(Attack):
    """Full-Krum that gives up coordinates until its flip-score is below last round's cut.

    While FS(v) > FS_high, the next `step` of the coordinates, those of the smallest benign magnitude first,
    becomes the benign mean. All malicious clients send the result plus noise.
    """

    requires = ALL_UPDATES_AND_REPORT

    step: float = 0.05
    krum: FullKrum = field(default_factory=FullKrum)

    def __post_init__(self) -> None:
        _check_step("adaptive_krum", self.step)

    def check(self, n: int, c: int) -> None:
        self.krum.check(n, c)

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        strength = self.krum.strength(view)
        if strength is None:
            return view.honest(f"adaptive_krum: Krum would choose no λ of {self.krum.smallest} or more")
        dilution = Dilution(view, self.step)
        rows = self.krum.noise_of(view, rng)
        for row in rows:
            row[:] = dilution.of(row - np.float32(strength) * view.direction, noise=row)
        dilution.finish(view)
        return rows


@dataclass(frozen=True, kw_only=True)
class AdaptiveTrim(Attack):
    """Full-Trim whose clients make up for what those before them had to give up.

    u_i are Full-Trim's rows. Client i aims at u_i + Σ_{l<i} (u_l − v_l) and sends v_i, that target diluted in
    steps as in `adaptive_krum`, so that Σ v comes as close to Σ u as the cut allows.
    """

    requires = ALL_UPDATES_AND_REPORT

    step: float = 0.05
    trim: FullTrim = field(default_factory=FullTrim)

    def __post_init__(self) -> None:
        _check_step("adaptive_trim", self.step)

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        dilution = Dilution(view, self.step)
        rows = self.trim.craft(view, rng)
        owed: npt.NDArray[np.float64] = np.zeros(view.d)
        for row in rows:
            owed += row
            row[:] = dilution.of(owed.astype(row.dtype))
            owed -= row
        dilution.finish(view)
        return rows
