"""A block of columns: rows arrive piece by piece, the state's columns stay here, and questions are answered here."""

from __future__ import annotations

import os
from itertools import compress
from typing import Any

import numpy as np

from tesseract_fl import kernels
from tesseract_fl.rules.base import Rule
from tesseract_fl.rules.plan import Finish, Question, State, settle, total
from tesseract_fl.types import ClientId, Cohort, ConfigError, Float64s, Floats, Matrix, ShardError, Updates


def cut(d: int, parts: int) -> list[slice]:
    """The d columns in blocks of one width, the last one maybe narrower; at most `parts` of them.

    >>> cut(10, 3)
    [slice(0, 4, None), slice(4, 8, None), slice(8, 10, None)]
    """
    if parts < 1 or d < 1:
        raise ConfigError(f"{d} columns can't be cut into {parts} shards; both must be at least 1")
    width = -(-d // parts)
    return [slice(start, min(start + width, d)) for start in range(0, d, width)]


class Shard:
    """Holds columns `block` of d: the rows of one round, and states by version.

    A new state stands beside the one it came from, which is dropped only when a later round begins from another:
    a round that fails halfway, here or at another shard, has changed nothing.
    """

    def __init__(self, block: slice, d: int) -> None:
        self.block, self.d = block, d
        self._ids: list[ClientId] = []
        self._rows = np.empty((0, block.stop - block.start), np.float32)
        self._round = 0
        self._states: dict[str, Any] = {}
        self._results: dict[str, Matrix] = {}
        self._begun: tuple[Updates, State] | None = None

    # ---- the state's columns ------------------------------------------------------------------------------------

    def init(self, rule: Rule[Any], version: str) -> None:
        self.restore(rule.init(self.d).columns(self.block), version)

    def restore(self, columns: State, version: str) -> None:
        self._states, self._results, self._begun = {version: columns}, {}, None

    def state(self, version: str) -> Any:
        return self._known(self._states, version)

    def update(self, version: str) -> Matrix:
        """This block of the global update that came with a state."""
        return self._known(self._results, version)

    # ---- a round ------------------------------------------------------------------------------------------------

    def open(self, round: int, capacity: int) -> None:
        """Make room for the rows of a round; those of the last are gone."""
        self._ids, self._begun, self._round = [], None, round
        self._rows = np.empty((capacity, self._rows.shape[1]), np.float32)

    def put(self, client: ClientId, piece: Floats) -> None:
        """A client's update, as far as it is in this block."""
        if len(self._ids) == len(self._rows):
            raise ShardError(f"{self} has room for {len(self._rows)} rows, and they are full")
        self._rows[len(self._ids)] = piece
        self._ids.append(client)

    def begin(self, cohort: Cohort, version: str, small: State, trusted: Floats | None) -> None:
        """Check that exactly this round's rows and its state are here; forget all other states."""
        kept = set(cohort.ids)
        keep = [client in kept for client in self._ids]
        if cohort.round != self._round or tuple(compress(self._ids, keep)) != cohort.ids:
            raise ShardError(
                f"{self} holds {sum(keep)} of the {cohort.n} rows of round {cohort.round}, or not in their order; "
                "open the round again and send all rows"
            )
        rows = self._rows[: len(keep)]
        updates = Updates(
            matrix=rows if all(keep) else rows[keep],
            ids=cohort.ids,
            round=cohort.round,
            samples=cohort.samples,
            rejected=cohort.rejected,
            trusted=trusted,
            offset=self.block.start,
        )
        self._begun = updates, small.over(self.state(version))
        self._states = {version: self._states[version]}
        self._results = {key: value for key, value in self._results.items() if key == version}

    def total(self, question: Question[Any]) -> Float64s:
        return total(question, *self._round_begun())

    def settle(self, finish: Finish[Any], version: str) -> bool:
        """Make this block of the global update and of the next state; whether all of it is finite."""
        update, self._states[version] = settle(finish, *self._round_begun())
        self._results[version] = update
        return kernels.all_finite(update)

    def pid(self) -> int:
        return os.getpid()

    def _round_begun(self) -> tuple[Updates, State]:
        if self._begun is None:
            raise ShardError(f"{self} was asked before a round began")
        return self._begun

    def _known(self, held: dict[str, Any], version: str) -> Any:
        if version not in held:
            raise ShardError(f"{self} does not hold state {version}; restore it from a checkpoint with scatter()")
        return held[version]

    def __str__(self) -> str:
        return f"the shard of columns {self.block.start}:{self.block.stop}"
