"""Npy elements: the elements of an npy file, mapped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from dumpstream.comparison.elements import Elements, elements_of
from dumpstream.format.dtypes import DType


@contextmanager
def open_npy(path: str | os.PathLike[str], *, like: DType | None = None) -> Iterator[Elements]:
    """Enter the elements of the npy file *path*; *like* is the type of elements whose type it does not name.

    Takes memory for a block only. Never unpickles.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not an npy file, is damaged, or has elements that cannot be compared.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as exc:
        raise ValueError(f"{os.fspath(path)} is not a whole npy file: {exc}; save it again") from exc
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{os.fspath(path)} has several arrays; save each as an npy file")  # noqa: TRY004
    try:
        yield elements_of(array, like=like)
    except ValueError as exc:
        raise ValueError(f"{os.fspath(path)}: {exc}") from exc
