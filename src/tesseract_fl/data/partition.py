"""How samples are dealt out to clients: pure functions of labels and a generator."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np

from tesseract_fl.types import Bools, ConfigError, Ints


@dataclass(frozen=True, kw_only=True)
class Partition(ABC):
    """Deals samples out to clients, by what `deals_by` says: `_owners` sees the label, or the group, of each."""

    deals_by: ClassVar[Literal["labels", "groups", "nothing"]] = "labels"

    @final
    def split(
        self, labels: Ints, n: int, classes: int, rng: np.random.Generator, groups: Ints | None = None
    ) -> list[Ints]:
        """For each of n clients the row numbers of its samples, shuffled. Every client has at least one.

        `groups`: who made each sample, 0, 1, …, where that is known.
        """
        if len(labels) < n:
            raise ConfigError(f"{len(labels)} samples can't be dealt out to {n} clients")
        owner = self._owners(self._seen(labels, groups), n, classes, rng)  # one client per sample
        owner = rng.permutation(n)[owner]  # so that a client's number says nothing about its classes
        _leave_nobody_empty(owner, n, self._may_move(labels))
        order = rng.permutation(len(labels))
        order = order[np.argsort(owner[order], kind="stable")]
        return np.split(order, np.cumsum(np.bincount(owner, minlength=n))[:-1])

    def _seen(self, labels: Ints, groups: Ints | None) -> Ints:
        if self.deals_by == "labels" and labels.ndim != 1:
            raise ConfigError(
                f"{type(self).__name__} deals by label, but here a sample is a sequence with many; "
                "use the partition consecutive, iid, or (where there are roles) by_writer"
            )
        if self.deals_by == "groups" and groups is None:
            raise ConfigError("by_writer needs data that says who made each sample (femnist, shakespeare by role)")
        return groups if self.deals_by == "groups" and groups is not None else labels

    @abstractmethod
    def _owners(self, labels: Ints, n: int, classes: int, rng: np.random.Generator) -> Ints: ...

    def _may_move(self, labels: Ints) -> Bools:
        """Which samples may go to a client that was left without any."""
        return np.ones(len(labels), np.bool_)


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

    deals_by = "nothing"

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
        below, drawn = shares.cumsum(axis=1), rng.random(len(labels))
        owner = np.empty(len(labels), np.int64)
        for label in range(classes):
            own = labels == label
            owner[own] = np.searchsorted(below[label], drawn[own]).clip(max=n - 1)
        return owner


@dataclass(frozen=True, kw_only=True)
class LoneClass(LabelBiased):
    """One client alone has all samples of the class `label`; the others are dealt out label-biased.

    For a defence the hardest honest client: nobody else pulls where it pulls.
    """

    label: int = 0

    def _owners(self, labels: Ints, n: int, classes: int, rng: np.random.Generator) -> Ints:
        if not 0 <= self.label < classes:
            raise ConfigError(f"lone_class: label must be between 0 and {classes - 1}, got {self.label}")
        return np.where(labels == self.label, n - 1, super()._owners(labels, n, classes, rng))

    def _may_move(self, labels: Ints) -> Bools:
        others: Bools = labels != self.label
        return others


@dataclass(frozen=True, kw_only=True)
class Shards(Partition):
    """Samples sorted by label are cut into equal shards, of which every client gets `per_client`.

    McMahan et al., Communication-efficient learning of deep networks from decentralized data, 2017.
    """

    per_client: int = 2

    def __post_init__(self) -> None:
        if self.per_client < 1:
            raise ConfigError(f"shards: per_client must be at least 1, got {self.per_client}")

    def _owners(self, labels: Ints, n: int, classes: int, rng: np.random.Generator) -> Ints:
        shards = n * self.per_client
        if len(labels) < shards:
            raise ConfigError(f"{len(labels)} samples can't be cut into {shards} shards; set a smaller per_client")
        shuffled = rng.permutation(len(labels))  # which samples of a class share a shard is left to chance
        order = shuffled[np.argsort(labels[shuffled], kind="stable")]
        client_of_shard = rng.permutation(np.arange(shards) % n)
        owner = np.empty(len(labels), np.int64)
        owner[order] = client_of_shard[np.arange(len(labels)) * shards // len(labels)]
        return owner


@dataclass(frozen=True, kw_only=True)
class ByWriter(Partition):
    """Writers (or roles) are dealt round-robin to clients, each with everything that they wrote."""

    deals_by = "groups"

    def _owners(self, labels: Ints, n: int, classes: int, rng: np.random.Generator) -> Ints:
        writers, number = np.unique(labels, return_inverse=True)  # what it deals by, here the groups
        if len(writers) < n:
            raise ConfigError(f"{len(writers)} writers can't be dealt out to {n} clients; ask at most {len(writers)}")
        owner: Ints = number.astype(np.int64) % n
        return owner


@dataclass(frozen=True, kw_only=True)
class Consecutive(Partition):
    """The samples in the order in which they come, as those of a text, cut into as many equal parts as clients."""

    deals_by = "nothing"

    def _owners(self, labels: Ints, n: int, classes: int, rng: np.random.Generator) -> Ints:
        return np.arange(len(labels)) * n // len(labels)


def _leave_nobody_empty(owner: Ints, n: int, may_move: Bools) -> None:
    """A client without data takes one sample from whoever has most that may move."""
    spare = np.bincount(owner[may_move], minlength=n)
    for client in np.flatnonzero(np.bincount(owner, minlength=n) == 0):
        richest = int(spare.argmax())
        if spare[richest] < 2:
            raise ConfigError(f"{len(owner)} samples are too few to leave none of {n} clients without any")
        owner[np.flatnonzero((owner == richest) & may_move)[0]] = client
        spare[richest] -= 1
        spare[client] += 1
