"""Preview: a tensor made small enough to look at. Does no I/O."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dumpstream.analysis.tensorfiles import plain_dtype

_BLOCK_ELEMENTS = 1 << 20
_LEAST_EXPONENT = -1074  #: of a double, which is not normal then
_EXPONENTS = 1024 - _LEAST_EXPONENT

#: Zeros that are so many times as many as the others in any bin would leave nothing to see of them.
_DWARFING = 4

_BARS = " ▁▂▃▄▅▆▇█"
_PLAIN_BARS = " .:-=+*#@"


class Histogram(NamedTuple):
    """How many of the finite elements are in each of equal bins from *low* to *high*."""

    low: float
    high: float
    counts: tuple[int, ...]
    zeros: int = 0  #: elements that are 0 and are not among the counts, which they would dwarf

    def bars(self, *, ascii_only: bool = False) -> str:
        """Return a character for each bin, higher for more elements and blank for none."""
        levels = _PLAIN_BARS if ascii_only else _BARS
        most = max(self.counts, default=0)
        steps = len(levels) - 1
        return "".join(levels[-(-count * steps // most)] if count else levels[0] for count in self.counts)


def count_bins(blocks: Iterable[NDArray[Any]], low: float, high: float, bins: int) -> Histogram:
    """Return the histogram of the elements in *blocks*, whose finite ones are between *low* and *high*."""
    counts = np.zeros(bins, np.int64)
    zeros = 0
    # Halved, as the distance between the largest floats is not finite.
    width = high / 2 - low / 2
    for part in _parts(blocks):
        with np.errstate(invalid="ignore"):  # as a NaN that signals is
            numbers = part.astype(np.float64)
        finite = numbers[np.isfinite(numbers)]
        others = finite[finite != 0]
        zeros += len(finite) - len(others)
        counts += np.bincount(_bins_of(others, low, width, bins), minlength=bins)
    if zeros < _DWARFING * counts.max(initial=0):
        counts[_bins_of(np.zeros(1), low, width, bins)] += zeros
        zeros = 0
    return Histogram(low, high, tuple(counts.tolist()), zeros)


def _bins_of(numbers: NDArray[np.float64], low: float, width: float, bins: int) -> NDArray[np.int64]:
    """Return the bins that *numbers* belong to; *width* is half of the distance from *low*."""
    places = (numbers / 2 - low / 2) / width * bins if width else np.zeros(len(numbers))
    return np.clip(places.astype(np.int64), 0, bins - 1)


class Exponents(NamedTuple):
    """How many of the finite elements have each exponent to the base 2; *width* of them share a count."""

    low: int  #: the first exponent of the first count
    width: int
    counts: tuple[int, ...]
    zeros: int  #: which have no exponent


def count_exponents(blocks: Iterable[NDArray[Any]], most_bins: int) -> Exponents:
    """Return the exponents of the elements in *blocks*, in at most *most_bins* counts."""
    counts = np.zeros(_EXPONENTS, np.int64)
    zeros = 0
    for part in _parts(blocks):
        with np.errstate(invalid="ignore"):  # as a NaN that signals is
            numbers = np.abs(part).astype(np.float64) if part.dtype.kind == "c" else part.astype(np.float64)
        finite = numbers[np.isfinite(numbers)]
        nonzero = finite[finite != 0]
        zeros += len(finite) - len(nonzero)
        # frexp has fractions from a half to 1, and so exponents that are larger by 1.
        counts += np.bincount(np.frexp(nonzero)[1] - 1 - _LEAST_EXPONENT, minlength=_EXPONENTS)
    used = np.flatnonzero(counts)
    if not len(used):
        return Exponents(0, 1, (), zeros)
    low, high = int(used[0]), int(used[-1]) + 1
    width = -(-(high - low) // most_bins)
    sums = np.add.reduceat(counts[low:high], np.arange(0, high - low, width))
    return Exponents(low + _LEAST_EXPONENT, width, tuple(sums.tolist()), zeros)


def pick_values(blocks: Iterable[NDArray[Any]], first: int, last: int) -> tuple[list[Any], list[Any]]:
    """Return the first and the last elements as Python's numbers; if there are few, all are first."""
    begin: list[Any] = []
    end: deque[Any] = deque(maxlen=last)
    count = 0
    for part in _parts(blocks):
        missing = first - len(begin)
        begin += numbers_of(part[:missing])
        end.extend(numbers_of(part[missing:][-last:]))
        count += len(part)
    return (begin, [*end]) if count > first + last else ([*begin, *end], [])


def numbers_of(flat: NDArray[Any]) -> list[Any]:
    """Return the elements as Python's numbers."""
    # Elements of types that numpy does not know are not converted by tolist.
    numbers: list[Any] = flat.astype(plain_dtype(flat.dtype), copy=False).tolist()
    return numbers


def _parts(blocks: Iterable[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    for block in blocks:
        flat = block.reshape(-1)
        for start in range(0, len(flat), _BLOCK_ELEMENTS):
            yield flat[start : start + _BLOCK_ELEMENTS]
