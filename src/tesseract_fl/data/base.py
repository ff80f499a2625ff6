"""What a data set is once it is read, and where readers look for files."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tesseract_fl.types import ConfigError, Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Inputs as the model takes them, normalised float32; labels 0 … classes−1."""

    name: str
    train_x: npt.NDArray[np.float32]
    train_y: Ints
    test_x: npt.NDArray[np.float32]
    test_y: Ints
    classes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train_x.shape[1:])

    @cached_property
    def checksum(self) -> str:
        """Identifies the exact numbers that a run was made with."""
        digest = hashlib.sha256()
        for array in (self.train_x, self.train_y, self.test_x, self.test_y):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Reader(ABC):
    """Reads one data set."""

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
    train: npt.NDArray[np.float32], test: npt.NDArray[np.float32], axis: int | None = None
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Zero mean and unit variance by the training set, over everything or along `axis`."""
    mean = train.mean(axis=axis, dtype=np.float64).astype(np.float32)
    spread = train.std(axis=axis, dtype=np.float64).astype(np.float32)
    return (train - mean) / spread, (test - mean) / spread


def needs_extra(package: str, extra: str) -> ConfigError:
    return ConfigError(f"this needs {package}: pip install 'tesseract-fl[{extra}]'")
