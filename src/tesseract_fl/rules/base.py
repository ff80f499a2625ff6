"""The contract of a rule: a frozen configuration, a frozen state that the caller owns, a pure function.

rule  = Tesseract(f=20, decay=0.99)
state = rule.init(d)
out   = rule.aggregate(updates, state)
out.update, out.weights, out.state, out.report
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Generic, final

import numpy as np

from tesseract_fl import kernels
from tesseract_fl.rules.plan import NOTHING, Plan, S, State, Verdict, converse, settle, total
from tesseract_fl.types import Aggregate, Cohort, ConfigError, Float64s, Matrix, PreconditionError, Rejection, Updates

__all__ = ["CoordinateRule", "GramRule", "HonestMajority", "Plan", "Rule", "S", "State", "Verdict", "WeightingRule"]


@dataclass(frozen=True, kw_only=True)
class Rule(ABC, Generic[S]):
    """Turns the updates of a round into one."""

    @property
    def remembers_clients(self) -> bool:
        """Whether the state holds something about each client, so that ids must last over rounds."""
        return False

    @property
    def limits_newcomers(self) -> bool:
        """Whether the rule itself sees to it that clients who come late weigh little at first."""
        return False

    @property
    def needs_trusted(self) -> bool:
        """Whether the server must bring an update of its own, `Updates.trusted`."""
        return False

    @abstractmethod
    def init(self, d: int) -> S:
        """The state before the first round, for a model of d parameters."""

    def turned_away(self, rejected: Sequence[Rejection], n: int, state: S) -> S:
        """The state after a round of n clients that was skipped: those who were turned away may lose by it."""
        return state

    def check(self, n: int) -> None:
        """Raise PreconditionError unless the rule is defined for n clients."""

    @abstractmethod
    def plan(self, cohort: Cohort, state: S) -> Plan[S]:
        """The conversation of a round: questions to all blocks of columns, then a verdict. `state` has no columns."""

    @final
    def begin(self, cohort: Cohort, state: S, *, trusted: bool) -> Plan[S]:
        """The plan of a round, after the checks that every rule makes; `trusted`: the server brings an update."""
        if cohort.n == 0:
            raise PreconditionError("there is no update to aggregate")
        if self.needs_trusted and not trusted:
            raise PreconditionError(
                f"{type(self).__name__} needs Updates.trusted, the server's own update on clean data"
            )
        self.check(cohort.n)
        return self.plan(cohort, state)

    @final
    def judge(self, updates: Updates, state: S) -> Verdict[S]:
        """What the rule decides, before any global update is made of it."""
        if state.widths - {updates.d}:  # compiled code does not look where an array ends
            raise ConfigError(f"updates have {updates.d} parameters, but the state is for {max(state.widths)}")
        plan = self.begin(updates.cohort, state.columns(NOTHING), trusted=updates.trusted is not None)
        return converse(plan, lambda question: total(question, updates, state))

    @final
    def aggregate(self, updates: Updates, state: S) -> Aggregate:
        """The global update, what each client contributed, the next state, and a report."""
        verdict = self.judge(updates, state)
        update, after = settle(verdict.finish, updates, state)
        if not kernels.all_finite(update):
            raise PreconditionError(kernels.NOT_FINITE)
        return verdict.aggregate(update, after, updates)


@dataclass(frozen=True, kw_only=True)
class WeightingRule(Rule[S]):
    """A rule that is g = Σ w_i u_i, with weights from a statistic that is additive over blocks of columns."""

    looks: ClassVar[bool] = True  # whether the statistic looks at the updates at all
    by_row: ClassVar[bool] = False  # a client's statistic needs its own row alone, so rows may come one by one

    @abstractmethod
    def statistic(self, updates: Updates, state: S) -> Float64s:
        """Numbers per client or per pair. Additive: that of a round is the sum of that of its column blocks."""

    @abstractmethod
    def weigh(self, statistic: Float64s, cohort: Cohort, state: S) -> tuple[Float64s, S, dict[str, Any]]:
        """Weights, the next state so far, and the report: n-sized, no matrix in sight."""

    def combine(self, weights: Float64s, updates: Updates, state: S) -> Matrix:
        """The global update of a block of columns."""
        return kernels.weighted_sum(weights, updates.matrix)

    def finish(self, state: S, updates: Updates, update: Matrix) -> S:
        """What the state learns from a block of columns once its global update is known."""
        return state

    def contributions(self, weights: Float64s) -> Float64s | None:
        """What each client contributed; None where that is not one number."""
        return weights

    def plan(self, cohort: Cohort, state: S) -> Plan[S]:
        statistic = (yield self.statistic) if self.looks else np.zeros(cohort.n)
        if not np.isfinite(statistic).all():
            raise PreconditionError(kernels.NOT_FINITE)
        weights, judged, report = self.weigh(statistic, cohort, state)
        return Verdict(partial(self._settle, weights, judged), self.contributions(weights), report)

    def _settle(self, weights: Float64s, judged: S, updates: Updates, state: S) -> tuple[Matrix, S]:
        update = self.combine(weights, updates, state)
        return update, self.finish(judged.over(state), updates, update)


@dataclass(frozen=True, kw_only=True)
class GramRule(WeightingRule[State]):
    """A weighting rule that needs nothing but the centred Gram matrix ⟨u_i − z, u_l − z⟩ and remembers nothing."""

    def init(self, d: int) -> State:
        return State()

    def statistic(self, updates: Updates, state: State) -> Float64s:
        return kernels.gram(updates.matrix, settled=updates.settled)


@dataclass(frozen=True, kw_only=True)
class CoordinateRule(Rule[State]):
    """A rule that treats every column by itself and remembers nothing."""

    def init(self, d: int) -> State:
        return State()

    @abstractmethod
    def combine(self, matrix: Matrix) -> Matrix:
        """One number per column."""

    def plan(self, cohort: Cohort, state: State) -> Plan[State]:
        yield from ()  # there is nothing to ask
        return Verdict(lambda updates, state: (self.combine(updates.matrix), state), None, {})


@dataclass(frozen=True, kw_only=True)
class HonestMajority:
    """Mixed into a kind of rule: f clients are assumed to be malicious, and 2f < n unless the rule needs more."""

    name: ClassVar[str]  # as in the registry, for messages

    f: int | float

    def __post_init__(self) -> None:
        check_f(self.name, self.f)

    def check(self, n: int) -> None:
        f = resolve_f(self.f, n)
        if 2 * f >= n:
            raise PreconditionError(
                f"{self.name} needs 2f < n, but f = {f} and n = {n}: "
                f"with {n} clients f may be at most {(n - 1) // 2}; ask more clients or assume fewer malicious ones"
            )


def resolve_f(f: int | float, n: int) -> int:
    """How many malicious clients a rule assumes among n: `f` itself, or that fraction of n, rounded up.

    >>> resolve_f(20, 100), resolve_f(0.07, 100), resolve_f(0.201, 10)
    (20, 7, 3)
    """
    return f if isinstance(f, int) else share(f, n)


def share(fraction: float, n: int) -> int:
    """A fraction of n, rounded up, of the simple fraction that was meant: 0.07 · 100 is above 7 in floating point."""
    return math.ceil(Fraction(fraction).limit_denominator(10**6) * n)


def shrinking(norms: Float64s, longest: float) -> Float64s:
    """min(1, τ/‖u_i‖): the factors that make updates no longer than τ."""
    return np.minimum(1.0, np.divide(longest, norms, out=np.ones_like(norms), where=norms > 0))


def check_f(rule: str, f: int | float) -> None:
    """f is a count, or a fraction below one half."""
    if isinstance(f, bool) or not isinstance(f, int | float) or not f >= 0:
        raise ConfigError(f"{rule}: f must be a number of clients (0, 1, 2, …) or a fraction of them, got {f!r}")
    if isinstance(f, float) and f >= 0.5:
        raise ConfigError(f"{rule}: as a fraction f must be below 0.5, got {f}; for a count write {f:.0f}")


def check_decay(rule: str, decay: float) -> None:
    if not 0 <= decay <= 1:
        raise ConfigError(f"{rule}: decay must be between 0 and 1, got {decay}")
