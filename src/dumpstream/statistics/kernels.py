"""Kernels: how `_native.Statistics` is told to read the elements of a data type."""

from functools import cache
from typing import NamedTuple

import ml_dtypes
import numpy as np
from typing_extensions import Buffer

from dumpstream.format import hifloat8
from dumpstream.format.dtypes import DTYPES

_BYTE_BITS = 8
_CODES = 1 << _BYTE_BITS

# Of floats whose values come from a table in another type, the smallest that is not subnormal.
_MIN_NORMAL = {"hifloat8": hifloat8.MIN_NORMAL, "float4_e1m2": 1.0}


class Encoding(NamedTuple):
    """What the kernels need to know of a data type."""

    kind: str
    table: Buffer | None  #: the value of each code, as a double
    min_normal: float  #: values of the table below it are subnormal
    components: int  #: numbers in an element: 2 of a complex one
    is_integer: bool
    saturates: bool  #: whether the share of saturated elements says something: floats of 8 bits


@cache
def encoding_of(number: int, *, packed: bool) -> Encoding | None:
    """Return the encoding of the data type *number*, or None if its elements are not numbers.

    *packed* is whether elements of fewer than 8 bits share bytes.
    """
    dtype = DTYPES.get(number)
    if dtype is None or dtype.kernel is None:
        return None
    kind, min_normal = dtype.kernel, 0.0
    table: Buffer | None = None
    is_integer = dtype.numpy.kind in "iub"
    if kind == "byte":
        codes = np.arange(_CODES, dtype=np.uint8)
        values = codes.view(dtype.numpy) if dtype.table is None else dtype.table
        if not is_integer:
            known = _MIN_NORMAL.get(dtype.short)
            min_normal = known or float(ml_dtypes.finfo(dtype.numpy).smallest_normal)  # type: ignore[no-untyped-call]
        if packed:
            kind = f"bits{dtype.bits}"
        table = values.astype(np.float64).data
    return Encoding(
        kind,
        table,
        min_normal,
        components=2 if dtype.numpy.kind == "c" else 1,
        is_integer=is_integer,
        saturates=dtype.kernel == "byte" and dtype.bits == _BYTE_BITS and not is_integer,
    )
