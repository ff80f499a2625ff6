"""The contract of a rule: a frozen configuration, a frozen state that the caller owns, a pure function.

rule  = Tesseract(f=20, decay=0.99)
state = rule.init(d)
out   = rule.aggregate(updates, state)
out.update, out.weights, out.state, out.report
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, Self, TypeVar, final

import numpy as np

from tesseract_fl.kernels import weighted_sum
from tesseract_fl.types import Aggregate, Cohort, ConfigError, Float64s, Floats, PreconditionError, Updates


@dataclass(frozen=True, eq=False)
class State:
    """What a rule remembers between rounds; this one remembers nothing.

    Arrays have the model's parameters as their last axis, so that a state can be cut into column blocks
    with the updates. Anything per client is a mapping from client id.
    """

    def columns(self, block: slice) -> Self:
        cut = {
            field.name: getattr(self, field.name)[..., block]
            for field in dataclasses.fields(self)
            if isinstance(getattr(self, field.name), np.ndarray)
        }
        return dataclasses.replace(self, **cut)


S = TypeVar("S", bound=State)


@dataclass(frozen=True, kw_only=True)
class Rule(ABC, Generic[S]):
    """Turns the updates of a round into one."""

    @abstractmethod
    def init(self, d: int) -> S:
        """The state before the first round, for a model of d parameters."""

    def check(self, n: int) -> None:
        """Raise PreconditionError unless the rule is defined for n clients."""

    @final
    def aggregate(self, updates: Updates, state: S) -> Aggregate:
        """The global update, what each client contributed, the next state, and a report."""
        if updates.n == 0:
            raise PreconditionError("there is no update to aggregate")
        self.check(updates.n)
        out = self._aggregate(updates, state)
        rejected = [dataclasses.asdict(rejection) for rejection in updates.rejected]
        return dataclasses.replace(out, report={**out.report, "rejected": rejected})

    @abstractmethod
    def _aggregate(self, updates: Updates, state: S) -> Aggregate: ...


@dataclass(frozen=True, kw_only=True)
class WeightingRule(Rule[S]):
    """A rule that is g = Σ w_i u_i, with weights from a statistic that is additive over column blocks."""

    @abstractmethod
    def statistic(self, updates: Updates, state: S) -> Float64s:
        """One number per client or per pair of clients. Additive: that of a matrix is the sum of its blocks'."""

    @abstractmethod
    def weigh(self, statistic: Float64s, cohort: Cohort, state: S) -> tuple[Float64s, S, dict[str, Any]]:
        """Weights, the next state so far, and the report: n-sized, no matrix in sight."""

    def finish(self, state: S, update: Floats) -> S:
        """What the state learns from the global update."""
        return state

    def _aggregate(self, updates: Updates, state: S) -> Aggregate:
        blocks = list(column_blocks(updates))
        statistic = sum(self.statistic(updates.columns(b), state.columns(b)) for b in blocks)
        weights, state, report = self.weigh(np.asarray(statistic), updates, state)
        update = np.concatenate([weighted_sum(weights, updates.matrix[:, b]) for b in blocks])
        return Aggregate(update=update, weights=weights, state=self.finish(state, update), report=report)


def column_blocks(updates: Updates) -> Iterator[slice]:
    """Blocks of columns that are worked on one after the other; in memory, one block is the fastest."""
    yield slice(0, updates.d)


def resolve_f(f: int | float, n: int) -> int:
    """How many malicious clients a rule assumes among n: `f` itself, or that fraction of n, rounded up.

    >>> resolve_f(20, 100), resolve_f(0.07, 100), resolve_f(0.201, 10)
    (20, 7, 3)
    """
    # Fraction of the decimal as written: 0.07 * 100 is a little more than 7 in floating point.
    return f if isinstance(f, int) else math.ceil(Fraction(str(f)) * n)


def check_f(rule: str, f: int | float) -> None:
    """f is a count, or a fraction below one half."""
    if isinstance(f, bool) or not isinstance(f, int | float) or not f >= 0:
        raise ConfigError(f"{rule}: f must be a number of clients (0, 1, 2, …) or a fraction of them, got {f!r}")
    if isinstance(f, float) and f >= 0.5:
        raise ConfigError(f"{rule}: as a fraction f must be below 0.5, got {f}; for a count write {f:.0f}")


def check_decay(rule: str, decay: float) -> None:
    if not 0 <= decay <= 1:
        raise ConfigError(f"{rule}: decay must be between 0 and 1, got {decay}")


def check_majority(rule: str, f: int | float, n: int) -> None:
    """2f < n: more than half of the clients must be honest."""
    count = resolve_f(f, n)
    if 2 * count >= n:
        raise PreconditionError(
            f"{rule} needs 2f < n, but f = {count} and n = {n}: "
            f"with {n} clients f may be at most {(n - 1) // 2}; ask more clients or assume fewer malicious ones"
        )
