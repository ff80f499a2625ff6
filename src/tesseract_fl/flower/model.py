"""The global model as the server sent it: parameters that make up an update, and buffers that only come along."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

import numpy as np

from tesseract_fl.layout import Layout, Slot
from tesseract_fl.types import ConfigError, Float64s, Floats

NamedArrays = Mapping[str, np.ndarray[Any, Any]]

# What torch and Keras call the running statistics of a batch norm.
BUFFERS = ("*running_mean", "*running_var", "*num_batches_tracked", "*moving_mean", "*moving_variance")


@dataclass(frozen=True, eq=False)
class Model:
    """Named arrays; `parameters` are those that an update is made of, `buffers` the others.

    >>> bn = {"w": np.ones(2, np.float32), "running_mean": np.zeros(2, np.float32), "steps": np.array(3)}
    >>> model = Model.of(bn)
    >>> model.parameters.d, [slot.name for slot in model.buffers]
    (2, ['running_mean', 'steps'])
    """

    arrays: NamedArrays
    layout: Layout
    parameters: Layout
    buffers: Layout

    @classmethod
    def of(cls, arrays: NamedArrays, buffers: Sequence[str] = BUFFERS) -> Model:
        """Arrays that are not of floating point are buffers, and so are those whose names match a pattern."""
        for name, array in arrays.items():
            if array.dtype.kind not in "fiub":
                raise ConfigError(f"the model's array {name!r} is {array.dtype}; only real numbers can be aggregated")
        is_buffer = {
            name: array.dtype.kind != "f" or any(fnmatch(name, pattern) for pattern in buffers)
            for name, array in arrays.items()
        }
        if all(is_buffer.values()):
            raise ConfigError("the model has no floating-point parameters, so there is nothing to aggregate")
        return cls(
            arrays=arrays,
            layout=Layout.of(arrays),
            parameters=Layout.of({name: array for name, array in arrays.items() if not is_buffer[name]}),
            buffers=Layout.of({name: array for name, array in arrays.items() if is_buffer[name]}),
        )

    def update_of(self, sent: NamedArrays, out: Floats) -> None:
        """u_i = w_i − w_global into a row: subtracted in the model's own precision, then rounded to float32."""
        with np.errstate(invalid="ignore", over="ignore"):
            for slot in self.parameters:
                target = out[slot.columns].reshape(slot.shape)
                np.subtract(
                    sent[slot.name],
                    self.arrays[slot.name],
                    out=target,
                    dtype=_at_least_float32(slot),
                    casting="same_kind",
                )

    def update(self, sent: NamedArrays) -> Floats:
        """The same as a vector of its own, of arrays that the server trusts."""
        row = np.empty(self.parameters.d, np.float32)
        self.update_of(sent, row)
        return row

    def moved(self, update: Floats, buffers: Float64s) -> dict[str, np.ndarray[Any, Any]]:
        """The model after a round, in its own names, order, shapes and dtypes."""
        moved: dict[str, np.ndarray[Any, Any]] = dict(self.arrays)
        with np.errstate(over="ignore"):
            for slot in self.parameters:
                step = update[slot.columns].reshape(slot.shape)
                stepped = self.arrays[slot.name] + step.astype(_at_least_float32(slot))
                moved[slot.name] = np.asarray(stepped, slot.dtype)  # numpy makes scalars of arrays without axes
        for slot in self.buffers:
            moved[slot.name] = np.asarray(_as_dtype(buffers[slot.columns].reshape(slot.shape), slot.dtype))
        return moved

    @property
    def signature(self) -> list[tuple[str, tuple[int, ...], str]]:
        """Names, shapes and dtypes, in order."""
        return [(slot.name, slot.shape, slot.dtype.str) for slot in self.layout]


def _at_least_float32(slot: Slot) -> np.dtype[Any]:
    return np.result_type(slot.dtype, np.float32)


def _as_dtype(values: Float64s, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Counts are rounded to the nearest whole number, and kept within what their dtype can hold."""
    if dtype.kind == "f":
        return values.astype(dtype)
    if dtype.kind == "b":
        return np.asarray(values >= 0.5)
    limits = np.iinfo(dtype)
    return np.clip(np.rint(values), limits.min, limits.max).astype(dtype)
