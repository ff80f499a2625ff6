"""How a rule talks to the columns: it asks all blocks, their answers are added up, and in the end each block settles.

A rule's `plan` is a generator. What it yields is a question to one block of columns, what it gets back is the sum over
all blocks; what it returns says how a block finishes. Between them it decides, on n or n × n numbers. Who holds the
blocks does not matter: `total` and `settle` go through those of this process, and a worker's the same way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeAlias, TypeVar

import numpy as np

from tesseract_fl import kernels
from tesseract_fl.types import Aggregate, Cohort, Float64s, Matrix, Updates

NOTHING = slice(0, 0)  # no columns: what of a state is left is its small part


@dataclass(frozen=True, eq=False)
class State:
    """What a rule remembers between rounds; this one remembers nothing.

    Arrays have the model's parameters as their last axis, so that a state can be cut into blocks of columns
    with the updates and put together again. Anything per client is a mapping from client id to numbers or to such
    an array, or from a kind to mappings from client id to numbers.
    """

    def columns(self, block: slice) -> Self:
        def cut(array: Any) -> Any:  # a view of nothing would keep everything
            return array[..., block].copy() if block == NOTHING else array[..., block]

        return dataclasses.replace(self, **_each_array(cut, self))

    @property
    def widths(self) -> set[int]:
        """How many parameters its arrays are for; empty where it has none, one number where they fit together."""
        found: set[int] = set()
        _each_array(lambda array: found.add(array.shape[-1]), self)
        return found

    def over(self, block: Self) -> Self:
        """The small part of this state over the columns of another."""
        return dataclasses.replace(self, **_each_array(lambda _, columns: columns, self, block))

    @staticmethod
    def join(parts: Sequence[S]) -> S:
        """The state of which these are the column blocks; what is not an array is the same in all of them."""
        if len(parts) == 1:
            return parts[0]
        joined = _each_array(lambda *arrays: np.concatenate(arrays, axis=-1), *parts)
        return dataclasses.replace(parts[0], **joined)


S = TypeVar("S", bound=State)

Question: TypeAlias = Callable[[Updates, S], Float64s]
Finish: TypeAlias = Callable[[Updates, S], tuple[Matrix, S]]


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


@dataclass(frozen=True)
class Verdict(Generic[S]):
    """The end of a plan. `finish(updates, state)` makes a block's global update and its part of the next state."""

    finish: Finish[S]
    weights: Float64s | None
    report: Mapping[str, Any]

    def told(self, cohort: Cohort) -> dict[str, Any]:
        """The report, with those whom the gate turned away."""
        return {**self.report, "rejected": [dataclasses.asdict(rejection) for rejection in cohort.rejected]}

    def aggregate(self, update: Matrix, state: Any, cohort: Cohort) -> Aggregate:
        """What the caller of a rule gets."""
        return Aggregate(update=update, weights=self.weights, state=state, report=self.told(cohort))


Plan: TypeAlias = Generator[Question[S], Float64s, Verdict[S]]
T = TypeVar("T")


def total(question: Question[S], updates: Updates, state: S) -> Float64s:
    """Σ_b question(block b)."""
    return np.asarray(sum(question(updates.columns(b), state.columns(b)) for b in updates.blocks()))


def settle(finish: Finish[S], updates: Updates, state: S) -> tuple[Matrix, S]:
    """The global update and the next state, block by block."""
    parts = [finish(updates.columns(b), state.columns(b)) for b in updates.blocks()]
    return kernels.concatenate([update for update, _ in parts]), State.join([after for _, after in parts])


def converse(plan: Generator[Question[S], Float64s, T], answer: Callable[[Question[S]], Float64s]) -> T:
    """Go through a plan to its end."""
    try:
        question = next(plan)
        while True:
            question = plan.send(answer(question))
    except StopIteration as end:
        verdict: T = end.value
        return verdict


def behind(
    plan: Plan[S], see: Callable[[Updates], Updates], state: Callable[[Any], S] = lambda state: state
) -> Generator[Question[Any], Float64s, Verdict[S]]:
    """The plan of an inner rule, whose blocks are `see(updates)` and `state(state)` of the outer rule's."""

    def seen(question: Question[S]) -> Question[Any]:
        return lambda updates, outer: total(question, see(updates), state(outer))

    try:
        question = next(plan)
        while True:
            question = plan.send((yield seen(question)))
    except StopIteration as end:
        verdict: Verdict[S] = end.value
    return dataclasses.replace(
        verdict, finish=lambda updates, outer: settle(verdict.finish, see(updates), state(outer))
    )
