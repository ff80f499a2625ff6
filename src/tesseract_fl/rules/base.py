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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Generic, Self, TypeVar, final

import numpy as np

from tesseract_fl import kernels
from tesseract_fl.types import Aggregate, Cohort, ConfigError, Float64s, Matrix, PreconditionError, Rejection, Updates


@dataclass(frozen=True, eq=False)
class State:
    """What a rule remembers between rounds; this one remembers nothing.

    Arrays have the model's parameters as their last axis, so that a state can be cut into blocks of columns
    with the updates and put together again. Anything per client is a mapping from client id.
    """

    def columns(self, block: slice) -> Self:
        return dataclasses.replace(self, **_each_array(lambda array: array[..., block], self))

    @staticmethod
    def join(parts: Sequence[S]) -> S:
        """The state of which these are the column blocks; what is not an array is the same in all of them."""
        if len(parts) == 1:
            return parts[0]
        joined = _each_array(lambda *arrays: np.concatenate(arrays, axis=-1), *parts)
        return dataclasses.replace(parts[0], **joined)


S = TypeVar("S", bound=State)


def _each_array(function: Callable[..., Any], *states: State) -> dict[str, Any]:
    """`function` of every array in some states of one kind, nested and per-client ones included."""
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(states[0]):
        values = [getattr(state, field.name) for state in states]
        if isinstance(values[0], np.ndarray):
            changed[field.name] = function(*values)
        elif isinstance(values[0], State):
            changed[field.name] = dataclasses.replace(values[0], **_each_array(function, *values))
        elif isinstance(values[0], Mapping) and any(isinstance(item, np.ndarray) for item in values[0].values()):
            changed[field.name] = {key: function(*(value[key] for value in values)) for key in values[0]}
    return changed


@dataclass(frozen=True, kw_only=True)
class Rule(ABC, Generic[S]):
    """Turns the updates of a round into one."""

    @property
    def remembers_clients(self) -> bool:
        """Whether the state holds something about each client, so that ids must last over rounds."""
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

    @final
    def aggregate(self, updates: Updates, state: S) -> Aggregate:
        """The global update, what each client contributed, the next state, and a report."""
        if updates.n == 0:
            raise PreconditionError("there is no update to aggregate")
        if self.needs_trusted and updates.trusted is None:
            raise PreconditionError(
                f"{type(self).__name__} needs Updates.trusted, the server's own update on clean data"
            )
        self.check(updates.n)
        out = self._aggregate(updates, state)
        if not kernels.all_finite(out.update):
            raise PreconditionError(kernels.NOT_FINITE)
        rejected = [dataclasses.asdict(rejection) for rejection in updates.rejected]
        return dataclasses.replace(out, report={**out.report, "rejected": rejected})

    @abstractmethod
    def _aggregate(self, updates: Updates, state: S) -> Aggregate: ...


@dataclass(frozen=True, kw_only=True)
class WeightingRule(Rule[S]):
    """A rule that is g = Σ w_i u_i, with weights from a statistic that is additive over blocks of columns."""

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

    def _aggregate(self, updates: Updates, state: S) -> Aggregate:
        blocks = updates.blocks()
        statistic = sum(self.statistic(updates.columns(b), state.columns(b)) for b in blocks)
        if not np.isfinite(statistic).all():
            raise PreconditionError(kernels.NOT_FINITE)
        weights, judged, report = self.weigh(np.asarray(statistic), updates, state)
        parts, states = [], []
        for b in blocks:
            block = updates.columns(b)
            parts.append(self.combine(weights, block, state.columns(b)))
            states.append(self.finish(judged.columns(b), block, parts[-1]))
        return Aggregate(
            update=kernels.concatenate(parts),
            weights=self.contributions(weights),
            state=State.join(states),
            report=report,
        )


@dataclass(frozen=True, kw_only=True)
class GramRule(WeightingRule[S]):
    """A weighting rule that needs nothing but the centred Gram matrix ⟨u_i − z, u_l − z⟩."""

    def statistic(self, updates: Updates, state: S) -> Float64s:
        return kernels.gram(updates.matrix)


@dataclass(frozen=True, kw_only=True)
class CoordinateRule(Rule[State]):
    """A rule that treats every column by itself and remembers nothing."""

    def init(self, d: int) -> State:
        return State()

    @abstractmethod
    def combine(self, matrix: Matrix) -> Matrix:
        """One number per column."""

    def _aggregate(self, updates: Updates, state: State) -> Aggregate:
        parts = [self.combine(updates.columns(b).matrix) for b in updates.blocks()]
        return Aggregate(update=kernels.concatenate(parts), weights=None, state=state, report={})


def resolve_f(f: int | float, n: int) -> int:
    """How many malicious clients a rule assumes among n: `f` itself, or that fraction of n, rounded up.

    >>> resolve_f(20, 100), resolve_f(0.07, 100), resolve_f(0.201, 10)
    (20, 7, 3)
    """
    return f if isinstance(f, int) else share(f, n)


def share(fraction: float, n: int) -> int:
    """A fraction of n, rounded up, of the simple fraction that was meant: 0.07 · 100 is above 7 in floating point."""
    return math.ceil(Fraction(fraction).limit_denominator(10**6) * n)


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
