"""Matrices that live in a file: a block of columns at a time is read, and then no page of it stays resident."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

BLOCK_BYTES = 2**28  # of 1,000 float32 rows a block then has pieces of 268 kB: large enough for a disk
_TOGETHER = 16  # rows between two releases: the kernel may map 2 MiB where a row needs a few pages


def mapping(matrix: Any) -> mmap.mmap | None:
    """The mapped file under an array, through any number of views; None where there is none.

    A private mapping (numpy's mode "c") does not count: pages that were written to exist nowhere else.
    """
    while isinstance(matrix, np.ndarray):
        base: Any = matrix.base
        if isinstance(matrix, np.memmap) and isinstance(base, mmap.mmap):
            return None if matrix.mode == "c" else base
        matrix = base
    return None


def blocks(matrix: Any, widest: int | None = None, budget: int = BLOCK_BYTES) -> list[slice]:
    """The columns of a matrix in blocks of at most a budget of bytes and a number of columns, at least one."""
    n, d = matrix.shape
    fitting = budget // max(n * matrix.itemsize, 1)
    width = max(fitting if widest is None else min(fitting, widest), 1)
    return [slice(start, min(start + width, d)) for start in range(0, max(d, 1), width)]


def read(matrix: Array, block: slice) -> Array:
    """A copy of some columns of a mapped matrix; every page of the file is let go of soon after it was read."""
    file, pieces = mapping(matrix), matrix[:, block]
    copy = np.empty(pieces.shape, pieces.dtype)
    if file is None or not hasattr(file, "madvise"):
        copy[:] = pieces
        return copy
    by_row = abs(pieces.strides[0]) >= abs(pieces.strides[1])
    source, target = (pieces, copy) if by_row else (pieces.T, copy.T)
    for row in range(len(source)):  # all at once, and not what lies around them, as the kernel would by itself
        _advise(file, mmap.MADV_WILLNEED, source[row : row + 1])
    for row in range(0, len(source), _TOGETHER):
        group = slice(row, row + _TOGETHER)
        target[group] = source[group]
        _advise(file, mmap.MADV_DONTNEED, source[group])
    return copy


def _advise(file: mmap.mmap, advice: int, part: Array) -> None:
    """Advice about all pages from the lowest to the highest address of an array."""
    low = part.ctypes.data - np.frombuffer(file, np.uint8).ctypes.data
    high = low + part.itemsize
    for size, stride in zip(part.shape, part.strides, strict=True):
        low, high = low + min((size - 1) * stride, 0), high + max((size - 1) * stride, 0)
    if part.size:
        page = low - low % mmap.PAGESIZE
        file.madvise(advice, page, high - page)
