"""The contract of an attack: a frozen configuration, and `craft(view, rng)` → rows for the malicious clients.

`view` is what the threat model grants. The public call is final: it checks what it was given, lets the
attack craft, and checks what came out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tesseract_fl.types import ConfigError, Matrix


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """What a full-knowledge attacker sees in a round.

    `benign`: the updates that the honest clients are about to send, n−c × d. `own`: what the malicious
    clients would send if they were honest, c × d. `defence`: the rule's report of the last round.
    """

    round: int
    benign: Matrix
    own: Matrix
    defence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n(self) -> int:
        return int(self.benign.shape[0]) + self.c

    @property
    def c(self) -> int:
        return int(self.own.shape[0])

    @property
    def d(self) -> int:
        return int(self.own.shape[1])

    @cached_property
    def direction(self) -> npt.NDArray[np.int8]:
        """s_j = sign(Σ_i u_ij) over the benign clients: where an honest round would go."""
        signs: npt.NDArray[np.int8] = np.sign(self.benign.sum(axis=0, dtype=np.float64)).astype(np.int8)
        return signs


@dataclass(frozen=True, kw_only=True)
class Attack(ABC):
    """Crafts what the malicious clients send."""

    @final
    def craft(self, view: View, rng: np.random.Generator) -> Matrix:
        """The c × d rows that the malicious clients send in this round."""
        if view.c == 0:
            return view.own
        self.check(view.n, view.c)
        rows = self._craft(view, rng)
        if rows.shape != view.own.shape or rows.dtype != view.own.dtype:
            raise TypeError(
                f"{type(self).__name__} crafted {rows.shape} {rows.dtype}, not {view.own.shape} {view.own.dtype}"
            )
        return rows

    def check(self, n: int, c: int) -> None:
        """Raise ConfigError unless the attack is defined for c malicious among n clients."""
        if n - c < 1:
            raise ConfigError(f"an attack needs at least one honest client, got {c} malicious of {n}")

    @abstractmethod
    def _craft(self, view: View, rng: np.random.Generator) -> Matrix: ...


@dataclass(frozen=True, kw_only=True)
class NoAttack(Attack):
    """The malicious clients behave honestly."""

    def check(self, n: int, c: int) -> None:
        pass

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        return view.own
