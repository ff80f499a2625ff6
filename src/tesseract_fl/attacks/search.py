"""Attacks that ask the rule: as strong as the defence that is really there lets them be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tesseract_fl.attacks.base import FULL, Attack, View
from tesseract_fl.attacks.hidden import check_deviation, deviation
from tesseract_fl.kernels import squared_norms
from tesseract_fl.types import ConfigError, Float64s, Matrix, RoundSkipped


@dataclass(frozen=True, kw_only=True)
class LineSearch(Attack):
    """mean + γ·p for the γ at which the rule itself, asked, moves the model farthest back.

    Damage is −⟨g, mean⟩/‖mean‖², summed over `horizon` rounds in which the honest clients would send the same
    again, so that reputation lost is counted too. γ is searched in doublings and then in `refinements` halvings
    of the interval around the best; γ = 1 is as long as an honest update. Nothing is known of the rule but what it
    answers. A round that the rule would skip does not move the model.

    After the tailored attacks of Shejwalkar, Houmansadr: Manipulating the Byzantine, 2021.
    """

    requires = FULL

    deviation: str = "sign"
    horizon: int = 1
    doublings: int = 8
    refinements: int = 1

    def __post_init__(self) -> None:
        check_deviation("line_search", self.deviation)
        if self.horizon < 1 or self.doublings < 1 or self.refinements < 0:
            raise ConfigError("line_search: horizon and doublings must be at least 1, refinements at least 0")

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        mean = view.columns.mean
        p = deviation(view, self.deviation)
        length = float(np.linalg.norm(p))
        if length == 0 or not mean.any():
            return view.honest("line_search: the honest updates have no direction to go against")
        norm = math.sqrt(float(np.square(view.columns.std).sum() + mean @ mean))  # of an honest update
        p *= norm / length

        tried = {gamma: self._damage(view, mean + gamma * p) for gamma in 2.0 ** np.arange(-3, self.doublings - 3)}
        ratio = 2.0
        for _ in range(self.refinements):
            best, ratio = max(tried, key=tried.__getitem__), math.sqrt(ratio)
            for gamma in (best / ratio, best * ratio):
                tried[gamma] = self._damage(view, mean + gamma * p)
        return view.rows(mean + max(tried, key=tried.__getitem__) * p)

    def _damage(self, view: View, row: Float64s) -> float:
        assert view.ask is not None
        rows, mean = view.rows(row), view.columns.mean
        damage, state = 0.0, None
        for _ in range(self.horizon):
            try:
                out = view.ask(rows, state)
            except RoundSkipped:
                break
            state = out.state
            damage -= float(out.update @ mean)
        return damage / float(mean @ mean)


@dataclass(frozen=True, kw_only=True)
class Camouflage(Attack):
    """Colluders that differ: each one's own honest update as a cover, and as much of a common push as goes unpunished.

    √(1 − γ²)·own_i + γ·τ·p,  p the unit deviation, τ the median norm of the honest updates, and γ the largest in
    `halvings` steps of bisection for which the gate lets all malicious clients in and the rule, asked, penalises at
    most the share `sacrifice` of them. So every evidence that the rule has is satisfied at once. Where a rule gives
    no verdicts, γ is `most`; where no γ passes, they behave honestly. Where a rule remembers, a smaller `most` may
    pass for longer.
    """

    requires = FULL

    deviation: str = "sign"
    halvings: int = 5
    sacrifice: float = 0.0
    most: float = 1.0

    def __post_init__(self) -> None:
        check_deviation("camouflage", self.deviation)
        if self.halvings < 1 or not 0 <= self.sacrifice < 1:
            raise ConfigError("camouflage: halvings must be at least 1, sacrifice at least 0 and below 1")
        if not 0 < self.most <= 1:
            raise ConfigError(f"camouflage: most must be above 0 and at most 1, got {self.most}")

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        p = deviation(view, self.deviation)
        length = float(np.linalg.norm(p))
        if length == 0:
            return view.honest("camouflage: the honest updates have no direction to go against")
        p *= float(np.median(np.sqrt(squared_norms(view.known)))) / length

        def rows(gamma: float) -> Matrix:
            return (math.sqrt(1 - gamma**2) * view.own + gamma * p).astype(view.dtype)

        if self._unpunished(view, rows(self.most)):
            return rows(self.most)
        best, step = 0.0, self.most / 2
        for _ in range(self.halvings):
            if self._unpunished(view, rows(best + step)):
                best += step
            step /= 2
        return rows(best) if best else view.honest("camouflage: the rule would punish every push")

    def _unpunished(self, view: View, rows: Matrix) -> bool:
        assert view.ask is not None
        try:
            report = view.ask(rows).report
        except RoundSkipped:
            return False
        if any(rejection["client"] in view.ids for rejection in report.get("rejected", ())):
            return False
        penalised = report.get("penalised")
        return penalised is None or float(np.mean(penalised[: view.c])) <= self.sacrifice
