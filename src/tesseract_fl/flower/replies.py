"""What a reply holds: nothing in it is believed, and nothing in it can raise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any, Literal

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from numpy.lib import format as npy

from tesseract_fl.flower.client import NONCE, RECORD
from tesseract_fl.flower.grid import UNDECODABLE

# What a client can't be blamed for: unknown, app not loaded, message or reply lost, node gone, invalid app, crash.
ABSENT = {
    0: "unknown",
    1: "app_not_loaded",
    3: "lost",
    4: "lost",
    5: "node_unavailable",
    7: "invalid_app",
    8: "crashed",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a reply brings no update. `kind` is a verdict: rejected, ignored or absent."""

    kind: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Content:
    """A reply that can be offered to the gate."""

    arrays: Mapping[str, np.ndarray[Any, Any]]
    samples: Any
    metrics: Mapping[str, Any]


def read(reply: Message, nonce: str, *, samples_key: str, nonce_required: bool, with_arrays: bool) -> Content | Fault:
    """The arrays and numbers in a reply to a message that had this nonce, or why there are none."""
    try:
        if reply.has_error():
            return _error(reply.error)
        # Flower's own views (content.array_records) are part of a reference cycle: they would keep every reply alive
        # until the garbage collector comes round.
        content = dict(reply.content.items())
        arrays_sent = [record for record in content.values() if isinstance(record, ArrayRecord)]
        metrics_sent = [record for record in content.values() if isinstance(record, MetricRecord)]
        bound = _unbound(content.get(RECORD), nonce, nonce_required)
        if bound is not None:
            return bound
        if with_arrays and len(arrays_sent) != 1:
            return Fault("rejected", "wrong_records", f"{len(arrays_sent)} array records, not one")
        arrays = named_arrays(arrays_sent[0]) if with_arrays else {}
        numbers = {key: value for record in metrics_sent for key, value in record.items()}
        return Content(arrays, numbers.get(samples_key), numbers)
    except Exception as error:  # whatever it is, it is this client's reply and not the round's end
        return Fault("rejected", "undecodable", clean(f"{type(error).__name__}: {error}"))


def _unbound(record: Any, nonce: str, required: bool) -> Fault | None:
    """A reply that can't be bound to the message is not counted, and nobody is blamed: it may be a forgery."""
    returned = record.get(NONCE) if isinstance(record, ConfigRecord) else None
    if returned == nonce or (returned is None and not required):
        return None
    if returned is None:
        return Fault(
            "ignored", "no_nonce", "the reply does not return the nonce: ClientApp(mods=[tesseract_fl.flower.echo])"
        )
    return Fault("ignored", "wrong_nonce", "the reply returns another nonce than the message had")


def _error(error: Any) -> Fault:
    reason = clean(str(error.reason))
    if error.code == UNDECODABLE:
        return Fault("rejected", "undecodable", reason)
    if error.code in ABSENT:
        return Fault("absent", ABSENT[error.code], reason)
    return Fault("rejected", "client_error", reason)


def named_arrays(record: ArrayRecord) -> dict[str, np.ndarray[Any, Any]]:
    return {str(name): as_numpy(array) for name, array in record.items()}


def as_numpy(array: Array) -> np.ndarray[Any, Any]:
    """What `array.numpy()` gives, without a copy, and without allocating whatever size a header claims."""
    if array.stype != "numpy.ndarray":
        raise TypeError(f"arrays must be sent as numpy.ndarray, got {array.stype!r}")
    start, shape, order, dtype = _header(_head(array.data))
    size = math.prod(shape) * dtype.itemsize
    if len(array.data) - start != size:
        raise ValueError(f"{len(array.data) - start} bytes were sent for an array of {size}")
    flat = np.frombuffer(array.data, dtype, offset=start) if size else np.empty(0, dtype)
    return flat.reshape(shape, order=order)


def _head(data: bytes) -> bytes:
    """Everything before the numbers; format 1.0 has two bytes for its length, later ones four."""
    width = 2 if data[6:8] == b"\x01\x00" else 4
    return data[: 8 + width + int.from_bytes(data[8 : 8 + width], "little")]


@lru_cache(maxsize=4096)
def _header(head: bytes) -> tuple[int, tuple[int, ...], Literal["C", "F"], np.dtype[Any]]:
    """Where the numbers begin, and what they are. Kept: numpy compiles each header, and all clients' are alike."""
    stream = BytesIO(head)
    version = npy.read_magic(stream)
    shape, fortran, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(stream)
    if dtype.hasobject:
        raise TypeError("arrays of objects are not accepted")
    return stream.tell(), shape, "F" if fortran else "C", dtype


def clean(text: str) -> str:
    """A client's own words, short and on one line, fit for a log."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:300])
