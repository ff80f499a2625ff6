"""What the server adds to a rule: a statistic that is already known, and a limit on what newcomers weigh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tesseract_fl.rules.base import Rule, S, WeightingRule
from tesseract_fl.types import ClientId, Cohort, ConfigError, Float64s, Matrix, Updates

POLICIES = ("neutral", "probation")


@dataclass(frozen=True, kw_only=True)
class Newcomers:
    """How a client starts that the ledger does not know.

    "neutral": like everybody at the start. "probation": until it was admitted without a penalty in `rounds` rounds it
    weighs no more than the median of those who have passed, so that coming back under a new name does not pay.
    """

    policy: str = "probation"
    rounds: int = 10

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ConfigError(f"newcomers: policy must be one of {', '.join(POLICIES)}, got {self.policy!r}")
        if self.rounds < 1:
            raise ConfigError(f"newcomers: rounds must be at least 1, got {self.rounds}")

    def on_probation(self, passed: int) -> bool:
        return self.policy == "probation" and passed < self.rounds


@dataclass(frozen=True, kw_only=True, eq=False)
class Hosted(WeightingRule[S]):
    """Another rule with a statistic that was computed row by row as replies arrived, and with newcomers held down."""

    inner: WeightingRule[S]
    known: Float64s | None = None
    newcomers: frozenset[ClientId] = frozenset()

    def init(self, d: int) -> S:
        return self.inner.init(d)

    def check(self, n: int) -> None:
        self.inner.check(n)

    @property
    def needs_trusted(self) -> bool:
        return self.inner.needs_trusted

    def statistic(self, updates: Updates, state: S) -> Float64s:
        if self.known is None:
            return self.inner.statistic(updates, state)
        return self.known if updates.offset == 0 else np.zeros_like(self.known)

    def weigh(self, statistic: Float64s, cohort: Cohort, state: S) -> tuple[Float64s, S, dict[str, Any]]:
        weights, judged, report = self.inner.weigh(statistic, cohort, state)
        new = np.array([client in self.newcomers for client in cohort.ids], np.bool_)
        if "share" in report:
            report |= {"share": held_down(np.array(report["share"]), new).tolist()}
        return held_down(weights, new), judged, report

    def combine(self, weights: Float64s, updates: Updates, state: S) -> Matrix:
        return self.inner.combine(weights, updates, state)

    def finish(self, state: S, updates: Updates, update: Matrix) -> S:
        return self.inner.finish(state, updates, update)

    def contributions(self, weights: Float64s) -> Float64s | None:
        return self.inner.contributions(weights)


def held_down(weights: Float64s, new: np.ndarray[Any, np.dtype[np.bool_]]) -> Float64s:
    """Newcomers weigh at most the median of those who have passed, as long as these are the larger part of the weight.

    Otherwise those who passed are new themselves, or mostly cut off, and no measure for anybody.

    >>> held_down(np.array([0.2, 0.2, 0.2, 0.4]), np.array([False, False, False, True])).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    if not new.any() or weights[~new].sum() <= weights[new].sum():
        return weights
    limited = np.where(new, np.minimum(weights, np.median(weights[~new])), weights)
    held: Float64s = limited / limited.sum()
    return held


def hosted(rule: Rule[S], known: Float64s | None, newcomers: frozenset[ClientId]) -> Rule[S]:
    """The rule as this round needs it."""
    if not isinstance(rule, WeightingRule) or (known is None and not newcomers):
        return rule
    return Hosted(inner=rule, known=known, newcomers=newcomers)


def policy_for(rule: Rule[Any], chosen: Newcomers | None) -> Newcomers:
    """What the operator chose, or probation wherever a rule can do it and does not do it itself.

    Probation limits weights, so it needs a rule whose weights come from what it remembers of clients. A rule that
    limits newcomers is left alone: a second limit would scale its weights to a sum of one, which they need not have.
    """
    possible = isinstance(rule, WeightingRule) and rule.remembers_clients
    if chosen is None:
        return Newcomers(policy="probation" if possible and not rule.limits_newcomers else "neutral")
    if chosen.policy == "probation" and rule.limits_newcomers:
        raise ConfigError(
            f"{type(rule).__name__} has a probation of its own, in its settings: leave newcomers out, "
            'or say newcomers=Newcomers(policy="neutral")'
        )
    if chosen.policy == "probation" and not possible:
        raise ConfigError(
            f"{type(rule).__name__} does not weigh clients by what it remembers of them, so newcomers can't be put on "
            'probation: say newcomers=Newcomers(policy="neutral")'
        )
    return chosen
