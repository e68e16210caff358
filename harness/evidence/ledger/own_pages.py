"""Large columns in memory pages of their own, which return to the system as soon as a column is dropped.

The allocator of the C library keeps most of the memory of dropped columns: other columns lie between them.
A page takes memory only when something was written to it.
"""

from __future__ import annotations

import mmap
from math import prod
from typing import Any, Final

import numpy as np

LARGE_BYTES: Final = 1 << 20
"""Size of a column in bytes from which it gets its own pages."""


def empty(shape: tuple[int, ...], kind: Any) -> Any:
    """Return an array whose elements have any values, as `numpy.empty` does."""
    kind = np.dtype(kind)
    size = prod(shape) * kind.itemsize
    if size < LARGE_BYTES:
        return np.empty(shape, kind)
    return np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), kind).reshape(
        shape
    )


def copied(column: Any, kind: Any = None) -> Any:
    """Return a copy of a column."""
    copy = empty(column.shape, column.dtype if kind is None else kind)
    copy[...] = column
    return copy
