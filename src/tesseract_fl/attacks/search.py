"""Attacks that ask the rule: as strong as the defence that is really there lets them be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tesseract_fl.attacks.base import FULL, Attack, View
from tesseract_fl.attacks.hidden import check_deviation, deviation, least_for
from tesseract_fl.kernels import blend, dot, squared_norms
from tesseract_fl.types import Blend, ConfigError, Float64s, Matrix, RoundSkipped

_LADDER = [*((1, k) for k in range(-2, 3)), *((0, k) for k in range(-6, 1))]  # from the mean or from 0, 4^k


@dataclass(frozen=True, kw_only=True)
class LineSearch(Attack):
    """mean + γ·p, or γ·p alone, whichever the rule itself, asked, is moved back farthest by.

    Damage is −⟨g, mean⟩/‖mean‖², summed over `horizon` rounds in which the honest clients would send the same
    again, so that reputation lost is counted too. γ is searched in powers of four, up to 16 times as long as an honest
    update and down to where Krum would look among short ones, and then in `refinements` halvings of the interval
    around the best. Nothing is known of the rule but what it answers. A round that the rule would skip does not move
    it. Where nothing does more damage than the honest mean, they behave.

    After the tailored attacks of Shejwalkar, Houmansadr: Manipulating the Byzantine, 2021, which start from the mean.
    """

    requires = FULL

    deviation: str = "sign"
    horizon: int = 1
    refinements: int = 2

    def __post_init__(self) -> None:
        check_deviation("line_search", self.deviation)
        if self.horizon < 1 or self.refinements < 0:
            raise ConfigError("line_search: horizon must be at least 1, refinements at least 0")

    @property
    def least_known(self) -> int:
        return least_for(self.deviation)

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        mean = view.columns.mean
        p = deviation(view, self.deviation)
        length = math.sqrt(dot(p, p))
        if length == 0 or not mean.any():
            return view.honest("line_search: the honest updates have no direction to go against")
        norm = math.sqrt(float(np.square(view.columns.std).sum()) + dot(mean, mean))  # of an honest update
        p *= norm / length

        def row(start: int, gamma: float) -> Float64s:
            return start * mean + gamma * p

        tried = {(start, 4.0**k): self._damage(view, row(start, 4.0**k)) for start, k in _LADDER}
        ratio = 4.0
        for _ in range(self.refinements):
            (start, best), ratio = max(tried, key=tried.__getitem__), math.sqrt(ratio)
            for gamma in (best / ratio, best * ratio):
                tried[start, gamma] = self._damage(view, row(start, gamma))
        worst = max(tried, key=tried.__getitem__)
        if tried[worst] <= self._damage(view, mean):
            return view.honest("line_search: the rule is harmed by no strength")
        return view.rows(row(*worst))

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
            damage -= dot(out.update, mean)
        return damage / dot(mean, mean)


@dataclass(frozen=True, kw_only=True)
class Camouflage(Attack):
    """Colluders that differ: each one's own honest update as a cover, and as much of a common push as goes unpunished.

    √(1 − γ²)·own_i + γ·τ·p,  p the unit deviation, τ the median norm of the honest updates, and γ the largest for
    which the gate lets all malicious clients in and the rule, asked, penalises no larger a share of them than of the
    honest clients; `sacrifice` is how much larger it may be. It is looked for from `most` down in `steps` equal
    steps, since a rule that punishes the outermost on either side may let a large push pass and a small one not, and
    then in `halvings` of the step above the one that passed. So every evidence that the rule has is satisfied
    at once. Where a rule gives no verdicts, γ is `most`; where none was found, they behave honestly. Where a rule
    remembers, a smaller `most` may pass for longer, and where it goes by angles more than by lengths, so may the same
    made `boost` times as long. With a `part`, each pushes in that part of the coordinates only, drawn for it anew, and
    by 1/√part as much there: colluders then have fewer signs in common than they have push.
    """

    requires = FULL

    deviation: str = "sign"
    steps: int = 8
    halvings: int = 3
    sacrifice: float = 0.0
    most: float = 1.0
    boost: float | None = None
    part: float | None = None

    def __post_init__(self) -> None:
        check_deviation("camouflage", self.deviation)
        if self.steps < 1 or self.halvings < 0 or not 0 <= self.sacrifice < 1:
            raise ConfigError(
                "camouflage: steps must be at least 1, halvings at least 0, sacrifice at least 0 and below 1"
            )
        if not 0 < self.most <= 1:
            raise ConfigError(f"camouflage: most must be above 0 and at most 1, got {self.most}")
        if self.boost is not None and not 0 < self.boost < math.inf:
            raise ConfigError(f"camouflage: boost must be a positive finite number, got {self.boost}")
        if self.part is not None and not 0 < self.part <= 1:
            raise ConfigError(f"camouflage: part must be above 0 and at most 1, got {self.part}")

    @property
    def least_known(self) -> int:
        return least_for(self.deviation)

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        p = deviation(view, self.deviation)
        norm = math.sqrt(dot(p, p))
        if norm == 0:
            return view.honest("camouflage: the honest updates have no direction to go against")
        p *= float(np.median(np.sqrt(squared_norms(view.known)))) / norm
        if self.part is not None:
            p = p / math.sqrt(self.part) * (rng.random((view.c, len(p))) < self.part)
        push, length = np.atleast_2d(p.astype(view.dtype)), self.boost or 1.0

        def sent(gamma: float) -> Blend:
            return Blend(length * math.sqrt(1 - gamma**2), view.own, length * gamma, push)

        downwards = np.linspace(self.most, 0, self.steps + 1).tolist()
        passed = next((gamma for gamma in downwards[:-1] if self._unpunished(view, sent(gamma))), 0.0)
        if passed == self.most:
            return blend(sent(passed))
        step = self.most / self.steps
        for _ in range(self.halvings):
            step /= 2
            if self._unpunished(view, sent(passed + step)):
                passed += step
        return blend(sent(passed)) if passed else view.honest("camouflage: no push was found that goes unpunished")

    def _unpunished(self, view: View, sent: Blend) -> bool:
        try:
            report = view.verdict(sent)
        except RoundSkipped:
            return False
        if any(rejection["client"] in view.ids for rejection in report.get("rejected", ())):
            return False
        penalised = report.get("penalised")
        if penalised is None:
            return True
        ours, theirs = np.mean(penalised[: view.c]), np.mean(penalised[view.c :] or [False])
        return bool(ours <= theirs + self.sacrifice)
