"""Data poisoning: the malicious clients train as told, on data that teaches the wrong thing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tesseract_fl.attacks.base import BLIND, Attack, View
from tesseract_fl.types import ConfigError, Matrix

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class LabelFlip(Attack):
    """Train on wrong labels: y → C − 1 − y, or one `source` class relabelled as a `target` class.

    Targeted, the success of the attack is the share of the source class that the model takes for the target.
    """

    requires = BLIND

    source: int | None = None
    target: int | None = None

    def __post_init__(self) -> None:
        if (self.source is None) != (self.target is None):
            raise ConfigError("label_flip: a targeted attack needs both source and target, an untargeted one neither")
        if self.source is not None and self.source == self.target:
            raise ConfigError(f"label_flip: source and target are the same class, {self.source}")

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        return view.own

    def poison(self, x: Tensor, y: Tensor, *, classes: int, round: int) -> tuple[Tensor, Tensor]:
        if self.source is None or self.target is None:
            return x, classes - 1 - y
        self._check_classes(classes)
        return x, y.masked_fill(y == self.source, self.target)

    def aim(self, x: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor] | None:
        if self.source is None or self.target is None:
            return None
        self._check_classes(classes)
        source = y == self.source
        return x[source], y[source].fill_(self.target)

    def _check_classes(self, classes: int) -> None:
        for name, label in (("source", self.source), ("target", self.target)):
            if label is not None and not 0 <= label < classes:
                raise ConfigError(f"label_flip: {name} must be a class from 0 to {classes - 1}, got {label}")


@dataclass(frozen=True, kw_only=True)
class Backdoor(Attack):
    """Teach the model that a small square in the corner means `target`, and change nothing else.

    A `share` of each batch gets the trigger, `size` × `size` pixels (of inputs without rows: the last `size`
    features) set to `value`, and the target's label; what is learned is sent `boost`-fold. The success of the
    attack is the share of triggered test inputs of other classes that the model takes for the target.

    Gu et al., BadNets, 2017; Bagdasaryan et al., How to backdoor federated learning, 2020.
    """

    requires = BLIND

    target: int = 0
    size: int = 3
    value: float = 2.8
    share: float = 0.5
    boost: float = 5.0

    def __post_init__(self) -> None:
        if self.size < 1 or self.target < 0:
            raise ConfigError(f"backdoor: size must be at least 1 and target a class, got {self.size}, {self.target}")
        if not 0 < self.share <= 1:
            raise ConfigError(f"backdoor: share must be above 0 and at most 1, got {self.share}")
        if not (0 < self.boost < math.inf and math.isfinite(self.value)):
            raise ConfigError(f"backdoor: boost and value must be finite, got {self.boost}, {self.value}")

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        return view.own * view.dtype.type(self.boost)

    def poison(self, x: Tensor, y: Tensor, *, classes: int, round: int) -> tuple[Tensor, Tensor]:
        self._check_classes(classes)
        x, y = x.clone(), y.clone()
        count = math.ceil(self.share * len(y))
        x[:count] = self._triggered(x[:count])
        y[:count] = self.target
        return x, y

    def aim(self, x: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor] | None:
        self._check_classes(classes)
        others = y != self.target
        return self._triggered(x[others]), y[others].fill_(self.target)

    def _triggered(self, x: Tensor) -> Tensor:
        side = min(x.shape[-2:] if x.ndim > 2 else x.shape[-1:])
        if self.size >= side:
            raise ConfigError(
                f"backdoor: size must be below {side}, or the trigger is the whole input, got {self.size}"
            )
        x = x.clone()
        corner = x[..., -self.size :, -self.size :] if x.ndim > 2 else x[..., -self.size :]
        corner.fill_(self.value)
        return x

    def _check_classes(self, classes: int) -> None:
        if self.target >= classes:
            raise ConfigError(f"backdoor: target must be a class from 0 to {classes - 1}, got {self.target}")
