"""One round's replies: checked, turned into updates and scored as they arrive, in one matrix filled row by row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np

from tesseract_fl.flower.model import Model
from tesseract_fl.gate import Gate, Submission, structural_defect
from tesseract_fl.kernels import squared_norms
from tesseract_fl.types import ClientId, Float64s, Floats, Rejection, Updates

Score = Callable[[Floats], Float64s]  # 1 × d → the statistic of that row


@contextmanager
def one_thread() -> Iterator[None]:
    """A single row is done before a second thread has woken up."""
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        yield
    finally:
        numba.set_num_threads(threads)


class Intake:
    """Every client has a row of its own, so that nothing depends on the order in which they answer."""

    def __init__(
        self, gate: Gate, model: Model, clients: Sequence[ClientId], round: int, score: Score | None, matrix: Floats
    ) -> None:
        self.gate = gate
        self.model = model
        self.round = round
        self.rejected: list[Rejection] = []
        self._rows = {client: row for row, client in enumerate(sorted(clients))}
        self._matrix = matrix  # n × d
        self._buffers = np.empty((len(clients), model.buffers.d), np.float64)
        self._score = score
        self._scores: dict[ClientId, Float64s] = {}
        self._squared: dict[ClientId, float] = {}  # of those who were admitted so far
        self._claims: dict[ClientId, Any] = {}

    def offer(self, sent: Submission) -> Rejection | None:
        """Take one update in, or say why not."""
        with one_thread():
            defect = self._defect(sent)
        if defect is None:
            return None
        rejection = Rejection(sent.client, *defect)
        self.rejected.append(rejection)
        return rejection

    def refuse(self, rejection: Rejection) -> None:
        """Turn away a client whose reply holds no update at all."""
        self.rejected.append(rejection)

    @property
    def turned_away(self) -> list[Rejection]:
        """The rejections of clients without an update in this round; a reply beside a good one is no offence."""
        return [rejection for rejection in self.rejected if rejection.client not in self._squared]

    def _defect(self, sent: Submission) -> tuple[str, str] | None:
        if sent.client in self._squared:
            return "duplicate_id", "this client already has an update in this round"
        defect = structural_defect(sent.arrays, self.model.layout)
        if defect is not None:
            return defect
        row = self._rows[sent.client]
        update = self._matrix[row : row + 1]
        self.model.update_of(sent.arrays, update[0])
        self.model.buffers.flatten(sent.arrays, out=self._buffers[row])
        squared = float(squared_norms(update)[0])
        if not np.isfinite(self._buffers[row]).all():
            squared = math.nan
        defect = self.gate.value_defect(sent.client, squared, sent.samples)
        if defect is None:
            self._squared[sent.client], self._claims[sent.client] = squared, sent.samples
            if self._score is not None:
                self._scores[sent.client] = self._score(update)
        return defect

    def close(self) -> tuple[Updates, Float64s | None, Float64s]:
        """The round's updates, their statistic if it was kept, and their buffers; QuorumError if too few remain."""
        ids = tuple(client for client in self._rows if client in self._squared)
        limit = self.gate.norm_limit(np.array([self._squared[client] for client in ids]))
        kept = tuple(client for client in ids if math.sqrt(self._squared[client]) <= limit)
        for client in set(ids) - set(kept):
            size = f"norm {math.sqrt(self._squared[client]):.3g}, the limit in this round was {limit:.3g}"
            self.rejected.append(Rejection(client, "norm_too_large", size))
            del self._squared[client]
        self.rejected.sort(key=lambda rejection: (rejection.client, rejection.code))
        self.gate.check_quorum(len(kept), self.rejected, self.round)
        self._close_gaps(kept)
        updates = Updates(
            matrix=self._matrix[: len(kept)],
            ids=kept,
            round=self.round,
            samples=self.gate.sample_counts([self._claims[client] for client in kept]),
            rejected=tuple(self.rejected),
        )
        statistic = np.concatenate([self._scores[client] for client in kept]) if self._score is not None else None
        return updates, statistic, self._buffers[: len(kept)]

    def _close_gaps(self, kept: Sequence[ClientId]) -> None:
        """Move rows up, in place: a second matrix would double what a round needs."""
        for target, client in enumerate(kept):
            row = self._rows[client]
            if row != target:
                self._matrix[target] = self._matrix[row]
                self._buffers[target] = self._buffers[row]
