"""Named arrays ↔ one flat vector: the only place that knows how a model is laid out in a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tesseract_fl.types import Floats


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one named array lives in the flat vector."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int

    @property
    def columns(self) -> slice:
        return slice(self.start, self.start + prod(self.shape))


@dataclass(frozen=True, slots=True)
class Layout:
    """The names, shapes and dtypes of a model's arrays, in order.

    >>> layout = Layout.of({"w": np.zeros((2, 2), np.float32), "b": np.ones(2, np.float32)})
    >>> layout.d
    6
    >>> layout.unflatten(np.arange(6, dtype=np.float32))["b"].tolist()
    [4.0, 5.0]
    """

    slots: tuple[Slot, ...]

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Layout:
        slots: list[Slot] = []
        start = 0
        for name, array in arrays.items():
            slots.append(Slot(name, tuple(array.shape), array.dtype, start))
            start += array.size
        return cls(tuple(slots))

    @property
    def d(self) -> int:
        return self.slots[-1].columns.stop if self.slots else 0

    def __iter__(self) -> Iterator[Slot]:
        return iter(self.slots)

    def flatten(self, arrays: Mapping[str, np.ndarray[Any, Any]], out: Floats | None = None) -> Floats:
        """Write the arrays one after the other into `out`, a vector of length d."""
        row = np.empty(self.d, np.float32) if out is None else out
        for slot in self.slots:
            row[slot.columns] = np.asarray(arrays[slot.name]).reshape(-1)
        return row

    def unflatten(self, vector: Floats) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays again, in the model's own shapes and dtypes."""
        return {
            slot.name: vector[slot.columns].reshape(slot.shape).astype(slot.dtype, copy=False) for slot in self.slots
        }
