"""One round's replies: checked, turned into updates and scored as they arrive, in one matrix filled row by row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numba
import numpy as np

from tesseract_fl.flower.model import Model
from tesseract_fl.gate import Admissions, Defect, Gate, Submission, structural_defect
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
        self.model = model
        self._admissions = Admissions(gate, round)
        self._rows = {client: row for row, client in enumerate(sorted(clients))}
        self._matrix = matrix  # n × d
        self._buffers = np.empty((len(clients), model.buffers.d), np.float64)
        self._score = score
        self._scores: dict[ClientId, Float64s] = {}

    def offer(self, sent: Submission) -> Rejection | None:
        """Take one update in, or say why not."""
        with one_thread():
            defect = self._defect(sent)
        return None if defect is None else self._admissions.refuse(sent.client, defect)

    def refuse(self, client: ClientId, code: str, detail: str) -> None:
        """Turn away a client whose reply holds no update at all."""
        self._admissions.refuse(client, (code, detail))

    @property
    def rejected(self) -> list[Rejection]:
        """In an order that does not depend on who answered first."""
        return sorted(self._admissions.rejected, key=_by_client)

    @property
    def turned_away(self) -> list[Rejection]:
        """Those of clients without an update in this round."""
        return sorted(self._admissions.turned_away, key=_by_client)

    def _defect(self, sent: Submission) -> Defect | None:
        admissions = self._admissions
        defect = admissions.client_defect(sent.client) or structural_defect(sent.arrays, self.model.layout)
        if defect is not None:
            return defect
        row = self._rows[sent.client]
        update = self._matrix[row : row + 1]
        self.model.update_of(sent.arrays, update[0])
        self.model.buffers.flatten(sent.arrays, out=self._buffers[row])
        squared = float(squared_norms(update)[0])
        if not np.isfinite(self._buffers[row]).all():
            squared = math.nan
        defect = admissions.defect(sent.client, squared, sent.samples)
        if defect is None:
            admissions.admit(sent.client, squared, sent.samples)
            if self._score is not None:
                self._scores[sent.client] = self._score(update)
        return defect

    def close(self) -> tuple[Updates, Float64s | None, Float64s]:
        """The round's updates, their statistic if it was kept, and their buffers; QuorumError if too few remain."""
        cohort = self._admissions.conclude(order=self._rows)
        self._close_gaps(cohort.ids)
        updates = Updates(
            matrix=self._matrix[: cohort.n],
            ids=cohort.ids,
            round=cohort.round,
            samples=cohort.samples,
            rejected=tuple(self.rejected),
        )
        statistic = np.concatenate([self._scores[client] for client in cohort.ids]) if self._score is not None else None
        return updates, statistic, self._buffers[: cohort.n]

    def _close_gaps(self, kept: Sequence[ClientId]) -> None:
        """Move rows up, in place: a second matrix would double what a round needs."""
        for target, client in enumerate(kept):
            row = self._rows[client]
            if row != target:
                self._matrix[target] = self._matrix[row]
                self._buffers[target] = self._buffers[row]


def _by_client(rejection: Rejection) -> tuple[ClientId, str]:
    return rejection.client, rejection.code
