"""Precision: how fine the floats of a data type are, and which of two types is the coarser."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import ml_dtypes
import numpy as np

from dumpstream.format.dtypes import DTYPES, DType

_UNDEFINED = 0
_COMPLEX32 = 32


class Precision(NamedTuple):
    """The floats of a type."""

    digits: int  #: binary digits behind the point; 2 to the power of minus this is the epsilon
    exponent: int  #: of the smallest normal number

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next larger number."""
        return 2.0**-self.digits


#: HiFloat8 has from 3 digits near 1 down to one; FLOAT4_E1M2 counts in quarters.
_TAPERED = {"hifloat8": Precision(1, -15), "float4_e1m2": Precision(2, 0)}


def is_numeric(dtype: DType) -> bool:
    """Whether elements of *dtype* are compared as numbers; the others are compared as bytes."""
    return dtype.kernel is not None and dtype.number != _UNDEFINED


@cache
def _precision(number: int) -> Precision | None:
    dtype = DTYPES[number]
    if dtype.number == _COMPLEX32:
        return Precision(10, -14)
    if (known := _TAPERED.get(dtype.short)) is not None:
        return known
    if dtype.numpy.kind in "iub":
        return None
    component = np.empty(0, dtype.numpy).real.dtype if dtype.numpy.kind == "c" else dtype.numpy
    found = ml_dtypes.finfo(component)  # type: ignore[no-untyped-call]
    return Precision(int(found.nmant), min(0, int(found.minexp)))


def precision_of(dtype: DType) -> Precision | None:
    """Return the precision of *dtype*, of a component if it is complex; None if it has no floats."""
    return _precision(dtype.number) if is_numeric(dtype) else None


def coarser_of(mine: DType, golden: DType) -> Precision | None:
    """Return the precision of the coarser of two types: its digits, and the larger least unit of both.

    None if neither has floats. An integer is as fine as the other type.
    """
    found = [precision for precision in map(precision_of, (mine, golden)) if precision is not None]
    if not found:
        return None
    digits = min(precision.digits for precision in found)
    return Precision(digits, max(precision.exponent - precision.digits for precision in found) + digits)
