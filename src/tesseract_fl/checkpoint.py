"""States and models on disk: safetensors with a JSON header, written atomically, never pickled."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from tesseract_fl.types import CheckpointError

Arrays = dict[str, np.ndarray[Any, Any]]
S = TypeVar("S")
_FORMAT = "tesseract-fl/1"


def write_atomically(path: Path, content: bytes) -> None:
    """A reader, or a process that starts after a kill, sees the old content or the new, never a part."""
    with becoming(path) as file:
        file.write(content)


@contextmanager
def becoming(path: Path) -> Iterator[BinaryIO]:
    """A file that has this name once all of it is on disk; several processes may write it, and the last one wins."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if os.name == "posix":  # a name is on disk with the folder that it is in
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write(path: Path, arrays: Arrays, meta: Mapping[str, Any]) -> None:
    write_atomically(path, encode(arrays, meta))


def encode(arrays: Arrays, meta: Mapping[str, Any]) -> bytes:
    """The bytes of a checkpoint; equal contents are equal bytes."""
    # One key only: safetensors writes several in any order, and equal states must be equal bytes.
    header = {_FORMAT: json.dumps(meta)}
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}  # shape () stays ()
    return save(contiguous, metadata=header)


def decode(content: bytes, source: str) -> tuple[Arrays, dict[str, Any]]:
    """Undo `encode`; `source` says in error messages where the bytes came from."""
    try:
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length]).get("__metadata__", {})
        arrays: Arrays = load(content)
        if _FORMAT not in header:
            raise CheckpointError(f"{source} was not written by this version of tesseract-fl")
        return arrays, json.loads(header[_FORMAT])
    except (SafetensorError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{source} is damaged or not a checkpoint: {error}") from error


def read(path: Path) -> tuple[Arrays, dict[str, Any]]:
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if _FORMAT not in header:
            raise CheckpointError(f"{path} was not written by this version of tesseract-fl")
        return arrays, json.loads(header[_FORMAT])
    except FileNotFoundError as error:
        raise CheckpointError(f"there is no checkpoint at {path}") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged or not a checkpoint: {error}") from error


def pack(state: Any, prefix: str = "") -> tuple[Arrays, dict[str, Any]]:
    """Take a state dataclass apart into arrays and JSON-able values; `unpack` undoes it."""
    arrays: Arrays = {}
    meta: dict[str, Any] = {}
    for field in dataclasses.fields(state):
        key, value = prefix + field.name, getattr(state, field.name)
        if isinstance(value, np.ndarray):
            arrays[key] = value
        elif dataclasses.is_dataclass(value):
            inner_arrays, inner_meta = pack(value, f"{key}.")
            arrays |= inner_arrays
            meta |= inner_meta
        elif isinstance(value, Mapping) and any(isinstance(item, np.ndarray) for item in value.values()):
            arrays |= {f"{key}/{name}": array for name, array in value.items()}
            meta[key] = list(value)
        else:
            meta[key] = value
    return arrays, meta


def unpack(template: S, arrays: Arrays, meta: Mapping[str, Any], prefix: str = "") -> S:
    """Put a state together again; `template` is any state of the same rule, such as its first.

    What is `new` in a rule's state, by its field's metadata, starts as in the template where an older state lacks it.
    """
    values: dict[str, Any] = {}
    for field in dataclasses.fields(template):  # type: ignore[arg-type]
        key, like = prefix + field.name, getattr(template, field.name)
        if dataclasses.is_dataclass(like):
            values[field.name] = unpack(like, arrays, meta, f"{key}.")
        elif key in arrays:
            values[field.name] = arrays[key]
        elif key not in meta and field.metadata.get("new"):
            values[field.name] = like
        elif key not in meta:
            raise CheckpointError(f"the stored state has no {key!r}: it belongs to another rule")
        elif isinstance(like, Mapping) and isinstance(meta[key], list):
            values[field.name] = {name: arrays[f"{key}/{name}"] for name in meta[key]}
        else:
            values[field.name] = meta[key]
    return type(template)(**values)
