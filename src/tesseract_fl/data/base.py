"""What a data set is once it is read, and where readers look for files."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tesseract_fl.data.augment import Augmentation
from tesseract_fl.randomness import generator
from tesseract_fl.types import ConfigError, DataError, Ints

Inputs: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Inputs as the model takes them, normalised float32 (characters: their numbers); labels 0 … classes−1.

    `name` says what was really read, a stand-in included. Where an input is a sequence, its label is one too: the
    next symbol at each position. `groups` is who made each training sample (writers, roles), 0, 1, …, where that is
    known. `augment` is what training does to a batch.
    """

    name: str
    train_x: Inputs
    train_y: Ints
    test_x: Inputs
    test_y: Ints
    classes: int
    groups: Ints | None = None
    augment: Augmentation | None = None

    def __post_init__(self) -> None:
        for x, y, part in ((self.train_x, self.train_y, "training"), (self.test_x, self.test_y, "test")):
            if len(x) != len(y) or not len(x):
                raise DataError(
                    f"{self.name} has {len(x)} {part} inputs and {len(y)} labels; as many, and some, are needed"
                )
            if y.min() < 0 or y.max() >= self.classes:
                raise DataError(f"{self.name} has labels from {y.min()} to {y.max()}, not 0 to {self.classes - 1}")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train_x.shape[1:])

    @cached_property
    def checksum(self) -> str:
        """Identifies the exact numbers that a run was made with."""
        digest = hashlib.sha256()
        for array in (self.train_x, self.train_y, self.test_x, self.test_y, self.groups):
            if array is None:
                continue
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Reader(ABC):
    """Reads one data set."""

    @property
    def partition(self) -> str:
        """How it is dealt out to clients if nobody says otherwise."""
        return "label_biased"

    @abstractmethod
    def read(self, directory: Path | None = None) -> Dataset:
        """`directory` is where the user keeps data sets; see `data_directory` for the default."""


def data_directory(named: Path | None) -> Path:
    """The directory that was named, else $TESSERACT_FL_DATA, else the user's cache."""
    if named is not None:
        return named
    if "TESSERACT_FL_DATA" in os.environ:
        return Path(os.environ["TESSERACT_FL_DATA"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tesseract-fl" / "data"


def standardise(
    train: npt.NDArray[np.float32], test: npt.NDArray[np.float32], axis: int | tuple[int, ...] | None = None
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Zero mean and unit variance by the training set, over everything or along `axis`; in place."""
    mean = train.mean(axis=axis, dtype=np.float64, keepdims=True)
    energy = np.zeros_like(mean)
    for start in range(0, len(train), 1024):  # the squares of all samples at once would take twice the data's memory
        energy += np.square(train[start : start + 1024] - mean).sum(axis=axis, keepdims=True)
    spread = np.sqrt(energy / (train.size // energy.size)).astype(np.float32)
    if not spread.all():
        raise DataError("there is nothing to learn from this data set: all that it says of its samples is the same")
    for part in (train, test):
        part -= mean.astype(np.float32)
        part /= spread
    return train, test


def held_out(parts: Ints, every: int, name: str) -> npt.NDArray[np.bool_]:
    """Which samples are the test set: of each part (class, writer), one in `every`, drawn once and for all."""
    rng = generator(0, f"split {name}")
    test = np.zeros(len(parts), np.bool_)
    for part in np.unique(parts):
        members = rng.permutation(np.flatnonzero(parts == part))
        test[members[: len(members) // every]] = True
    return test


def needs_extra(package: str, extra: str) -> ConfigError:
    return ConfigError(f"this needs {package}: pip install 'tesseract-fl[{extra}]'")
