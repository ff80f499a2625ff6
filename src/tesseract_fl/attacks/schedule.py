"""When an attack strikes, and under which name: wrappers around any other attack, `sleeper+full_trim`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tesseract_fl.attacks.base import Attack, Knowledge, View
from tesseract_fl.types import ClientId, ConfigError, Matrix

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Scheduled(Attack):
    """Another attack in the rounds in which it is active; honest in the others."""

    inner: Attack

    def active(self, round: int) -> bool:
        return True

    def clock(self, round: int) -> int:
        """Which round it is for the other attack."""
        return round

    @property
    def needs(self) -> Knowledge:
        return self.inner.needs

    @property
    def least_known(self) -> int:
        return self.inner.least_known

    def check(self, n: int, c: int) -> None:
        self.inner.check(n, c)

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        if not self.active(view.round):
            return view.honest(f"{type(self).__name__.lower()}: not in this round")
        return self.inner.craft(replace(view, round=self.clock(view.round)), rng)

    def poison(self, x: Tensor, y: Tensor, *, classes: int, round: int) -> tuple[Tensor, Tensor]:
        return self.inner.poison(x, y, classes=classes, round=self.clock(round)) if self.active(round) else (x, y)

    def alias(self, client: ClientId, round: int) -> ClientId:
        return self.inner.alias(client, self.clock(round))

    def aim(self, x: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor] | None:
        return self.inner.aim(x, y, classes)


@dataclass(frozen=True, kw_only=True)
class Covered(Scheduled):
    """In the rounds in which it is not active it does what its `cover` does instead of honest work, if it has one."""

    cover: Attack | None = None

    @property
    def needs(self) -> Knowledge:
        return self.inner.needs if self.cover is None else self.inner.needs.and_also(self.cover.needs)

    @property
    def least_known(self) -> int:
        return max(attack.least_known for attack in (self.inner, self.cover) if attack is not None)

    def check(self, n: int, c: int) -> None:
        super().check(n, c)
        if self.cover is not None:
            self.cover.check(n, c)

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        if self.cover is None or self.active(view.round):
            return super()._craft(view, rng)
        return self.cover.craft(view, rng)

    def poison(self, x: Tensor, y: Tensor, *, classes: int, round: int) -> tuple[Tensor, Tensor]:
        if self.cover is None or self.active(round):
            return super().poison(x, y, classes=classes, round=round)
        return self.cover.poison(x, y, classes=classes, round=round)


@dataclass(frozen=True, kw_only=True)
class Sleeper(Covered):
    """Honest for the first `until` rounds, to earn a reputation; then strike, as if the run began there.

    `cover`: what it does until then instead of honest work, as `gaussian`, which may cost others theirs.
    """

    until: int = 100

    def __post_init__(self) -> None:
        if self.until < 0:
            raise ConfigError(f"sleeper: until must be a number of rounds, got {self.until}")

    def active(self, round: int) -> bool:
        return round > self.until

    def clock(self, round: int) -> int:
        return max(1, round - self.until)


@dataclass(frozen=True, kw_only=True)
class OnOff(Covered):
    """Attack for `on` rounds, behave for `off` rounds, and so on: redeemed by the time of the next strike.

    `cover`: what it does in between instead of honest work, as `camouflage` along the honest mean, a fiftieth as long,
    which pays at hardly any cost for having pulled the other way.
    """

    on: int = 5
    off: int = 5

    def __post_init__(self) -> None:
        if self.on < 1 or self.off < 0:
            raise ConfigError(f"on_off: on must be at least 1 and off at least 0, got {self.on} and {self.off}")

    def active(self, round: int) -> bool:
        return (round - 1) % (self.on + self.off) < self.on


@dataclass(frozen=True, kw_only=True)
class Whitewash(Scheduled):
    """Leave every `every` rounds and come back under a new id, without the reputation of the old one."""

    every: int = 10

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ConfigError(f"whitewash: every must be at least 1, got {self.every}")

    def alias(self, client: ClientId, round: int) -> ClientId:
        """
        >>> from tesseract_fl.attacks.base import NoAttack
        >>> [Whitewash(inner=NoAttack(), every=2).alias("7", t) for t in (1, 2, 3, 5)]
        ['7', '7', '7~1', '7~2']
        """
        life = (round - 1) // self.every
        return self.inner.alias(client, round) + (f"~{life}" if life else "")
