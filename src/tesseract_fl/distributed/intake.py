"""How rows get to the shards: one at a time, cut by columns, through the gate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tesseract_fl.distributed.driver import Shards, ask
from tesseract_fl.gate import Gate
from tesseract_fl.kernels import squared_norms
from tesseract_fl.types import ClientId, Cohort, ConfigError, Floats, QuorumError, Rejection


class Intake:
    """Takes the rows of one round; at most `capacity` of them. The matrix exists in the shards only."""

    def __init__(self, shards: Shards, *, round: int, capacity: int, gate: Gate | None = None) -> None:
        self._shards, self._round, self._gate = shards, round, gate or Gate()
        self._alone = replace(
            self._gate, quorum=1, max_norm_ratio=None, max_sample_ratio=None
        )  # what a row says itself
        self._sent: dict[ClientId, tuple[float, Any]] = {}  # norm and claimed sample count, in order of arrival
        self._rejected: list[Rejection] = []
        ask(shards, "open", round, capacity)

    def add(self, client: ClientId, row: Floats, samples: Any = None) -> Rejection | None:
        """Send a client's flat update to the shards, as float32; why not, if its values or claims are turned away."""
        if row.shape != (self._shards.d,):
            raise ConfigError(f"an update must have shape ({self._shards.d},), got {row.shape}")
        with np.errstate(over="ignore"):  # what float32 can't hold is infinite, and turned away
            row = row.astype(np.float32, copy=False)
        try:
            self._alone.screen(row[None], [client], round=self._round, samples=[samples])
        except QuorumError as nobody:
            self._rejected += nobody.rejected
            return nobody.rejected[0]
        if client in self._sent:
            twice = Rejection(client, "duplicate_id", "this client already has an update in this round")
            self._rejected.append(twice)
            return twice
        self._shards.call("put", [(client, row[block]) for block in self._shards.blocks])
        self._sent[client] = float(np.sqrt(squared_norms(row[None])[0])), samples
        return None

    def cohort(self) -> Cohort:
        """Who takes part: what the gate makes of all norms and claims together; QuorumError if that is too few."""
        norms = np.array([[norm] for norm, _ in self._sent.values()]).reshape(-1, 1)  # a row is as good as its norm
        claims = [claim for _, claim in self._sent.values()]
        gate, ids, rejected = self._gate, list(self._sent), self._rejected
        return gate.screen(norms, ids, round=self._round, samples=claims, rejected=rejected).cohort
