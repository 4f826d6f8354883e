"""Preview: a tensor made small enough to look at. Does no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dumpstream.tensorfiles import plain_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCK_ELEMENTS = 1 << 20

_BARS = " ▁▂▃▄▅▆▇█"
_PLAIN_BARS = " .:-=+*#@"


class Histogram(NamedTuple):
    """How many of the finite elements lie in each of equal stretches from *low* to *high*."""

    low: float
    high: float
    counts: tuple[int, ...]

    def bars(self, *, ascii_only: bool = False) -> str:
        """Return a character for each stretch, the higher the more lie in it, and blank if none does."""
        levels = _PLAIN_BARS if ascii_only else _BARS
        most = max(self.counts, default=0)
        steps = len(levels) - 1
        return "".join(levels[-(-count * steps // most)] if count else levels[0] for count in self.counts)


def count_stretches(array: NDArray[Any], low: float, high: float, stretches: int) -> Histogram:
    """Return the histogram of *array*, whose finite elements lie between *low* and *high*."""
    flat = array.reshape(-1)
    counts = np.zeros(stretches, np.int64)
    # Halved, as the distance between the largest floats is none.
    width = high / 2 - low / 2
    for start in range(0, len(flat), _BLOCK_ELEMENTS):
        block = flat[start : start + _BLOCK_ELEMENTS].astype(np.float64)
        finite = block[np.isfinite(block)]
        places = (finite / 2 - low / 2) / width * stretches if width else np.zeros(len(finite))
        counts += np.bincount(np.clip(places.astype(np.int64), 0, stretches - 1), minlength=stretches)
    return Histogram(low, high, tuple(counts.tolist()))


def pick_values(array: NDArray[Any], first: int, last: int) -> tuple[list[Any], list[Any]]:
    """Return the first and the last elements, as Python's numbers; if they are few, all are first."""
    flat = array.reshape(-1)
    if flat.size <= first + last:
        return _numbers(flat), []
    return _numbers(flat[:first]), _numbers(flat[-last:])


def _numbers(flat: NDArray[Any]) -> list[Any]:
    # Of types that numpy does not know, tolist would leave the elements as they are.
    numbers: list[Any] = flat.astype(plain_dtype(flat.dtype), copy=False).tolist()
    return numbers
