"""How rows get to the shards: one at a time, cut by columns, through the gate."""

from __future__ import annotations

from typing import Any

import numpy as np

from tesseract_fl.distributed.driver import Shards, ask
from tesseract_fl.gate import Admissions, Gate
from tesseract_fl.kernels import squared_norms
from tesseract_fl.types import ClientId, Cohort, ConfigError, Floats, Rejection


class Intake:
    """Takes the rows of one round; at most `capacity` of them. The matrix exists in the shards only."""

    def __init__(self, shards: Shards, *, round: int, capacity: int, gate: Gate | None = None) -> None:
        self._shards = shards
        self._admissions = Admissions(gate or Gate(), round)
        ask(shards, "open", round, capacity)

    def add(self, client: ClientId, row: Floats, samples: Any = None) -> Rejection | None:
        """Send a client's flat update to the shards, as float32; why not, if its values or claims are turned away."""
        if row.shape != (self._shards.d,):
            raise ConfigError(f"an update must have shape ({self._shards.d},), got {row.shape}")
        with np.errstate(over="ignore"):  # what float32 can't hold is infinite, and turned away
            row = row.astype(np.float32, copy=False)
        squared = float(squared_norms(row[None])[0])
        defect = self._admissions.defect(client, squared, samples)
        if defect is not None:
            return self._admissions.refuse(client, defect)
        self._shards.call("put", [(client, row[block]) for block in self._shards.blocks])
        self._admissions.admit(client, squared, samples)
        return None

    def cohort(self) -> Cohort:
        """Who takes part: what the gate makes of all norms and claims together; QuorumError if that is too few."""
        return self._admissions.conclude()
