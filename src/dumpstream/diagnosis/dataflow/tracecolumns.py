"""Columns of rows as arrays, taken from however the rows are kept, without an object for each value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dumpstream.statistics.tensors import Tensors

#: The values that a column has, and which of them each row has.
Shared = tuple[Sequence[Any], NDArray[Any]]

_DIGITS = 16  #: of a hash
_DIGIT = np.full(256, 255, np.uint8)  #: what each character is as a digit; 255 if it is not one
_DIGIT[[*b"0123456789abcdef"]] = np.arange(16)
_DIGIT[[*b"ABCDEF"]] = np.arange(10, 16)
_MOST_DIMENSIONS = 16
_MIX = np.uint64(0x9E3779B97F4A7C15)


class TraceColumns:
    """The columns of *tensors*: as arrays where they are kept so, and value by value where not."""

    def __init__(self, tensors: Tensors) -> None:
        self._tensors = tensors

    def shared(self, name: str) -> Shared:
        """Return the values of a column, each once or more often, and which of them each row has."""
        found: Shared | None = self._asked("shared", name)
        if found is not None:
            return found[0], found[1].astype(np.intp)
        values = self._values(name)
        return values, np.arange(len(values))

    def different_numbers(self, name: str) -> Shared:
        """Return the same of a column of integers, in which None is what is not known."""
        found = self._asked("numbers", name)
        if found is None:
            values, of_row = self.shared(name)
            numbered = {value: number for number, value in enumerate(dict.fromkeys(values))}
            return [*numbered], np.array([numbered[value] for value in values], np.intp)[of_row]
        numbers, known = found
        different, of_row = np.unique(numbers, return_inverse=True)
        of_row = np.where(known, of_row.reshape(-1), len(different))
        return [*different.tolist(), None], of_row

    def numbers(self, name: str, dtype: type[Any], unknown: float) -> NDArray[Any]:
        """Return a column of numbers, with *unknown* where there is none, or one that is out of range."""
        found = self._asked("numbers", name)
        if found is not None:
            values, known = found
            return _fitted(values, known, dtype, unknown)
        shared, of_row = self.shared(name)
        return _array(shared, dtype, unknown)[of_row]

    def digests(self) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Return the hashes as integers, and where they are known."""
        values, of_row = self.shared("hash")
        known = np.array([value is not None for value in values], np.bool_)
        return _integers([value or "" for value in values])[of_row], known[of_row]

    def shapes(self) -> Shared:
        """Return the different shapes, and which of them each row has."""
        found = self._asked("lists", "shape")
        if found is not None and (shared := _shared_lists(*found)) is not None:
            return shared
        return self.shared("shape")

    def _asked(self, how: str, name: str) -> Any:
        ask = getattr(self._tensors, how, None)
        return None if ask is None else ask(name)

    def _values(self, name: str) -> list[Any]:
        return self._tensors.columns([name])[name]


def _fitted(values: NDArray[Any], known: NDArray[np.bool_], dtype: type[Any], unknown: float) -> NDArray[Any]:
    if np.issubdtype(dtype, np.floating):
        return np.where(known, values, unknown).astype(dtype)
    limits = np.iinfo(dtype)
    with np.errstate(invalid="ignore"):
        fits = known & (values >= 0) & (values <= limits.max)
        if np.issubdtype(values.dtype, np.floating):
            fits &= values < float(limits.max)  # the limit itself is no double
    fitted: NDArray[Any] = np.where(fits, values, 0).astype(dtype)
    fitted[~fits] = unknown
    return fitted


def _array(values: Sequence[Any], dtype: type[Any], unknown: float) -> NDArray[Any]:
    try:
        return np.array([unknown if value is None else value for value in values], dtype)
    except OverflowError:  # more than 64 bits, which only a forged name or header has
        most = 1 << 63
        known = (unknown if value is None or not 0 <= value < most else value for value in values)
        return np.array([*known], dtype)


def _integers(digests: Sequence[str]) -> NDArray[np.uint64]:
    """Return hexadecimal numbers as integers; 0 for an empty one."""
    text = "".join(digests)
    if len(text) != _DIGITS * len(digests) or not text.isascii() or any(len(it) != _DIGITS for it in digests):
        return np.array([int(it, 16) if it else 0 for it in digests], np.uint64)
    digits = _DIGIT[np.frombuffer(text.encode(), np.uint8)].reshape(-1, _DIGITS)
    if (digits == _DIGIT[0]).any():
        return np.array([int(it, 16) for it in digests], np.uint64)
    pairs = (digits[:, ::2] << 4) | digits[:, 1::2]
    return np.ascontiguousarray(pairs).view(">u8").reshape(-1).astype(np.uint64)


def _shared_lists(lengths: NDArray[Any], values: NDArray[Any]) -> Shared | None:
    """Return the different lists, and which of them each row has; None if they are too long for this."""
    rows, longest = len(lengths), int(lengths.max(initial=0))
    if longest > _MOST_DIMENSIONS:
        return None
    lengths = lengths.astype(np.intp)
    starts = np.cumsum(lengths) - lengths
    padded = np.zeros((rows, longest + 1), np.uint64)
    padded[:, 0] = lengths
    for place in range(longest):
        has = lengths > place
        padded[has, place + 1] = values[starts[has] + place]
    mixed = np.zeros(rows, np.uint64)
    for column in padded.T:
        mixed = (mixed ^ column) * _MIX
    _, first, of_row = np.unique(mixed, return_index=True, return_inverse=True)
    of_row = of_row.reshape(-1)
    if not np.array_equal(padded[first][of_row], padded):
        return None  # two that differ were mixed to the same number
    found = [tuple(padded[row, 1 : lengths[row] + 1].tolist()) for row in first.tolist()]
    return found, of_row
