"""Matrices that live in a file: a block of columns at a time is read, and then no page of it stays resident."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

BLOCK_BYTES = 2**28  # of 1,000 float32 rows a block then has pieces of 268 kB: large enough for a disk


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


def width(n: int, itemsize: int, budget: int) -> int:
    """How many columns of n rows fit into a budget of bytes, at least one."""
    return max(budget // max(n * itemsize, 1), 1)


def read(matrix: Array, block: slice) -> Array:
    """A copy of some columns of a mapped matrix; what the file holds is then let go of."""
    file = mapping(matrix)
    pieces = matrix[:, block]
    if file is None or not hasattr(file, "madvise"):
        return np.array(pieces)
    _ask_for(file, pieces)
    copy = np.array(pieces, subok=False, order="C")
    file.madvise(mmap.MADV_DONTNEED)
    return copy


def _ask_for(file: mmap.mmap, pieces: Array) -> None:
    """Have the kernel read all pieces of a block at once, and nothing around them as it otherwise would."""
    first = np.frombuffer(file, np.uint8).ctypes.data
    start = pieces.ctypes.data - first
    length = (pieces.shape[1] - 1) * pieces.strides[1] + pieces.itemsize
    for row in range(len(pieces)):
        begin = start + row * pieces.strides[0]
        aligned = begin - begin % mmap.PAGESIZE
        file.madvise(mmap.MADV_WILLNEED, aligned, begin + length - aligned)
