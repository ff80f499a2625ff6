"""How samples are dealt out to clients: pure functions of labels and a generator."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from tesseract_fl.types import ConfigError, Ints


@dataclass(frozen=True, kw_only=True)
class Partition(ABC):
    """Deals samples out to clients."""

    @final
    def split(self, labels: Ints, n: int, classes: int, rng: np.random.Generator) -> list[Ints]:
        """For each of n clients the row numbers of its samples, shuffled. Every client has at least one."""
        if len(labels) < n:
            raise ConfigError(f"{len(labels)} samples can't be dealt out to {n} clients")
        owner = self._owners(labels, n, classes, rng)  # one client per sample
        owner = rng.permutation(n)[owner]  # so that a client's number says nothing about its classes
        _leave_nobody_empty(owner, n)
        order = rng.permutation(len(labels))
        order = order[np.argsort(owner[order], kind="stable")]
        return np.split(order, np.cumsum(np.bincount(owner, minlength=n))[:-1])

    @abstractmethod
    def _owners(self, labels: Ints, n: int, classes: int, rng: np.random.Generator) -> Ints: ...


@dataclass(frozen=True, kw_only=True)
class LabelBiased(Partition):
    """One group of clients per class; a sample goes to its class's group with probability `bias`.

    With 1 − bias it goes to one of the other groups, then to any client of the group. bias = 1/classes is IID.
    With fewer clients than classes, several groups share a client.

    Fang et al., 2020.
    """

    bias: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.bias <= 1:
            raise ConfigError(f"label_biased: bias must be between 0 and 1, got {self.bias}")

    def _owners(self, labels: Ints, n: int, classes: int, rng: np.random.Generator) -> Ints:
        other = (labels + rng.integers(1, classes, len(labels))) % classes
        group = np.where(rng.random(len(labels)) < self.bias, labels, other)
        first = group * n // classes
        size = np.maximum((group + 1) * n // classes - first, 1)
        owner: Ints = first + (rng.random(len(labels)) * size).astype(np.int64)
        return owner


@dataclass(frozen=True, kw_only=True)
class Iid(Partition):
    """Every client gets an equal share of a shuffled data set."""

    def _owners(self, labels: Ints, n: int, classes: int, rng: np.random.Generator) -> Ints:
        return rng.permutation(np.arange(len(labels)) % n)


@dataclass(frozen=True, kw_only=True)
class Dirichlet(Partition):
    """Each class is dealt out in proportions drawn from Dirichlet(`alpha`); small alpha is strongly non-IID."""

    alpha: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.alpha < math.inf:
            raise ConfigError(f"dirichlet: alpha must be a positive finite number, got {self.alpha}")

    def _owners(self, labels: Ints, n: int, classes: int, rng: np.random.Generator) -> Ints:
        shares = rng.dirichlet(np.full(n, self.alpha), size=classes)  # classes × n
        below = shares.cumsum(axis=1)[labels] < rng.random((len(labels), 1))
        owner: Ints = below.sum(axis=1).clip(max=n - 1)
        return owner


def _leave_nobody_empty(owner: Ints, n: int) -> None:
    """A client without data takes one sample from whoever has most."""
    counts = np.bincount(owner, minlength=n)
    for client in np.flatnonzero(counts == 0):
        richest = int(counts.argmax())
        owner[np.flatnonzero(owner == richest)[0]] = client
        counts[richest] -= 1
        counts[client] += 1
